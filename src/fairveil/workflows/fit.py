"""Veils from files: read (a sample of) the rows, learn, write; an interrupted fit resumes where it was."""

import secrets
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from fairveil._utils.atomic import refuse_overwriting, replacing, sha256_of
from fairveil._utils.errors import BudgetWarning, InputError
from fairveil.auditing import probe
from fairveil.data.columns import Family
from fairveil.data.images import image_names
from fairveil.data.kinds import joint_labels
from fairveil.data.schema import Schema
from fairveil.data.sensitive import rare_values
from fairveil.encoders import Architecture, make_architecture
from fairveil.estimators import FairEncoder, FairFrontier
from fairveil.training import Training
from fairveil.workflows.inspect import inspect_file, read_schema
from fairveil.workflows.labels import folder_digest, read_labelled
from fairveil.workflows.reading import TableFile, open_table
from fairveil.workflows.release.workspace import workspace
from fairveil.workflows.sampling import MOST_ROWS, sample_rows
from fairveil.workflows.writing import check_target

#: Of a frontier, the share of the rows on which its points are compared.
_JUDGED = 0.3


@dataclass(frozen=True)
class Recipe:
    """How a veil is learned from a file.

    sensitive: the columns to hide, beside those to which the schema gives that role. schema: as `fairveil inspect`
    writes it; proposed from the data if None. labels: for a folder of images, a table with the columns `file` and S.
    blind: the encoder does not see S. seed: of the training; drawn if None.
    """

    sensitive: tuple[str, ...] = ()
    schema: Path | None = None
    labels: Path | None = None
    architecture: str = "auto"
    cells: int | None = None
    blind: bool = False
    steps: int | None = None
    rows: int = MOST_ROWS
    seed: int | None = None
    resume: bool = False
    show_progress: bool = True

    def files(self, source: Path) -> dict[str, Path | None]:
        """What is read, by what it is called in messages."""
        return {"input": source, "schema": self.schema, "table of labels": self.labels}

    def plan(self, source: Path, more: dict[str, Any]) -> dict[str, Any]:
        """What must be the same for a later run to resume this one."""
        files = [path for path in self.files(source).values() if path is not None]
        return {
            "files": [[path.name, _content(path)] for path in files],
            "settings": [list(self.sensitive), self.architecture, self.cells, self.blind, self.steps, self.rows],
            "seed": self.seed,
            **more,
            "private": {"seed": secrets.randbits(31) if self.seed is None else self.seed},
        }


@dataclass(frozen=True)
class Data:
    """What an encoder is fitted on: a table that holds S, or images with S beside them."""

    x: Any
    secret: pa.Table | None
    schema: Schema | None
    rows: int


def fit_file(source: str | Path, target: str | Path, budget: float, recipe: Recipe) -> FairEncoder:
    """Learn a veil and write it. Nothing is written if the budget is not met."""
    source, target = Path(source), check_target(Path(target), (".veil",))
    _check_files(source, recipe)
    refuse_overwriting({"veil": target}, recipe.files(source))
    with workspace(target, recipe.plan(source, {"budget": budget}), resume=recipe.resume) as (folder, plan):
        seed = int(plan["private"]["seed"])
        data = read_data(source, recipe, seed)
        encoder = FairEncoder(budget, **settings(data, recipe, seed, folder / "checkpoint"))
        encoder.fit(data.x, sensitive_features=data.secret)
        encoder.save(target)
    return encoder


def fit_frontier(
    source: str | Path, folder: str | Path, budgets: Sequence[float], recipe: Recipe, targets: Sequence[str] = ()
) -> pd.DataFrame:
    """Learn veils for several budgets at once, and compare what fresh models find in their releases.

    Writes into `folder`: a veil for every budget that is met, `frontier.csv` and `frontier.png`. The encoders learn
    from 70 % of the rows; fresh LightGBM models learn from their releases, and are scored on those of the other rows.
    """
    source, folder = Path(source), Path(folder)
    _check_files(source, recipe)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Name a folder for the veils.")
    refuse_overwriting(
        {f"file {name}": folder / name for name in ("frontier.csv", "frontier.png")}, recipe.files(source)
    )
    if source.is_dir():
        raise InputError("A frontier of images is made in Python with FairFrontier; here, fit one budget at a time.")
    wanted = open_table(source).names
    absent = [name for name in targets if name not in wanted]
    if absent:
        raise InputError([f"{source.name} has no column {name!r} to be a target." for name in absent])
    plan = recipe.plan(source, {"budgets": list(budgets), "targets": list(targets)})
    with workspace(folder, plan, resume=recipe.resume) as (work, found):
        seed = int(found["private"]["seed"])
        data = read_data(source, recipe, seed, more=targets)
        assert data.schema is not None
        order = np.random.default_rng(seed).permutation(data.rows)
        judged, learned = np.sort(order[: int(_JUDGED * data.rows)]), np.sort(order[int(_JUDGED * data.rows) :])
        table = data.x.select([n for n in data.x.column_names if n in data.schema.names])
        frontier = FairFrontier(FairEncoder(**settings(data, recipe, seed, work / "checkpoint")), list(budgets))
        with warnings.catch_warnings():  # points that are not met are marked in the table
            warnings.simplefilter("ignore", BudgetWarning)
            frontier.fit(table.take(pa.array(learned)))
        names = [column.name for column in data.schema.columns if column.role == "sensitive"]
        points = [_original(data, names, learned, judged, targets)]
        veils = []
        for row in frontier.points_.to_dict("records"):
            point = {"budget": row["budget"], "distortion": row["distortion"], "upper": row["upper"], "met": row["met"]}
            if row["met"]:
                encoder = frontier.at(row["budget"])
                released = encoder.transform(table)
                point |= _compared(released.to_pandas(), data.x, names, learned, judged, targets)
                veils.append((f"{'-'.join(names)}-{row['budget']:g}.veil", encoder))
            points.append(point)
        frame = pd.DataFrame(points)
        folder.mkdir(parents=True, exist_ok=True)
        for name, encoder in veils:
            encoder.save(folder / name)
        with replacing(folder / "frontier.csv") as partial:
            frame.to_csv(partial, index=False)
        plot_points(frame, names, targets, folder / "frontier.png")
    return frame


def read_data(source: Path, recipe: Recipe, seed: int, more: Sequence[str] = ()) -> Data:
    """The rows to learn from, with the schema; stops where a column has no role."""
    if source.is_dir():
        labelled = read_labelled(source, recipe.labels, recipe.sensitive)
        return Data(labelled.images, labelled.secret, None, len(labelled.images))
    file = open_table(source)
    schema = schema_for(file, recipe, seed)
    used = [column.name for column in schema.columns if column.role not in ("drop",)]
    used += [name for name in more if name not in used]
    families: dict[str, Family] = {column.name: column.family for column in schema.columns}
    table, _ = sample_rows(file, used, families, recipe.rows, seed)
    rare = rare_values(table.select([column.name for column in schema.columns if column.role == "sensitive"]))
    if rare:
        raise InputError(rare)
    return Data(table, None, schema, table.num_rows)


def schema_for(file: TableFile, recipe: Recipe, seed: int) -> Schema:
    """The schema of a file with the sensitive columns marked; every column must have a role."""
    if recipe.schema is not None:
        schema = read_schema(recipe.schema)
        for name in recipe.sensitive:
            schema = schema.edit(name, role="sensitive")
    else:
        inspection = inspect_file(file, recipe.sensitive, seed=seed)
        undecided = [f"Column {f.column.name!r} has {note}" for f in inspection.found if f.column.role is None
                     for note in f.notes[-1:]]  # fmt: skip
        if undecided:
            advice = f"Run: fairveil inspect {file.path.name} -o schema.yaml, decide, and pass --schema schema.yaml."
            raise InputError([*undecided, advice])
        schema = inspection.schema()
    problems = [f"Column {name!r} of {file.path.name} has no role: it is not in the schema." for name in file.names
                if name not in schema.names]  # fmt: skip
    problems += [f"The schema has a column {column.name!r}, which {file.path.name} lacks." for column in schema.columns
                 if column.role != "drop" and column.name not in file.names]  # fmt: skip
    if not any(column.role == "sensitive" for column in schema.columns):
        problems.append("Nothing is to be hidden: name a column with --sensitive, or give one that role in the schema.")
    if problems:
        raise InputError(problems)
    # In the order of the file, as it will be released.
    return Schema(tuple(schema[name] for name in file.names), schema.dependencies)


def settings(data: Data, recipe: Recipe, seed: int, checkpoint: Path) -> dict[str, Any]:
    """What an estimator is made with."""
    return {
        "architecture": _architecture(recipe),
        "sees_sensitive": not recipe.blind,
        "schema": data.schema,
        "handle_unknown": "most_frequent",
        "training": Training(checkpoint=checkpoint)
        if recipe.steps is None
        else Training(steps=recipe.steps, checkpoint=checkpoint),
        "verbose": recipe.show_progress,
        "random_state": seed,
    }


def _architecture(recipe: Recipe) -> str | Architecture:
    """By name, with the size of its codebook if one is given."""
    if recipe.cells is None:
        return recipe.architecture
    architecture = make_architecture(recipe.architecture)
    if architecture is None or not hasattr(architecture, "n_cells"):
        raise InputError("--cells is for architectures with a codebook, such as --architecture matrix or partition.")
    return replace(architecture, n_cells=recipe.cells)  # type: ignore[type-var]


def _content(path: Path) -> str:
    return folder_digest(path, image_names(path)) if path.is_dir() else sha256_of(path)


def _check_files(source: Path, recipe: Recipe) -> None:
    for path in recipe.files(source).values():
        if path is not None and not path.exists():
            raise InputError(f"There is no file {path}.")


def _original(
    data: Data, names: Sequence[str], learned: np.ndarray, judged: np.ndarray, targets: Sequence[str]
) -> dict[str, Any]:
    assert data.schema is not None
    seen = data.x.select([column.name for column in data.schema.released]).to_pandas()
    return {"budget": 0.0, "distortion": 0.0, "upper": 0.0, "met": True,
            **_compared(seen, data.x, names, learned, judged, targets)}  # fmt: skip


def _compared(
    released: pd.DataFrame,
    table: pa.Table,
    names: Sequence[str],
    learned: np.ndarray,
    judged: np.ndarray,
    targets: Sequence[str],
) -> dict[str, Any]:
    """What fresh models find of S (its joint value) and of the targets, on rows the encoder was not fitted on."""
    secret = joint_labels(table.select(list(names)))
    truth = table.select(list(targets)).to_pandas().astype(str)
    numbers = released.select_dtypes("number").columns
    released = released.assign(**{name: released[name].fillna(-1) for name in numbers})
    train, test = released.iloc[learned], released.iloc[judged]
    found = probe(train, secret[learned], test, secret[judged])
    values = {"S accuracy": found.accuracy.value, "S majority": found.majority,
              "S AUC": None if found.auc is None else found.auc.value}  # fmt: skip
    for name in targets:
        of_task = truth[name].to_numpy()
        without = [column for column in released.columns if column != name]
        task = probe(train[without], of_task[learned], test[without], of_task[judged], groups=secret[judged])
        assert task.gap is not None
        values |= {f"{name} accuracy": task.accuracy.value, f"{name} ΔDemP": task.gap.value}
    return values


def plot_points(frame: pd.DataFrame, names: Sequence[str], targets: Sequence[str], path: Path) -> None:
    """What is left of S against the budget and, for each target, its accuracy against that."""
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
