"""Validation of the inputs of `audit`: errors list all problems at once and never contain data values."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import stats

from fairveil._utils.errors import InputError, rows_named
from fairveil.data.frames import Table, collected, is_copy, is_frame, missing_mask, read_columns, read_table
from fairveil.data.kinds import FEWEST_OF_A_GROUP, is_class

FEWEST_OF_A_PART = 2
FEWEST_ROWS = 200

#: Another release of the same rows; with an argument, of the rows at these positions.
Draw = Callable[..., Any]


def takes_rows(draw: Draw) -> bool:
    """Whether a further draw can be made of some rows only."""
    return bool(inspect.signature(draw).parameters)


@dataclass(frozen=True)
class Target:
    """A column to predict: S, or a downstream task.

    values: codes 0..K-1 (float64), or numbers. labels: the classes as text; empty for numbers. rows: positions of the
    rows in use (those with rare joint values are dropped).
    """

    name: str
    values: NDArray[np.float64]
    labels: tuple[str, ...]
    rows: NDArray[np.int64]

    @property
    def classes(self) -> int | None:
        """The number of classes, or None for numbers."""
        return len(self.labels) or None

    def take(self, rows: NDArray[np.int64]) -> "Target":
        """Only these rows of the table, in order."""
        return replace(self, values=self.values[rows], rows=np.arange(len(rows)))


@dataclass(frozen=True)
class ImageArray:
    """Released images: (rows, channels, height, width)."""

    array: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.array)

    @property
    def names(self) -> list[str]:
        """Images have no columns."""
        return []

    def select(self, names: Sequence[str]) -> Any:
        """Images have no columns."""
        raise InputError("Images have no columns.")

    def take(self, rows: NDArray[np.int64]) -> "ImageArray":
        """Only these rows."""
        return ImageArray(self.array[rows])

    def without(self, name: str) -> "ImageArray":
        """Images have no columns."""
        return self

    def equals(self, other: object) -> bool:
        """Whether another release holds the same images."""
        return isinstance(other, ImageArray) and np.array_equal(self.array, other.array)


Released = Table | ImageArray


def read_release(data: Any, what: str) -> Released:
    """Read a table of any kind, or images as an array (rows, height, width[, channels])."""
    data = collected(data)
    if is_frame(data):
        table = read_table(data)
        if not table.names:
            raise InputError(f"The {what} table has no columns.")
        infinite = [name for name in table.names if _infinite(table.arrow[name])]
        if infinite:
            raise InputError(f"The {what} table holds infinity in {', '.join(map(repr, infinite))}.")
        return table
    array = np.asarray(data)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
        raise InputError(
            f"The {what} array holds NaN or infinity ({rows_named(bad.tolist())}). Fill or drop those rows."
        )
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4:
        return ImageArray(np.ascontiguousarray(np.moveaxis(array, -1, 1), dtype=np.float32))
    return read_table(array[:, None] if array.ndim == 1 else array)


def read_targets(targets: Any, default: str) -> dict[str, pa.ChunkedArray]:
    """Columns by name, from a mapping, a frame, a series or an array."""
    if targets is None:
        return {}
    if isinstance(targets, Mapping):
        return {str(name): _only(read_columns(values, str(name))) for name, values in targets.items()}
    table = read_columns(targets, default)
    return {name: table[name] for name in table.column_names}


def read_clusters(clusters: Any, rows: int) -> NDArray[np.int64] | None:
    """The person of each row, as codes; None if not given. A row with a missing value is a separate person."""
    if clusters is None:
        return None
    column = _only(read_columns(clusters, "clusters"))
    if len(column) != rows:
        raise InputError(f"The release has {rows} rows, clusters {len(column)}.")
    coded = column.combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.float64)
    alone = np.isnan(coded)
    coded[alone] = np.nanmax(coded, initial=0.0) + 1.0 + np.arange(int(alone.sum()))
    return np.asarray(coded, dtype=np.int64)


def make_target(name: str, column: pa.ChunkedArray) -> Target:
    """A column as codes or numbers; raises if a numeric column has missing values."""
    values = column.to_numpy(zero_copy_only=False)
    gone = missing_mask(column)
    rows = np.arange(len(values))
    if not is_class(column):
        if gone.any():
            raise InputError(
                f"{name!r} has missing values ({rows_named(np.flatnonzero(gone).tolist())}). Drop those rows."
            )
        return Target(name, values.astype(np.float64), (), rows)
    text = np.where(
        gone, "(missing)", np.asarray(column.cast(pa.string()).to_numpy(zero_copy_only=False), dtype=object)
    )
    labels, codes = np.unique(text.astype(str), return_inverse=True)
    return Target(name, codes.astype(np.float64), tuple(labels.tolist()), rows)


def in_quarters(target: Target) -> Target:
    """A number as its quartile; classes are returned unchanged."""
    if target.classes is not None:
        return target
    edges = np.quantile(target.values, [0.25, 0.5, 0.75])
    labels = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
    return Target(
        f"{target.name} (quarters)", np.digitize(target.values, edges).astype(np.float64), labels, target.rows
    )


def distance_from_usual(target: Target) -> Target:
    """The rank of a number's distance from the median: it depends on the spread, not on the mean."""
    distance = np.abs(target.values - np.median(target.values))
    ranks = stats.rankdata(distance) / len(distance)
    return Target(f"{target.name} (distance from the median)", ranks, (), target.rows)


def joint_target(columns: list[Target]) -> Target | None:
    """The joint value of several columns (numbers as quartiles); combinations too rare to learn are dropped."""
    if len(columns) < 2 or all(column.classes is None for column in columns):
        return None
    targets = [replace(in_quarters(column), name=column.name) for column in columns]
    codes = np.stack([target.values.astype(np.int64) for target in targets], axis=1)
    combos, joint, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    joint = joint.reshape(-1)
    frequent = np.flatnonzero(counts >= FEWEST_OF_A_GROUP)
    if len(frequent) < 2:
        return None
    labels = tuple(" & ".join(t.labels[v] for t, v in zip(targets, combos[i], strict=True)) for i in frequent)
    number = np.full(len(combos), -1)
    number[frequent] = np.arange(len(frequent))
    new = number[joint]
    return Target(" & ".join(t.name for t in targets), np.maximum(new, 0).astype(np.float64), labels,
                  np.flatnonzero(new >= 0))  # fmt: skip


def check_all(
    released: Released,
    original: Released | None,
    secrets: dict[str, pa.ChunkedArray],
    targets: dict[str, pa.ChunkedArray],
) -> None:
    """Reject inputs that cannot be audited, with all problems in one error."""
    rows, problems = len(released), []
    if rows < FEWEST_ROWS:
        problems.append(f"The release has {rows} rows; an audit needs at least {FEWEST_ROWS}.")
    if not secrets:
        problems.append("There is no sensitive column.")
    for what, columns in (("sensitive", secrets), ("target", targets)):
        for name, column in columns.items():
            if len(column) != rows:
                problems.append(f"The release has {rows} rows, the {what} column {name!r} has {len(column)}.")
    if original is not None and len(original) != rows:
        problems.append(f"The release has {rows} rows, the original {len(original)}.")
    if not problems:
        for name, column in secrets.items():
            problems += _group_problems(name, column)
        for name, column in targets.items():
            problems += _target_problems(name, column)
        problems += _copies(released, secrets) + _new_missing(released, original)
    if problems:
        raise InputError(problems)


def _group_problems(name: str, column: pa.ChunkedArray) -> list[str]:
    try:
        target = make_target(name, column)
    except InputError as error:
        return [str(error)]
    if target.classes is None:
        return []
    if target.classes == 1:
        return [f"The sensitive column {name!r} holds one single value: there is nothing to find."]
    sizes = np.bincount(target.values.astype(np.int64))
    small = int((sizes < FEWEST_OF_A_GROUP).sum())
    if not small:
        return []
    return [
        f"The sensitive column {name!r} has {small} group(s) of fewer than {FEWEST_OF_A_GROUP} rows (the smallest has "
        f"{int(sizes.min())}). Nothing can be said of them: merge them with others, or leave their rows out."
    ]


def _target_problems(name: str, column: pa.ChunkedArray) -> list[str]:
    try:
        target = make_target(name, column)
    except InputError as error:
        return [str(error)]
    return [f"The target column {name!r} holds one single value: there is nothing to predict."] * (target.classes == 1)


def check_parts(target: Target, parts: dict[str, NDArray[np.int64]]) -> list[str]:
    """Problems with groups of S that are too small in the training, validation or test rows."""
    if target.classes is None:
        return []
    return [
        f"The {name} rows hold fewer than {FEWEST_OF_A_PART} rows of {int(few.sum())} group(s) of {target.name!r}: "
        "nothing can be learned or said of them. Use another split, or merge groups."
        for name, rows in parts.items()
        if (few := np.bincount(target.values[rows].astype(np.int64), minlength=target.classes) < FEWEST_OF_A_PART).any()
    ]


def _copies(released: Released, secrets: dict[str, pa.ChunkedArray]) -> list[str]:
    return [
        f"Column {name!r} of the release is the sensitive column {secret!r} itself, perhaps under other names for its "
        "values. Take it out of the release."
        for name in released.names for secret, column in secrets.items()
        if is_copy(released.select([name])[name], column)
    ]  # fmt: skip


def _new_missing(released: Released, original: Released | None) -> list[str]:
    return [
        f"Column {name!r} of the release has missing values where the original has none."
        for name in released.names
        if original is not None
        and name in original.names
        and missing_mask(released.select([name])[name]).any()
        and not missing_mask(original.select([name])[name]).any()
    ]


def _infinite(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_floating(column.type) and np.isinf(column.to_numpy(zero_copy_only=False)).any())


def _only(table: pa.Table) -> pa.ChunkedArray:
    if table.num_columns != 1:
        raise InputError(f"A target must be one column. Got {table.num_columns}.")
    return table[table.column_names[0]]
