"""The main workflow on real data: train a frontier on UCI Adult, release a censored table, and attack it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fairveil._utils.atomic import replacing
from fairveil._utils.errors import InputError
from fairveil._utils.randomness import SystemRandom
from fairveil.auditing import AuditResult, Probe, audit, probe
from fairveil.auditing.attackers import Profile
from fairveil.datasets import Split, load_adult
from fairveil.estimators import FairEncoder, FairFrontier
from fairveil.metrics import Estimate
from fairveil.training import Training
from fairveil.workflows.recipe import HELD_OUT
from fairveil.workflows.writing import check_target

#: The chosen point is the smallest budget at which a fresh attacker's AUC on held-out training rows is at most this.
CHOSEN_AUC = 0.55
#: Draws of each row from which fresh models learn.
_DRAWS = 5


@dataclass(frozen=True)
class Point:
    """One release, measured with fresh models that learn from half of its test rows and are tested on the other half.

    The encoder was not fitted on either. fitted_auc: of an attacker that learns from released training rows instead, on
    which the encoder was fitted. budget None: the original data, the control.
    """

    budget: float | None
    distortion: float
    upper: float
    sex_accuracy: Estimate
    sex_auc: Estimate
    fitted_auc: Estimate
    salary_accuracy: Estimate
    salary_gap: Estimate


def run_demo(output: Path, budgets: list[float], *, steps: int, seed: int, progress: bool) -> list[Point]:
    """Train, choose, release, audit; writes the censored table, the veil, the frontier and the audit of the release."""
    console = Console(width=None if Console().is_terminal else 120)
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file. Name a folder for the results with --output.")
    train, test = load_adult("I")
    console.print(
        f"UCI Adult: {len(train):,} training and {len(test):,} test rows, hiding sex in {train.X.shape[1]} columns."
    )
    training = Training(steps=steps, held_out=HELD_OUT)
    encoder = FairEncoder(sees_sensitive=True, training=training, random_state=seed, verbose=progress)
    frontier = FairFrontier(encoder, budgets).fit(train.X, sensitive_features=train.S)
    met = [float(b) for b in frontier.points_.loc[frontier.points_["met"], "budget"]]
    points = [_measured(None, 0.0, 0.0, train.X, train, [test.X], test, seed)]
    for budget in met:
        console.print(f"Fresh attackers on the release at budget {budget:g} ...")
        points.append(_point(budget, frontier.at(budget), train, test, seed))
    chosen = _choose(frontier, met, train, seed)
    console.print(_table(points, chosen))
    encoder = frontier.at(chosen)
    output.mkdir(parents=True, exist_ok=True)
    encoder.save(output / "sex.veil")
    release = release_shuffled(encoder, train)
    release.table.to_csv(output / "censored.csv", index=False)
    plot_frontier(points, chosen, output / "frontier.png")
    (output / "frontier.json").write_text(_json([asdict(point) for point in points]))
    console.print(f"Auditing the release at budget {chosen:g} with every attacker ...")
    result = audit_release(encoder, release, release_shuffled(encoder, test, fitted=False), progress=progress)
    result.to_json(output / "audit.json")
    result.to_html(output / "audit.html")
    console.print(result.verdict(), highlight=False)
    console.print(
        f"Wrote censored.csv (budget {chosen:g}), sex.veil, frontier.png, frontier.json, audit.html and audit.json "
        f"to {output}/. Open audit.html in a browser."
    )
    return points


def write_example(path: Path) -> int:
    """UCI Adult as one CSV file: all rows, with sex and salary among the columns; returns the number of rows."""
    parts = [split.X.assign(sex=split.S["sex"], salary=split.targets["salary"]) for split in load_adult("I")]
    frame = pd.concat(parts, ignore_index=True)
    frame["salary"] = np.where(frame["salary"] == 1, ">50K", "<=50K")
    with replacing(check_target(path, (".csv",))) as partial:
        frame.to_csv(partial, index=False)
    return len(frame)


@dataclass(frozen=True)
class Shuffled:
    """A release in its published order, the rows it was made from, and which of them the encoder was fitted on."""

    table: pd.DataFrame
    origin: Split
    fitted: NDArray[np.bool_]


def release_shuffled(encoder: FairEncoder, split: Split, *, fitted: bool = True) -> Shuffled:
    """A release for publication: drawn and shuffled with the operating system's randomness, without S.

    fitted: whether the encoder was fitted to this table (but for its held-out rows).
    """
    released = drawn(encoder, split)
    order = np.argsort(SystemRandom().keys(len(released)), kind="stable")
    rows = encoder.fitted_rows_ if fitted else np.zeros(len(released), dtype=bool)
    return Shuffled(released.iloc[order].reset_index(drop=True), split.take(order), rows[order])


def drawn(encoder: FairEncoder, split: Split) -> pd.DataFrame:
    """A release drawn with the operating system's randomness, in the order of the rows."""
    seed = encoder.random_state
    released: pd.DataFrame = encoder.set_params(random_state=None).transform(split.X, sensitive_features=split.S)
    encoder.set_params(random_state=seed)
    return released


def audit_release(
    encoder: FairEncoder, train: Shuffled, test: Shuffled, *, progress: bool, profile: Profile = "quick"
) -> AuditResult:
    """Attackers learn from rows that the encoder was not fitted on, in several draws, and are scored on others."""
    both = (train, test)
    return audit(
        pd.concat([part.table for part in both], ignore_index=True),
        pd.concat([part.origin.S for part in both], ignore_index=True),
        {name: pd.concat([part.origin.targets[name] for part in both]).to_numpy() for name in train.origin.targets},
        original=pd.concat([part.origin.X for part in both], ignore_index=True),
        encoder_rows=np.concatenate([part.fitted for part in both]),
        draw=lambda rows: drawn(encoder, _joined(train.origin, test.origin, rows)),
        profile=profile,
        verbose=progress,
    )


def _joined(first: Split, second: Split, rows: NDArray[np.int64]) -> Split:
    """Rows of two tables, one after the other, at these positions."""
    frames = {name: pd.concat([getattr(part, name) for part in (first, second)], ignore_index=True).iloc[rows]
              for name in ("X", "S")}  # fmt: skip
    return Split(frames["X"], frames["S"], {})


def _json(values: object) -> str:
    return json.dumps(values, indent=1) + "\n"


def _point(budget: float, encoder: FairEncoder, train: Split, test: Split, seed: int) -> Point:
    achieved = encoder.distortion_
    draws = [drawn(encoder, test) for _ in range(_DRAWS)]
    return _measured(budget, achieved.mean, achieved.upper, drawn(encoder, train), train, draws, test, seed)


def _measured(
    budget: float | None, mean: float, upper: float, x: pd.DataFrame, train: Split, draws: list[pd.DataFrame],
    test: Split, seed: int,
) -> Point:  # fmt: skip
    """draws: of the test rows; fresh models learn from all draws of one half, and are tested on one of the other."""
    learn, judge = _halves(np.arange(len(test)), seed)
    sex, salary = test.S["sex"].to_numpy(), test.targets["salary"].to_numpy()
    seen = pd.concat([released.iloc[learn] for released in draws])
    held = draws[0].iloc[judge]
    found = probe(seen, np.tile(sex[learn], len(draws)), held, sex[judge])
    fitted = probe(x, train.S["sex"], held, sex[judge])
    task = probe(seen, np.tile(salary[learn], len(draws)), held, salary[judge], groups=sex[judge])
    assert found.auc is not None
    assert fitted.auc is not None
    assert task.gap is not None
    return Point(budget, mean, upper, found.accuracy, found.auc, fitted.auc, task.accuracy, task.gap)


def _halves(rows: NDArray[np.int64], seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.random.default_rng(seed).permutation(rows)
    return order[: len(order) // 2], order[len(order) // 2 :]


def _choose(frontier: FairFrontier, budgets: list[float], train: Split, seed: int) -> float:
    """The smallest budget that hides sex in the held-out training rows; else the largest.

    An attacker learns from half of these rows and is scored on the other half.
    """
    for budget in budgets:
        encoder = frontier.at(budget)
        learn, judge = _halves(np.flatnonzero(~encoder.fitted_rows_), seed)
        draws = [drawn(encoder, train) for _ in range(_DRAWS)]
        sex = train.S["sex"].to_numpy()
        found: Probe = probe(
            pd.concat([released.iloc[learn] for released in draws]), np.tile(sex[learn], _DRAWS),
            draws[0].iloc[judge], sex[judge],
        )  # fmt: skip
        if found.auc is not None and found.auc.value <= CHOSEN_AUC:
            return budget
    return budgets[-1]


def _table(points: list[Point], chosen: float) -> Table:
    rows = points[0].sex_accuracy.rows
    table = Table(
        title="Accuracy of a fresh LightGBM on each release",
        caption=f"{rows:,} test rows, 95 % intervals. Models learned from other rows on which the encoder was not "
        "fitted; 'from fitted rows': from those on which it was. The first row is the control. * the released budget.",
    )
    for name in ("budget", "distortion (at most)", "sex: accuracy", "sex: AUC", "from fitted rows",
                 "salary: accuracy", "ΔDemP of salary"):  # fmt: skip
        table.add_column(name, justify="right")
    for point in points:
        star = " *" if point.budget == chosen else ""
        table.add_row(
            "original" if point.budget is None else f"{point.budget:g}{star}",
            f"{point.distortion:.3f} ({point.upper:.3f})",
            *(
                _short(estimate)
                for estimate in (
                    point.sex_accuracy,
                    point.sex_auc,
                    point.fitted_auc,
                    point.salary_accuracy,
                    point.salary_gap,
                )
            ),
        )
    return table


def _short(estimate: Estimate) -> str:
    return f"{estimate.value:.3f} ± {(estimate.high - estimate.low) / 2:.3f}"


def plot_frontier(points: list[Point], chosen: float | None, path: Path) -> None:
    """Two panels: the remaining leakage of sex, and the cost, each with its interval."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    original, released = points[0], points[1:]
    salary = [100 * p.salary_accuracy.value for p in released]
    for axes, name, label in (
        (left, "sex_auc", "AUC of a fresh attacker on sex"),
        (right, "salary_gap", "ΔDemP of salary"),
    ):
        values = [getattr(p, name) for p in released]
        errors = np.array([[max(v.value - v.low, 0), max(v.high - v.value, 0)] for v in values]).T
        axes.errorbar([v.value for v in values], salary, xerr=errors, fmt="o-", capsize=3, label="released by fairveil")
        axes.plot(
            getattr(original, name).value, 100 * original.salary_accuracy.value, "k*", ms=12, label="original data"
        )
        for point, value in zip(released, values, strict=True):
            mark = " (chosen)" if point.budget == chosen else ""
            axes.annotate(f"D = {point.budget:g}{mark}", (value.value, 100 * point.salary_accuracy.value),
                          textcoords="offset points", xytext=(6, -12), fontsize=8)  # fmt: skip
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
        axes.margins(x=0.12, y=0.12)
    left.axvline(0.5, color="grey", lw=1, ls=":")
    right.axvline(0.0, color="grey", lw=1, ls=":")
    left.set_ylabel("salary accuracy of a fresh model (%)")
    left.legend(loc="lower right", fontsize=8)
    figure.suptitle("UCI Adult, S = sex: leakage and utility of a release", fontsize=11)
    figure.savefig(path, dpi=130)
