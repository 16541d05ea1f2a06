"""Veils from files: read (a sample of) the rows, train, write; an interrupted fit can be resumed."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import clone

from fairveil._utils.atomic import refuse_overwriting
from fairveil._utils.engine import HERE, Engine
from fairveil._utils.errors import BudgetWarning, CollapseWarning, InputError, VeilFileError
from fairveil._utils.progress import whole_job
from fairveil.data.rows import Rows
from fairveil.data.sensitive import describe_sensitive
from fairveil.estimators import FairEncoder, FairFrontier
from fairveil.training import Outcome, Problem, Training, play_together
from fairveil.workflows.engines import check_engine, started
from fairveil.workflows.points import FRONTIER_FILES, SCORING, Frontier, Judge, veil_name
from fairveil.workflows.protocol import Data
from fairveil.workflows.recipe import Recipe
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.workspace import workspace
from fairveil.workflows.sources import open_source
from fairveil.workflows.writing import check_target


def fit_file(
    source: str | Path, target: str | Path, budget: float | None, recipe: Recipe, *, engine: str = "local",
    address: str | None = None, processes: int = 1,
) -> FairEncoder:  # fmt: skip
    """Train a veil and write it. Nothing is written if the budget or the certificate is not met.

    engine, address: where; processes: how many of a cluster share each step of the training. The rows are read here.
    """
    target = check_target(Path(target), (".veil",))
    _check_files(source, recipe)
    check_engine(engine)
    if processes > 1 and (engine == "local" or recipe.certified is not None):
        raise InputError("--processes is for --engine ray, and for veils without --certified.")
    refuse_overwriting({"veil": target}, recipe.files(source))
    with workspace(target, recipe.plan(source, {"budget": budget}), resume=recipe.resume) as (folder, plan):
        seed = int(plan["private"]["seed"])
        data = open_source(source, recipe.labels).data(recipe, seed, more=recipe.targets)
        encoder = FairEncoder(budget, **recipe.settings(data.schema, seed, folder / "checkpoint", recipe.held_out))
        with _resuming(source), whole_job({"Training": None}), started(engine, address) as chosen:
            rows = _described(data), _truth(data, recipe)
            if chosen is HERE:
                encoder.fit(*rows, sensitive_features=data.secret)
            else:
                _fit_in_group(encoder, *rows, data.secret, chosen, processes)
        encoder.save(target)
        _record_fit(source, recipe, encoder, target, data.places[encoder.fitted_rows_], data.total)
    return encoder


def _fit_in_group(
    encoder: FairEncoder, x: Any, y: pa.Table | None, secret: Any, engine: Engine, processes: int
) -> None:
    """Fit with the game played on a cluster, by one process or several; without checkpoints."""

    def player(problem: Problem, train: Rows, validation: Rows, **settings: Any) -> Outcome:
        settings["show_progress"] = False
        outcome = engine.group(play_together, (problem, train, validation, settings), processes)[0]
        assert outcome is not None  # the first process has it
        return outcome

    encoder.set_params(training=_without_checkpoint(encoder))
    encoder._player = player
    try:
        encoder.fit(x, y, sensitive_features=secret)
    finally:
        del encoder._player


def _without_checkpoint(encoder: FairEncoder) -> Training:
    return replace(encoder.training or Training(), checkpoint=None)


def _record_fit(
    source: str | Path, recipe: Recipe, encoder: FairEncoder, veil: Path, fitted: NDArray[np.int64], total: int
) -> None:
    """Record in the veil's ledger which rows of the source the encoder was fitted on (their positions)."""
    rows = np.zeros(total, dtype=bool)
    rows[fitted] = True
    ledger = Ledger.of(veil)
    ledger.prepare()
    ledger.record_fit(open_source(source, recipe.labels).seen_by(encoder, veil, rows, ledger.key))


def fit_frontier(
    source: str | Path, folder: str | Path, budgets: Sequence[float], recipe: Recipe, targets: Sequence[str] = (), *,
    engine: str = "local", address: str | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Train veils for several budgets at once, compare fresh models on their releases, and recommend a budget.

    Writes into `folder`: a veil for every budget that is met, and the points as `frontier.csv`, `frontier.json`,
    `frontier.png` and `frontier.html`. The encoders are trained on 70 % of the rows. Fresh models are trained on
    releases of half of the other rows (several draws of each) and scored on releases of the other half. "S AUC from
    fitted rows" is of a model that learns from released rows the encoder was fitted on instead: it may find too little.
    Where there are too few rows, all models learn from those, and "learned from" says so. The rule of the
    recommendation: `workflows.points.recommend`. On a cluster, every budget is trained in a task, and scored in one.
    """
    check_engine(engine)
    folder = Path(folder)
    _check_files(source, recipe)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Name a folder for the veils.")
    refuse_overwriting({f"file {name}": folder / name for name in FRONTIER_FILES}, recipe.files(source))
    plan = recipe.plan(source, {"budgets": list(budgets), "targets": list(targets)})
    with workspace(folder, plan, resume=recipe.resume) as (work, found), whole_job({"Training": None}) as job:
        seed = int(found["private"]["seed"])
        data = open_source(source, recipe.labels).data(recipe, seed, more=targets)
        if data.schema is None:
            raise InputError("A frontier for images needs FairFrontier in Python; fit one budget at a time here.")
        order = np.random.default_rng(seed).permutation(data.rows)
        judged, learned = np.split(order, [int(recipe.held_out * data.rows)])
        learned = np.sort(learned)
        hidden = {column.name: column for column in data.schema.columns if column.role == "sensitive"}
        names = list(hidden)
        table = _described(data)
        known = _truth(data, replace(recipe, targets=tuple(targets)))
        columns = data.x.select(names)
        secret = describe_sensitive(columns, discrete=recipe.loss != "squared", given=hidden).labels(columns)
        judge = Judge.of(data.x, secret, learned, judged, targets, show_progress=recipe.show_progress)
        # Before the training: a target that cannot be predicted is refused at once, and scoring is timed.
        original = judge.original(data.schema)
        job.expect(SCORING, judge.expected(len(budgets)))
        encoder = FairEncoder(**recipe.settings(data.schema, seed, work / "checkpoint"))
        some = pa.array(learned)
        with started(engine, address) as chosen:
            with warnings.catch_warnings():  # unmet points are marked in the table
                warnings.simplefilter("ignore", BudgetWarning)
                warnings.simplefilter("ignore", CollapseWarning)
                with _resuming(source):
                    rows = table.take(some), None if known is None else known.take(some)
                    frontier = _fitted(encoder, budgets, *rows, chosen)
            points = [original, *judge.releases(frontier, table, seed, chosen)]
        result = Frontier.of(Path(source).name, names, targets, points)
        folder.mkdir(parents=True, exist_ok=True)
        for point, encoder in zip(frontier.points_.to_dict("records"), frontier.estimators_, strict=True):
            if point["met"]:
                path = folder / veil_name(names, point["budget"])
                encoder.save(path)
                fitted = data.places[learned[encoder.fitted_rows_]]
                _record_fit(source, recipe, encoder, path, fitted, data.total)
        result.write(folder)
    return result.frame()


def _fitted(
    encoder: FairEncoder, budgets: Sequence[float], table: pa.Table, known: pa.Table | None, engine: Engine
) -> FairFrontier:
    """All budgets in one game; on a cluster, each in a game of its own, without checkpoints."""
    if engine is HERE:
        return FairFrontier(encoder, list(budgets)).fit(table, known)
    alone = clone(encoder).set_params(training=_without_checkpoint(encoder), unmet="warn", verbose=False)
    parts = engine.map(_fit_one, [(alone, budget, table, known) for budget in budgets])
    for single in (single for part in parts for single in part.estimators_):
        single.set_params(unmet=encoder.unmet, verbose=encoder.verbose)
    return FairFrontier.of(encoder, parts)


def _fit_one(encoder: FairEncoder, budget: float, table: pa.Table, known: pa.Table | None) -> FairFrontier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BudgetWarning)
        warnings.simplefilter("ignore", CollapseWarning)
        return FairFrontier(encoder, [budget]).fit(table, known)


def _described(data: Data) -> Any:
    """The columns of the schema: a target may be none of them."""
    if data.schema is None:
        return data.x
    return data.x.select([name for name in data.x.column_names if name in data.schema.names])


def _truth(data: Data, recipe: Recipe) -> pa.Table | None:
    if data.schema is None and recipe.targets:
        raise InputError("--target is for tables: images have no columns.")
    return None if data.schema is None else recipe.truth(data.x)


@contextmanager
def _resuming(source: str | Path) -> Iterator[None]:
    """Translate the error for a checkpoint of other rows."""
    try:
        yield
    except VeilFileError:
        raise InputError(
            f"The interrupted work was done with other settings or another input than {Path(source).name}. Omit "
            "--resume to start again."
        ) from None


def _check_files(source: str | Path, recipe: Recipe) -> None:
    for path in recipe.files(source).values():
        if path is not None and not path.exists():
            raise InputError(f"There is no file {path}.")
