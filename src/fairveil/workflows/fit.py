"""Veils from files: read (a sample of) the rows, train, write; an interrupted fit can be resumed."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fairveil._utils.atomic import refuse_overwriting, replacing
from fairveil._utils.errors import BudgetWarning, CollapseWarning, InputError, VeilFileError
from fairveil.auditing import Probe, probe
from fairveil.auditing.encoder_rows import FEWEST_NEW, FITTED, NEW
from fairveil.data.frames import plain_column
from fairveil.estimators import FairEncoder, FairFrontier
from fairveil.workflows.protocol import Data
from fairveil.workflows.recipe import Recipe
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.workspace import workspace
from fairveil.workflows.sources import open_source
from fairveil.workflows.writing import check_target

#: Draws of each row from which the fresh models of a frontier learn.
_DRAWS = 5


def fit_file(source: str | Path, target: str | Path, budget: float, recipe: Recipe) -> FairEncoder:
    """Train a veil and write it. Nothing is written if the budget is not met."""
    source, target = Path(source), check_target(Path(target), (".veil",))
    _check_files(source, recipe)
    refuse_overwriting({"veil": target}, recipe.files(source))
    with workspace(target, recipe.plan(source, {"budget": budget}), resume=recipe.resume) as (folder, plan):
        seed = int(plan["private"]["seed"])
        data = open_source(source, recipe.labels).data(recipe, seed)
        encoder = FairEncoder(budget, **recipe.settings(data.schema, seed, folder / "checkpoint", recipe.held_out))
        with _resuming(source):
            encoder.fit(data.x, sensitive_features=data.secret)
        encoder.save(target)
        _record_fit(source, recipe, encoder, target, data.places[encoder.fitted_rows_], data.total)
    return encoder


def _record_fit(
    source: Path, recipe: Recipe, encoder: FairEncoder, veil: Path, fitted: NDArray[np.int64], total: int
) -> None:
    """Record in the veil's ledger which rows of the source the encoder was fitted on (their positions)."""
    rows = np.zeros(total, dtype=bool)
    rows[fitted] = True
    ledger = Ledger.of(veil)
    ledger.prepare()
    ledger.record_fit(open_source(source, recipe.labels).seen_by(encoder, veil, rows, ledger.key))


def fit_frontier(
    source: str | Path, folder: str | Path, budgets: Sequence[float], recipe: Recipe, targets: Sequence[str] = ()
) -> pd.DataFrame:
    """Train veils for several budgets at once, and compare fresh models on their releases.

    Writes into `folder`: a veil for every budget that is met, `frontier.csv` and `frontier.png`. The encoders are
    trained on 70 % of the rows. Fresh LightGBM models are trained on releases of half of the other rows (several draws
    of each) and scored on releases of the other half. "S AUC from fitted rows" is of a model that learns from released
    rows the encoder was fitted on instead: it may find too little. Where there are too few rows, all models learn from
    those, and the column "learned from" says so.
    """
    source, folder = Path(source), Path(folder)
    _check_files(source, recipe)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Name a folder for the veils.")
    refuse_overwriting(
        {f"file {name}": folder / name for name in ("frontier.csv", "frontier.png")}, recipe.files(source)
    )
    plan = recipe.plan(source, {"budgets": list(budgets), "targets": list(targets)})
    with workspace(folder, plan, resume=recipe.resume) as (work, found):
        seed = int(found["private"]["seed"])
        data = open_source(source, recipe.labels).data(recipe, seed, more=targets)
        if data.schema is None:
            raise InputError("A frontier for images needs FairFrontier in Python; fit one budget at a time here.")
        order = np.random.default_rng(seed).permutation(data.rows)
        judged, learned = np.split(order, [int(recipe.held_out * data.rows)])
        learned = np.sort(learned)
        table = data.x.select([n for n in data.x.column_names if n in data.schema.names])
        frontier = FairFrontier(FairEncoder(**recipe.settings(data.schema, seed, work / "checkpoint")), list(budgets))
        with warnings.catch_warnings():  # unmet points are marked in the table
            warnings.simplefilter("ignore", BudgetWarning)
            warnings.simplefilter("ignore", CollapseWarning)
            with _resuming(source):
                frontier.fit(table.take(pa.array(learned)))
        names = [column.name for column in data.schema.columns if column.role == "sensitive"]
        secret = frontier.estimators_[0].veil_.sensitive.labels(data.x.select(names))
        compare = _Comparison.of(data.x, secret, learned, judged, targets)
        points = [_original(data, compare)]
        veils = []
        for row in frontier.points_.to_dict("records"):
            point = {name: row[name] for name in ("budget", "distortion", "upper", "met", "largest_drift",
                                                  "drifted_column", "collapsed")}  # fmt: skip
            if row["met"]:
                encoder = frontier.at(row["budget"])
                encoder.set_params(random_state=None)  # each draw anew
                more = [encoder.transform(table.take(pa.array(compare.train))) for _ in range(_DRAWS - 1)]
                point |= compare.scores(_plain_frame(encoder.transform(table)), [_plain_frame(draw) for draw in more])
                encoder.set_params(random_state=seed)
                veils.append((f"{'-'.join(names)}-{row['budget']:g}.veil", encoder))
            points.append(point)
        frame = pd.DataFrame(points)
        folder.mkdir(parents=True, exist_ok=True)
        for name, encoder in veils:
            encoder.save(folder / name)
            fitted = data.places[learned[encoder.fitted_rows_]]
            _record_fit(source, recipe, encoder, folder / name, fitted, data.total)
        with replacing(folder / "frontier.csv") as partial:
            frame.to_csv(partial, index=False)
        plot_points(frame, names, targets, folder / "frontier.png")
    return frame


@contextmanager
def _resuming(source: Path) -> Iterator[None]:
    """Translate the error for a checkpoint of other rows."""
    try:
        yield
    except VeilFileError:
        raise InputError(
            f"The interrupted work was done with other settings or another input than {source.name}. Omit --resume "
            "to start again."
        ) from None


def _check_files(source: Path, recipe: Recipe) -> None:
    for path in recipe.files(source).values():
        if path is not None and not path.exists():
            raise InputError(f"There is no file {path}.")


def _original(data: Data, compare: "_Comparison") -> dict[str, Any]:
    assert data.schema is not None
    seen = _plain_frame(data.x.select([column.name for column in data.schema.released]))
    return {"budget": 0.0, "distortion": 0.0, "upper": 0.0, "met": True, **compare.scores(seen)}


def _plain_frame(table: pa.Table) -> pd.DataFrame:
    """A frame for models that take numbers and categories only: dates and times as numbers."""
    return pa.table({name: plain_column(table[name]) for name in table.column_names}).to_pandas()


@dataclass(frozen=True)
class _Comparison:
    """Fresh models for S (its joint value) and the targets, tested on rows that no encoder was fitted on.

    fitted: positions of the rows that encoders were fitted on. train, test: of those for training and testing models.
    """

    table: pa.Table
    secret: NDArray[np.str_]
    fitted: NDArray[np.int64]
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    targets: tuple[str, ...]

    @classmethod
    def of(
        cls, table: pa.Table, secret: NDArray[np.str_], fitted: NDArray[np.int64], new: NDArray[np.int64],
        targets: Sequence[str],
    ) -> "_Comparison":  # fmt: skip
        """Models learn from half of the new rows (in random order), or from the fitted rows if these are too few."""
        train, test = np.split(new, [len(new) // 2]) if len(new) >= FEWEST_NEW else (fitted, new)
        return cls(table, secret, fitted, np.sort(train), np.sort(test), tuple(targets))

    def scores(self, released: pd.DataFrame, more: Sequence[pd.DataFrame] = ()) -> dict[str, Any]:
        """Scores of models on released test rows. more: further draws of the training rows."""
        released, *more = map(_without_missing, (released, *more))
        train, test = pd.concat([released.iloc[self.train], *more]), released.iloc[self.test]
        draws = 1 + len(more)
        found = probe(train, np.tile(self.secret[self.train], draws), test, self.secret[self.test])
        new = not np.array_equal(self.train, self.fitted)
        familiar = found if not new else probe(
            released.iloc[self.fitted], self.secret[self.fitted], test, self.secret[self.test]
        )  # fmt: skip
        values = {"S accuracy": found.accuracy.value, "S majority": found.majority, "S AUC": _auc(found),
                  "S AUC from fitted rows": _auc(familiar), "learned from": NEW if new else FITTED}  # fmt: skip
        for name in self.targets:
            truth = self.table[name].to_pandas().astype(str).to_numpy()
            without = [column for column in test.columns if column != name]
            task = probe(train[without], np.tile(truth[self.train], draws), test[without], truth[self.test],
                         groups=self.secret[self.test])  # fmt: skip
            assert task.gap is not None
            values |= {f"{name} accuracy": task.accuracy.value, f"{name} ΔDemP": task.gap.value}
        return values


def _without_missing(frame: pd.DataFrame) -> pd.DataFrame:
    """Missing numbers as -1, for models that take none."""
    return frame.assign(**{name: frame[name].fillna(-1) for name in frame.select_dtypes("number")})


def _auc(found: Probe) -> float | None:
    return None if found.auc is None else found.auc.value


def plot_points(frame: pd.DataFrame, names: Sequence[str], targets: Sequence[str], path: Path) -> None:
    """Leakage of S against the budget and, for each target, its accuracy against the leakage."""
    from matplotlib.figure import Figure

    points = frame[frame["met"]]
    figure = Figure(figsize=(4.8 * (1 + bool(targets)), 4.0), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, 1 + bool(targets)))
    two = points["S AUC"].notna().all()
    leak, label = ("S AUC", "AUC of a fresh attacker") if two else ("S accuracy", "accuracy of a fresh attacker")
    panels[0].plot(points["budget"], points[leak], "o-")
    panels[0].axhline(0.5 if two else points["S majority"].iloc[0], color="grey", ls=":", label="guessing")
    panels[0].set(xlabel="budget (0: the original)", ylabel=f"{label} on {' & '.join(names)}")
    panels[0].legend(fontsize=8)
    for name in targets:
        panels[1].plot(points[leak], 100 * points[f"{name} accuracy"], "o-", label=name)
        for row in points.to_dict("records"):
            panels[1].annotate(f"{row['budget']:g}", (row[leak], 100 * row[f"{name} accuracy"]), fontsize=7,
                               textcoords="offset points", xytext=(4, 4))  # fmt: skip
        panels[1].set(xlabel=label, ylabel="accuracy of a fresh model (%)")
        panels[1].legend(fontsize=8)
    for axes in panels:
        axes.grid(alpha=0.3)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=130, format="png")
