"""Two synthetic tables whose best predictor is known."""

import numpy as np
import pandas as pd
from scipy import optimize
from scipy.special import expit
from scipy.stats import norm

ROWS = 30_000
#: Of `shifted`: the weights of the shifted and of the common column, and half the distance of the groups.
_SHIFTED, _COMMON, _HALF = 1.2, 1.2, 0.6
#: Gaps at which the best predictor's lift is stated, by their names in the results.
_GAPS = {"ΔDemP <= 0.02": 0.02, "ΔDemP <= 0.05": 0.05}


def merit(seed: int) -> tuple[pd.DataFrame, dict[str, float]]:
    """The task depends on three columns that are independent of S; four others show S.

    Whoever releases the three columns alone keeps all of the accuracy and nothing of S.
    """
    generator = np.random.default_rng(seed)
    s, u = generator.integers(0, 2, ROWS), generator.normal(size=(ROWS, 3))
    kinds = np.array(["low", "middle", "high"])
    frame = pd.DataFrame({
        "u0": u[:, 0].round(2),
        "u1": u[:, 1].round(2),
        "level": kinds[np.digitize(u[:, 2], [-0.5, 0.5])],
        "v0": (generator.normal(size=ROWS) + 1.2 * s).round(2),
        "v1": (generator.normal(size=ROWS) * (1.0 + s)).round(2),
        "w0": np.where(generator.random(ROWS) < np.where(s == 1, 0.75, 0.3), "yes", "no"),
        "w1": generator.choice(["a", "b", "c"], ROWS),
        "group": np.where(s == 1, "b", "a"),
        "y": (generator.random(ROWS) < expit(2.0 * (u[:, 0] + u[:, 1] + np.digitize(u[:, 2], [-0.5, 0.5]) - 1))) * 1,
    })  # fmt: skip
    return frame, dict.fromkeys([*_GAPS, "AUC <= 0.55", "AUC <= 0.6"], 1.0)


def shifted(seed: int) -> tuple[pd.DataFrame, dict[str, float]]:
    """The task depends on a column that differs between the groups: parity costs accuracy, and how much is known."""
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, ROWS)
    a = generator.normal(size=ROWS) + _HALF * (2 * s - 1)
    u = generator.normal(size=ROWS)
    frame = pd.DataFrame({
        "a": a.round(2),
        "u": u.round(2),
        "noise": generator.normal(size=ROWS).round(2),
        "town": generator.choice(["north", "south", "east"], ROWS),
        "group": np.where(s == 1, "b", "a"),
        "y": (generator.random(ROWS) < expit(_SHIFTED * a + _COMMON * u)) * 1,
    })  # fmt: skip
    best = best_accuracy(1.0)
    return frame, {name: (best_accuracy(gap) - 0.5) / (best - 0.5) for name, gap in _GAPS.items()}


def best_accuracy(gap: float) -> float:
    """Of `shifted`: the accuracy of the best predictor that sees S, with ΔDemP of at most this.

    Given S, the logit t of the task is normal with mean ±1.2 x 0.6 and variance 1.2² + 1.2². The best predictor says 1
    above one threshold per group; by symmetry they are -c and c.
    """
    spread = np.hypot(_SHIFTED, _COMMON)
    t = np.linspace(-8.0, 8.0, 40_001)

    def accuracy(c: float) -> float:
        # One group suffices: the other is its mirror image.
        density = norm.pdf(t, _SHIFTED * _HALF, spread)
        return float(np.trapezoid(density * np.where(t >= c, expit(t), expit(-t)), t))

    def parity(c: float) -> float:
        return float(2.0 * norm.cdf((_SHIFTED * _HALF - c) / spread) - 1.0)

    if parity(0.0) <= gap:
        return accuracy(0.0)
    return accuracy(optimize.brentq(lambda c: parity(c) - gap, 0.0, _SHIFTED * _HALF))
