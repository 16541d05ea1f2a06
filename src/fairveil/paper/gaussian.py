"""The Gaussian mixture: how close the learned game comes to the known optimum (Fig. `fig:gaussianperformance`).

All budgets of one architecture and prior are members of one game. What a MAP adversary gets is computed in closed form
from the learned parameters, so no attacker's skill enters.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fairveil.columns import Column
from fairveil.datasets import GaussianMixture, gaussian_mixture
from fairveil.encoders import EncoderSpec, Gaussian
from fairveil.game import Bounds, Problem, Rows, Training, play
from fairveil.information import knn_mutual_information, mixed_mutual_information
from fairveil.objectives import AugmentedLagrangian, Distortion, LogLoss, Loss
from fairveil.schema import Schema
from fairveil.theory import gaussian as theory

PRIORS = (0.5, 0.75)
BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
TRAIN_ROWS, TEST_ROWS = 20_000, 2_000
#: What the paper reports: learned noise within this of the optimum, in MAP accuracy.
PAPER_GAP = 0.007

TRAINING = Training(
    steps=3000,
    batch_size=2048,
    adversary_steps=2,
    learning_rate=0.01,
    adversary_learning_rate=0.01,
    adversary_hidden=((), (32,)),
    adversary_dropout=0.0,
    adversary_decay=0.0,
    noise_dim=0,
    # One judgement, at the end: the distortion is known from the parameters, so there is no iterate to choose.
    rounds=1,
)


@dataclass(frozen=True)
class Point:
    """One budget: MAP accuracy of the learned mechanism, of the optimum, and normalised information.

    distortion: |beta|^2 + tr P of the learned mechanism. optimum: accuracy left by the best noise of the same kind
    (diagonal: water-filling; full: rank one). exact: I(X_r; S) / I(X; S) of the learned mechanism by quadrature;
    paper_knn, mixed_knn: the same ratio estimated from samples, by the paper's estimator and by the mixed one.
    """

    architecture: str
    prior: float
    budget: float
    distortion: float
    learned: float
    optimum: float
    exact: float
    exact_optimum: float
    paper_knn: float | None
    mixed_knn: float | None

    @property
    def gap(self) -> float:
        """Learned minus optimal MAP accuracy."""
        return self.learned - self.optimum


@dataclass(frozen=True)
class Mechanism:
    """Learned shift (d,) and noise covariance (d, d)."""

    shift: np.ndarray
    noise: np.ndarray

    @property
    def distortion(self) -> float:
        """|beta|^2 + tr P."""
        return float(self.shift @ self.shift + np.trace(self.noise))


def learn(
    mixture: GaussianMixture,
    architecture: str,
    budgets: Sequence[float] = BUDGETS,
    *,
    loss: Loss | None = None,
    training: Training = TRAINING,
    seed: int = 0,
    progress: bool = False,
) -> list[Mechanism]:
    """Play the game on samples of the mixture, one member a budget, and read the mechanisms off."""
    loss = loss or LogLoss()
    x, s = mixture.sample(TRAIN_ROWS + TEST_ROWS, seed)
    rows = Rows(torch.from_numpy(x).float(), None, (torch.from_numpy(s),))
    columns = tuple(Column(f"x{i}", "continuous", family="number") for i in range(x.shape[1]))
    layout = Schema(columns).layout
    problem = Problem(
        layout,
        EncoderSpec(architecture, noise_dim=0),
        loss,
        Distortion(layout),
        AugmentedLagrangian(),
        Bounds.of([float(budget) for budget in budgets]),
        (float(loss.chance(rows.secrets[0])),),
        (2,),
        (0,) * len(budgets),
        (),
        training,
    )
    train, test = (rows.take(torch.arange(*span)) for span in ((0, TRAIN_ROWS), (TRAIN_ROWS, TRAIN_ROWS + TEST_ROWS)))
    # The mechanism's distortion is known from its parameters, so there is nothing to stay inside of.
    outcome = play(problem, train, test, held_out=10**12, z=0.0, seed=seed, device=torch.device("cpu"),
                   show_progress=progress)  # fmt: skip
    encoder = outcome.encoder
    assert isinstance(encoder, Gaussian)
    shifts, noises = encoder.shift.double().numpy(), encoder.covariance().double().numpy()
    return [Mechanism(shift, noise) for shift, noise in zip(shifts, noises, strict=True)]


def optimal_noise(mixture: GaussianMixture, architecture: str, budget: float) -> np.ndarray:
    """The best noise of the same kind, as a covariance."""
    if architecture == "gaussian":
        return np.diag(theory.water_filling(mixture.mean, mixture.variance, budget))
    return theory.optimal_noise(mixture.mean, np.diag(mixture.variance), budget)


def measure(mixture: GaussianMixture, architecture: str, budget: float, mechanism: Mechanism, *, knn: bool) -> Point:
    """Compare one learned mechanism with the theory."""
    q, sigma = mixture.prior, np.diag(mixture.variance)
    raw = theory.mutual_information(theory.separation(mixture.mean, sigma), q)
    learned = theory.separation(mixture.mean, sigma, mechanism.noise)
    best = theory.separation(mixture.mean, sigma, optimal_noise(mixture, architecture, budget))
    estimates: dict[str, float | None] = {"paper_knn": None, "mixed_knn": None}
    if knn:
        x, s = mixture.sample(TRAIN_ROWS, seed=1)
        root = np.linalg.cholesky(mechanism.noise + 1e-12 * np.eye(len(x[0])))
        released = x + mechanism.shift + np.random.default_rng(2).normal(size=x.shape) @ root.T
        for name, estimate in (("paper_knn", knn_mutual_information), ("mixed_knn", mixed_mutual_information)):
            estimates[name] = estimate(released, s) / estimate(x, s)
    return Point(
        architecture, q, budget, mechanism.distortion, theory.map_accuracy(learned, q), theory.map_accuracy(best, q),
        theory.mutual_information(learned, q) / raw, theory.mutual_information(best, q) / raw, **estimates,
    )  # fmt: skip


def run(
    output: Path,
    *,
    budgets: Sequence[float] = BUDGETS,
    training: Training = TRAINING,
    knn: bool = True,
    progress: bool = True,
) -> list[Point]:
    """The whole experiment; writes `gaussian.json`, `gaussian.png` and `gaussian.md`."""
    start = time.monotonic()
    points: list[Point] = []
    for prior in PRIORS:
        mixture = gaussian_mixture(prior)
        for architecture in ("gaussian", "gaussian_full"):
            mechanisms = learn(mixture, architecture, budgets, training=training, progress=progress)
            points += [measure(mixture, architecture, b, m, knn=knn) for b, m in zip(budgets, mechanisms, strict=True)]
    output.mkdir(parents=True, exist_ok=True)
    (output / "gaussian.json").write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")
    (output / "gaussian.md").write_text(summary(points, time.monotonic() - start))
    plot(points, output / "gaussian.png")
    return points


def summary(points: Sequence[Point], seconds: float) -> str:
    """The table, and how large the gaps are, as Markdown."""
    frame = pd.DataFrame([{**asdict(point), "gap": point.gap} for point in points]).round(4)
    header = "| " + " | ".join(frame.columns) + " |\n|" + "---|" * len(frame.columns) + "\n"
    body = "".join("| " + " | ".join(map(str, row)) + " |\n" for row in frame.itertuples(index=False))
    worst = frame.groupby("architecture")["gap"].max()
    lines = [f"- {name}: learned within {100 * gap:.2f} % MAP accuracy of its optimum at every budget and prior."
             for name, gap in worst.items()]  # fmt: skip
    paper = f"The paper reports {100 * PAPER_GAP:.1f} % for the diagonal encoder."
    return (
        f"# Gaussian mixture, 32 dimensions\n\n{header}{body}\n" + "\n".join(lines) + f"\n\n{paper} {seconds:.0f} s.\n"
    )


def plot(points: Sequence[Point], path: Path) -> None:
    """Fig. `fig:gaussianperformance`: (a) MAP accuracy and (b) normalised information against distortion."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = {"gaussian": "diagonal", "gaussian_full": "full covariance"}
    colours = {
        ("gaussian", 0.5): "C0",
        ("gaussian", 0.75): "C1",
        ("gaussian_full", 0.5): "C2",
        ("gaussian_full", 0.75): "C3",
    }
    for (architecture, prior), colour in colours.items():
        some = [p for p in points if p.architecture == architecture and p.prior == prior]
        budgets = [p.budget for p in some]
        label = f"{names[architecture]}, P(S=1) = {prior}"
        left.plot(budgets, [100 * p.optimum for p in some], "-", color=colour, label=f"optimum, {label}")
        left.plot(budgets, [100 * p.learned for p in some], "o", color=colour, ms=5, label=f"learned, {label}")
        right.plot(budgets, [p.exact_optimum for p in some], "-", color=colour, label=f"optimum, {label}")
        right.plot(budgets, [p.exact for p in some], "o", color=colour, ms=5, label=f"learned, {label}")
        estimated = [p.mixed_knn for p in some]
        if all(value is not None for value in estimated):
            right.plot(budgets, estimated, "x", color=colour, ms=6, label=f"k-NN estimate, {label}")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("distortion budget D")
        axes.grid(alpha=0.3)
    left.set_ylabel("accuracy of the MAP adversary (%)")
    right.set_ylabel("I(X_r; S) / I(X; S)")
    left.legend(fontsize=7)
    right.legend(fontsize=6)
    figure.savefig(path, dpi=130)
