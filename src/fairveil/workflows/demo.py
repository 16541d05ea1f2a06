"""The main workflow on real data: train a frontier on UCI Adult, release a censored table, and attack it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
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
from fairveil.workflows.writing import check_target

#: The chosen point is the smallest budget at which a fresh attacker's AUC on validation rows is at most this.
CHOSEN_AUC = 0.55


@dataclass(frozen=True)
class Point:
    """One release, measured with fresh models on its test rows. budget None: the original data, the control."""

    budget: float | None
    distortion: float
    upper: float
    sex_accuracy: Estimate
    sex_auc: Estimate
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
    training = Training(steps=steps)
    encoder = FairEncoder(sees_sensitive=True, training=training, random_state=seed, verbose=progress)
    frontier = FairFrontier(encoder, budgets).fit(train.X, sensitive_features=train.S)
    met = [float(b) for b in frontier.points_.loc[frontier.points_["met"], "budget"]]
    points = [_original(train, test)]
    for budget in met:
        console.print(f"Fresh attackers on the release at budget {budget:g} ...")
        points.append(_point(budget, frontier.at(budget), train, test))
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
    result = audit_release(release, release_shuffled(encoder, test), progress=progress)
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
    """A release in its published order, and the rows it was made from in the same order."""

    table: pd.DataFrame
    origin: Split


def release_shuffled(encoder: FairEncoder, split: Split) -> Shuffled:
    """A release for publication: drawn and shuffled with the operating system's randomness, without S."""
    seed = encoder.random_state
    released = encoder.set_params(random_state=None).transform(split.X, sensitive_features=split.S)
    encoder.set_params(random_state=seed)
    order = np.argsort(SystemRandom().keys(len(released)), kind="stable")
    return Shuffled(released.iloc[order].reset_index(drop=True), split.take(order))


def audit_release(train: Shuffled, test: Shuffled, *, progress: bool, profile: Profile = "quick") -> AuditResult:
    """Attackers are trained on the released training rows and scored on the released test rows."""
    both = (train, test)
    return audit(
        pd.concat([part.table for part in both], ignore_index=True),
        pd.concat([part.origin.S for part in both], ignore_index=True),
        {name: pd.concat([part.origin.targets[name] for part in both]).to_numpy() for name in train.origin.targets},
        original=pd.concat([part.origin.X for part in both], ignore_index=True),
        split=np.repeat(["train", "test"], [len(part.table) for part in both]),
        profile=profile,
        verbose=progress,
    )


def _json(values: object) -> str:
    return json.dumps(values, indent=1) + "\n"


def _original(train: Split, test: Split) -> Point:
    return _measured(None, 0.0, 0.0, train.X, train, test.X, test)


def _point(budget: float, encoder: FairEncoder, train: Split, test: Split) -> Point:
    released = [encoder.transform(split.X, sensitive_features=split.S) for split in (train, test)]
    achieved = encoder.distortion_
    return _measured(budget, achieved.mean, achieved.upper, released[0], train, released[1], test)


def _measured(
    budget: float | None, mean: float, upper: float, x: pd.DataFrame, train: Split, x_test: pd.DataFrame, test: Split
) -> Point:
    sex = probe(x, train.S["sex"], x_test, test.S["sex"])
    salary = probe(x, train.targets["salary"], x_test, test.targets["salary"], groups=test.S["sex"])
    assert sex.auc is not None
    assert salary.gap is not None
    return Point(budget, mean, upper, sex.accuracy, sex.auc, salary.accuracy, salary.gap)


def _choose(frontier: FairFrontier, budgets: list[float], train: Split, seed: int) -> float:
    """The smallest budget that hides sex from an attacker scored on a fifth of the training rows; else the largest."""
    order = np.random.default_rng(seed).permutation(len(train))
    fit, judge = order[len(order) // 5 :], order[: len(order) // 5]
    for budget in budgets:
        released = frontier.at(budget).transform(train.X, sensitive_features=train.S)
        found: Probe = probe(
            released.iloc[fit], train.S["sex"].iloc[fit], released.iloc[judge], train.S["sex"].iloc[judge]
        )
        if found.auc is not None and found.auc.value <= CHOSEN_AUC:
            return budget
    return budgets[-1]


def _table(points: list[Point], chosen: float) -> Table:
    rows = points[0].sex_accuracy.rows
    table = Table(
        title="Accuracy of a fresh LightGBM on each release",
        caption=f"{rows:,} test rows, 95 % intervals. The first row is the control. * the released budget.",
    )
    for name in ("budget", "distortion (at most)", "sex: accuracy", "sex: AUC", "salary: accuracy", "ΔDemP of salary"):
        table.add_column(name, justify="right")
    for point in points:
        star = " *" if point.budget == chosen else ""
        table.add_row(
            "original" if point.budget is None else f"{point.budget:g}{star}",
            f"{point.distortion:.3f} ({point.upper:.3f})",
            *(
                _short(estimate)
                for estimate in (point.sex_accuracy, point.sex_auc, point.salary_accuracy, point.salary_gap)
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
