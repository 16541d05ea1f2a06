"""The Gaussian mixture: how close the learned mechanism is to the known optimum (Fig. `fig:gaussianperformance`).

All budgets of one architecture and prior are members of one game. The MAP adversary's accuracy is computed in closed
form from the learned parameters, so it does not depend on an attacker.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fairveil._utils.randomness import Seeds
from fairveil.data.columns import Column
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.datasets import GaussianMixture, gaussian_mixture
from fairveil.encoders import Gaussian, Signature
from fairveil.encoders.gaussian import GaussianEncoder
from fairveil.information import knn_mutual_information, mixed_mutual_information
from fairveil.objectives import AugmentedLagrangian, Distortion, LogLoss, Loss
from fairveil.objectives.bounds import Bounds, Limits
from fairveil.paper.results import Figure, Page, Profile, Store, Table
from fairveil.theory import gaussian as theory
from fairveil.training import Problem, Target, Training, play
from fairveil.training.verification import Verification

PRIORS = (0.5, 0.75)
BUDGETS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
TRAIN_ROWS, TEST_ROWS = 20_000, 2_000
#: As reported in the paper: the gap of learned noise to the optimum, in MAP accuracy.
PAPER_GAP = 0.007
#: For each architecture, the name of its noise, and the optimum for that kind of noise.
#: Of each kind of noise the encoder that learns it, and its known optimum.
KINDS = {"gaussian": (Gaussian(), theory.water_filling), "gaussian_full": (Gaussian(full=True), theory.optimal_noise)}
NAMES = {"gaussian": ("diagonal", "water-filling"), "gaussian_full": ("full", "rank one")}

TRAINING = Training(
    steps=2000,
    batch_size=2048,
    adversary_steps=6,
    learning_rate=0.005,
    adversary_learning_rate=0.03,
    # The log-likelihood ratio of two Gaussians with the same covariance is linear: no other adversary can do better.
    adversary_hidden=((),),
    adversary_dropout=0.0,
    adversary_decay=0.0,
    # One evaluation, at the end: the distortion is known from the parameters, so there is no iterate to select.
    rounds=1,
)
#: Mild, because distortions go up to 64 and violations are squared.
CONSTRAINT = AugmentedLagrangian(rho=0.3, rate=0.1, smoothing=0.9)


def training_against(alpha: float) -> Training:
    """The same against an alpha-loss. At infinity the best adversary's logits grow without bound, and only rows at its
    boundary would still affect the encoder: a little weight decay keeps them finite and does not change its direction.
    """
    return replace(TRAINING, adversary_decay=0.05) if math.isinf(alpha) else TRAINING


@dataclass(frozen=True)
class Point:
    """One budget: MAP accuracy of the learned mechanism, of the optimum, and normalised information.

    distortion: |beta|^2 + tr P of the learned mechanism. optimum: accuracy under the best noise of the same kind
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
    """A learned affine encoder: X + shift + factor Z with Z standard normal; shift (d,), factor (d, d)."""

    shift: np.ndarray
    factor: np.ndarray

    @property
    def noise(self) -> np.ndarray:
        """The covariance P."""
        return np.asarray(self.factor @ self.factor.T)

    @property
    def distortion(self) -> float:
        """|beta|^2 + tr P."""
        return float(np.sum(self.shift**2) + np.sum(self.factor**2))

    def release(self, x: np.ndarray, seed: int) -> np.ndarray:
        """Released rows."""
        return np.asarray(x + self.shift + np.random.default_rng(seed).normal(size=x.shape) @ self.factor.T)


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
    """Play the game on samples of the mixture, one member per budget, and return the learned mechanisms."""
    loss = loss or LogLoss()
    x, s = mixture.sample(TRAIN_ROWS + TEST_ROWS, seed)
    rows = Rows(torch.from_numpy(x).float(), None, (torch.from_numpy(s),))
    columns = tuple(Column(f"x{i}", "continuous", family="number") for i in range(x.shape[1]))
    layout = Schema(columns).layout
    problem = Problem(
        architecture=KINDS[architecture][0],
        signature=Signature(layout),
        loss=loss,
        distortion=Distortion(layout),
        constraint=CONSTRAINT,
        bounds=Bounds.of([float(budget) for budget in budgets]),
        targets=(Target(2, float(loss.chance(rows.secrets[0]))),),
        seeds=(0,) * len(budgets),
        training=training.completed({}),
    )
    train, test = (rows.take(torch.arange(*span)) for span in ((0, TRAIN_ROWS), (TRAIN_ROWS, TRAIN_ROWS + TEST_ROWS)))
    # The mechanism's distortion is known from its parameters, so no safety margin is needed.
    exact = Verification(rows=10**12, confidence=0.5, limits=(Limits(math.inf, math.inf),))
    outcome = play(problem, train, test, verification=exact, seeds=Seeds(seed), device=torch.device("cpu"),
                   show_progress=progress)  # fmt: skip
    encoder = outcome.encoder
    assert isinstance(encoder, GaussianEncoder)
    factors = encoder.factor.double() if encoder.full else torch.diag_embed(encoder.factor.double())
    return [Mechanism(*pair) for pair in zip(encoder.shift.double().numpy(), factors.numpy(), strict=True)]


@dataclass(frozen=True)
class _Value:
    """The result of a mechanism: MAP accuracy, and I(X_r; S) / I(X; S)."""

    accuracy: float
    information: float

    @classmethod
    def of(cls, mixture: GaussianMixture, noise: np.ndarray) -> "_Value":
        raw = theory.separation(mixture.mean, mixture.variance)
        left = theory.separation(mixture.mean, mixture.variance, noise)
        information = theory.mutual_information(left, mixture.prior) / theory.mutual_information(raw, mixture.prior)
        return cls(theory.map_accuracy(left, mixture.prior), information)


def _optimum(mixture: GaussianMixture, architecture: str, budget: float) -> _Value:
    """The result of the best noise of the same kind."""
    return _Value.of(mixture, KINDS[architecture][1](mixture.mean, mixture.variance, budget))


def estimate_information(mixture: GaussianMixture, mechanism: Mechanism | None = None) -> tuple[float, float]:
    """I(X_r; S) in nats from 20,000 released (or original) rows: by the paper's estimator and by the mixed one."""
    x, s = mixture.sample(TRAIN_ROWS, seed=1)
    released = x if mechanism is None else mechanism.release(x, seed=2)
    return knn_mutual_information(released, s), mixed_mutual_information(released, s)


def measure(
    mixture: GaussianMixture,
    architecture: str,
    budget: float,
    mechanism: Mechanism,
    original: tuple[float, float] | None = None,
) -> Point:
    """Compare one learned mechanism with the theory; given `original` estimates, estimate its information too."""
    learned, best = _Value.of(mixture, mechanism.noise), _optimum(mixture, architecture, budget)
    ratios: list[float | None] = [None, None]
    if original is not None:
        ratios = [a / b for a, b in zip(estimate_information(mixture, mechanism), original, strict=True)]
    return Point(architecture, mixture.prior, budget, mechanism.distortion, learned.accuracy, best.accuracy,
                 learned.information, best.information, *ratios)  # fmt: skip


def page(
    folder: Path,
    profile: Profile,
    tell: Callable[[str], None],
    *,
    progress: bool = True,
    budgets: Sequence[float] | None = None,
    training: Training | None = None,
    knn: bool = True,
) -> Page:
    """The complete experiment. `quick` has four of the eight budgets and about two thirds of the steps."""
    quick = profile == "quick"
    budgets = tuple(budgets or (BUDGETS[1::2] if quick else BUDGETS))
    training = training or (replace(TRAINING, steps=1400) if quick else TRAINING)
    store = Store(
        folder / f"gaussian.{profile}.json", {"budgets": budgets, "training": training, "knn": knn}, tell=tell
    )
    points: list[Point] = []
    for prior in PRIORS:
        for architecture in NAMES:
            made = store.get(f"{NAMES[architecture][0]} noise, P(S=1) = {prior:g}",
                             partial(_points, prior, architecture, budgets, training, knn=knn,
                                     progress=progress))  # fmt: skip
            points += [Point(**values) for values in made]
    plot(points, folder / "gaussian.png")
    summary = [f"{name} noise: MAP accuracy within {100 * _largest_gap(points, architecture):.3f} % of {optimum}, "
               "everywhere." for architecture, (name, optimum) in NAMES.items()]  # fmt: skip
    summary.append(f"The paper reports {100 * PAPER_GAP:.1f} % for diagonal noise and has no full covariance.")
    return Page(
        "gaussian", "Gaussian mixture, 32 dimensions", summary, [_table(points)],
        [Figure("gaussian.png", "Fig. fig:gaussianperformance: MAP accuracy and normalised information.")],
        {"profile": profile, "training": training, "constraint": CONSTRAINT}, store.seconds,
    )  # fmt: skip


def _points(
    prior: float, architecture: str, budgets: Sequence[float], training: Training, *, knn: bool, progress: bool
) -> list[dict[str, object]]:
    mixture = gaussian_mixture(prior)
    original = estimate_information(mixture) if knn else None
    mechanisms = learn(mixture, architecture, budgets, training=training, progress=progress)
    each = zip(budgets, mechanisms, strict=True)
    return [asdict(measure(mixture, architecture, budget, mechanism, original)) for budget, mechanism in each]


def _largest_gap(points: Sequence[Point], architecture: str) -> float:
    return max(abs(p.gap) for p in points if p.architecture == architecture)


def _table(points: Sequence[Point]) -> Table:
    rows = []
    for p in points:
        knn = ["" if value is None else f"{value:.3f}" for value in (p.paper_knn, p.mixed_knn)]
        rows.append([NAMES[p.architecture][0], f"{p.prior:g}", f"{p.budget:g}", f"{p.distortion:.3f}",
                     f"{100 * p.learned:.2f} %", f"{100 * p.optimum:.2f} %", f"{100 * p.gap:.3f} %", f"{p.exact:.4f}",
                     f"{p.exact_optimum:.4f}", *knn])  # fmt: skip
    return Table(
        "Learned and optimal noise",
        ["noise", "P(S=1)", "D", "spent", "MAP learned", "MAP optimum", "gap", "I exact", "I optimum", "k-NN paper's",
         "k-NN mixed"],
        rows,
        "I: information divided by that of the original data. MAP accuracy and exact information are computed from the "
        "learned parameters; the k-NN values from 20,000 released rows.",
    )  # fmt: skip


def plot(points: Sequence[Point], path: Path) -> None:
    """Fig. `fig:gaussianperformance`: (a) MAP accuracy and (b) normalised information against distortion."""
    from matplotlib.figure import Figure

    priors = sorted({point.prior for point in points})
    figure = Figure(figsize=(11, 3.6 * len(priors)), layout="constrained")
    for prior, (left, right) in zip(priors, figure.subplots(len(priors), 2, squeeze=False), strict=True):
        for (architecture, (name, optimum)), colour in zip(NAMES.items(), ("C0", "C3"), strict=True):
            some = [p for p in points if p.architecture == architecture and p.prior == prior]
            budgets = [p.budget for p in some]
            curve = np.geomspace(min(budgets), max(budgets), 60)
            best = [_optimum(gaussian_mixture(prior), architecture, budget) for budget in curve]
            left.plot(curve, [100 * b.accuracy for b in best], "-", color=colour, label=f"optimum: {optimum}")
            left.plot(budgets, [100 * p.learned for p in some], "o", color=colour, label=f"learned: {name}")
            right.plot(curve, [b.information for b in best], "-", color=colour, label=f"optimum: {optimum}")
            right.plot(budgets, [p.exact for p in some], "o", color=colour, label=f"learned: {name}, exact")
            if all(p.paper_knn is not None for p in some):
                right.plot(budgets, [p.paper_knn for p in some], "x", color=colour, label=f"{name}, k-NN (paper's)")
                right.plot(budgets, [p.mixed_knn for p in some], "+", color=colour, label=f"{name}, k-NN (mixed)")
        left.axhline(100 * max(prior, 1 - prior), color="grey", ls=":", label="prior")
        for axes in (left, right):
            axes.set_xscale("log", base=2)
            axes.set_xlabel("distortion budget D")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        left.set_ylabel("accuracy of the MAP adversary (%)")
        right.set_ylabel("I(X_r; S) / I(X; S)")
        left.set_title(f"(a) P(S=1) = {prior}")
        right.set_title(f"(b) P(S=1) = {prior}")
    figure.savefig(path, dpi=130)
