"""The sensitive features S: one or several columns, hidden as a joint class or as numbers."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.errors import ClippedWarning, InputError, rows_named
from fairveil.data.columns import FEWEST, Category, Column, family_of
from fairveil.data.frames import missing_mask
from fairveil.data.infer import infer_column
from fairveil.data.kinds import FEWEST_OF_A_GROUP, MOST_CLASSES, is_class
from fairveil.data.schema import Schema
from fairveil.data.table_codec import Codec

_MOST_JOINT = 2**16
#: Number of ranges into which a number is cut if S is a class.
_RANGES = 8
#: The name of the group that holds merged small groups.
OTHERS = "(other)"


@dataclass(frozen=True)
class Sensitive:
    """The description of S.

    columns: the sensitive columns; for a discrete S, numbers are cut into ranges, the bins of their columns. joint: for
    a discrete S, the combinations of values that occur, as positions in each column's values; class k of S is the k-th
    of them. Empty for a continuous S. few: columns with values held by fewer than `FEWEST` rows.
    """

    columns: tuple[Column, ...]
    joint: tuple[tuple[int, ...], ...] = ()
    few: tuple[str, ...] = ()

    @property
    def discrete(self) -> bool:
        """Whether S is a class rather than a number."""
        return bool(self.joint)

    @property
    def width(self) -> int:
        """Width of S as an encoder input: one per joint class, or one per number (plus missing-value slots)."""
        return len(self.joint) if self.discrete else Schema(self.columns).layout.width

    @property
    def classes(self) -> tuple[int, ...]:
        """The number of values, or of ranges of a number, of each sensitive column."""
        return tuple(len(column.categories or column.starts) + column.missing for column in self.columns)

    def joint_values(self) -> list[tuple[Any, ...]]:
        """The values of each joint class, in order; for numbers, their ranges as text; None if missing."""
        values = [(*(column.categories or _ranges(column)), None) for column in self.columns]
        return [tuple(each[code] for each, code in zip(values, combo, strict=True)) for combo in self.joint]

    def names(self) -> tuple[str, ...]:
        """The joint classes as text, in order; none for a continuous S."""
        return tuple(" & ".join(map(str, values)) for values in self.joint_values())

    def merged(self, table: pa.Table) -> pa.Table:
        """S with its small groups merged into one."""
        return merge_groups(table, {column.name: column for column in self.columns})

    def codes(self, table: pa.Table) -> Tensor:
        """Positions of each row's values in each discrete column: (rows, columns)."""
        self._check(table)
        codec = Codec(Schema(self.columns))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClippedWarning)  # a number outside the ranges counts to the nearest one
            encoded = codec.encode(table.select([column.name for column in self.columns]))
        groups = codec.schema.layout.groups
        return torch.stack([encoded[:, group.start : group.stop].argmax(dim=1) for group in groups], dim=1)

    def classes_of(self, table: pa.Table) -> Tensor:
        """The joint class of each row: (rows,)."""
        weights = np.cumprod([1, *self.classes[:-1]])
        wanted, known = self.codes(table).numpy() @ weights, np.asarray(self.joint) @ weights
        order = np.argsort(known)
        found = order[np.searchsorted(known, wanted, sorter=order).clip(max=len(known) - 1)]
        strange = np.flatnonzero(known[found] != wanted)
        if len(strange):
            raise InputError(
                f"sensitive_features hold a combination of values not seen in fit ({rows_named(strange.tolist())})."
            )
        return torch.from_numpy(found)

    def labels(self, table: pa.Table) -> NDArray[np.str_]:
        """The joint class of each row as text, for models that predict classes; of a continuous S, quarters."""
        if self.discrete:
            return np.asarray(np.array(self.names(), dtype=np.str_)[self.classes_of(self.merged(table)).numpy()])
        values = table[self.columns[0].name].to_numpy(zero_copy_only=False).astype(np.float64)
        quarters = np.digitize(values, np.nanquantile(values, [0.25, 0.5, 0.75]))
        return np.asarray(np.where(np.isnan(values), "None", quarters.astype(np.str_)))

    def numbers(self, table: pa.Table) -> Tensor:
        """A continuous S, standardised: (rows, width), float32. If it can be missing, that is encoded as well."""
        self._check(table)
        return Codec(Schema(self.columns)).encode(table.select([column.name for column in self.columns]))

    def inputs(self, table: pa.Table) -> Tensor:
        """S as an encoder input: one-hot joint classes, or standardised numbers."""
        if not self.discrete:
            return self.numbers(table)
        return torch.nn.functional.one_hot(self.classes_of(table), len(self.joint)).to(torch.float32)

    def _check(self, table: pa.Table) -> None:
        absent = [column.name for column in self.columns if column.name not in table.column_names]
        if absent:
            raise InputError(f"sensitive_features lack the fitted columns {', '.join(map(repr, absent))}.")

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a manifest. That file is published and lists the values of S."""
        if self.few:
            raise InputError([_few_rows(name) for name in self.few])
        return {**Schema(self.columns).to_dict(), "joint": self.joint}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Sensitive":
        """Read what `to_dict` wrote; rejects invalid content, as the file may have been crafted."""
        found = cls(Schema.from_dict(values).columns, tuple(tuple(combo) for combo in values["joint"]))
        if not found.columns or len(found.joint) > _MOST_JOINT or len(set(found.joint)) < len(found.joint):
            raise ValueError("the description of S holds no columns, too many classes, or one of them twice")
        for combo in found.joint:
            fits = len(combo) == len(found.columns) and all(type(code) is int for code in combo)
            if not fits or not all(0 <= code < most for code, most in zip(combo, found.classes, strict=True)):
                raise ValueError("the description of S holds a class with invalid values")
        return found


def describe_sensitive(table: pa.Table, *, discrete: bool, given: Mapping[str, Column] | None = None) -> Sensitive:
    """Describe S as given to `fit`; reports all problems at once. given: columns whose groups the schema lists."""
    problems: list[str] = []
    columns: list[Column] = []
    table = merge_groups(table, given or {})
    if not table.num_columns:
        raise InputError("sensitive_features has no columns.")
    for name in table.column_names:
        column, found = _discrete(name, table[name]) if discrete else _continuous(name, table[name])
        merges = discrete and given is not None and name in given and given[name].rare
        columns.append(replace(column, rare=True, default=given[name].default) if merges and given else column)
        problems += found
    if problems:
        raise InputError(problems)
    if not discrete:
        return Sensitive(tuple(columns))
    plain = Sensitive(tuple(columns), ((0,) * len(columns),))
    combos = np.unique(plain.codes(table).numpy(), axis=0)
    if len(combos) < 2:
        raise InputError("sensitive_features hold a single value in all rows: there is nothing to hide.")
    joint = tuple(tuple(int(v) for v in combo) for combo in combos)
    return Sensitive(tuple(columns), joint, tuple(name for name in table.column_names if _has_few(table[name])))


def _discrete(name: str, values: pa.ChunkedArray) -> tuple[Column, list[str]]:
    missing = missing_mask(values)
    if missing.all():
        return Column(name, "categorical", categories=("",)), [f"The sensitive column {name!r} holds no values."]
    plain = Column(name, "categorical", categories=("",))
    if family_of(values.type) is None:
        return plain, [
            f"The sensitive column {name!r} has the type {values.type}, which is not a class. Convert it to text."
        ]
    counts = pc.value_counts(values.filter(pa.array(~missing)))
    distinct, sizes = counts.field("values").to_pylist(), counts.field("counts").to_numpy()
    floating = pa.types.is_floating(values.type)
    if floating and not all(math.isfinite(value) for value in distinct):
        return plain, [f"The sensitive column {name!r} holds infinity. Replace it with a number."]
    if not is_class(values):
        return _in_ranges(name, values)
    if len(distinct) > MOST_CLASSES:
        return plain, [f"The sensitive column {name!r} has {len(distinct)} distinct values. Group them into fewer."]
    family, usual = family_of(values.type) or "string", distinct[int(np.argmax(sizes))]
    return Column(name, "categorical", "encode", family, bool(missing.any()), tuple(sorted(distinct)), usual), []


def _in_ranges(name: str, values: pa.ChunkedArray) -> tuple[Column, list[str]]:
    """A number as at most `_RANGES` classes of about equal size that begin at round numbers."""
    column, problems = infer_column(name, values)
    if problems or column.kind == "categorical" or not column.starts:
        return column, problems
    numbers = values.filter(pa.array(~missing_mask(values))).to_numpy().astype(np.float64)
    starts = np.asarray(column.starts)
    below = np.searchsorted(np.sort(numbers), starts) / len(numbers)
    wanted = np.arange(1, _RANGES) / _RANGES
    chosen = {float(starts[np.abs(below - share).argmin()]) for share in wanted} - {column.starts[0]}
    return replace(column, starts=(column.starts[0], *sorted(chosen)), shares=()), []


def _ranges(column: Column) -> tuple[str, ...]:
    """The ranges of a number, as text; a range ends where the next one begins."""
    starts = [f"{start:g}" for start in column.starts]
    inner = [f"{low} to {high}" for low, high in pairwise(starts[1:])]
    return (f"below {starts[1]}", *inner, f"from {starts[-1]}") if len(starts) > 1 else ("any",)


def small_groups(values: pa.ChunkedArray) -> tuple[tuple[Category, ...], int, int]:
    """The values of a class that are large enough to audit; the number of other values, and of their rows."""
    counts = pc.value_counts(values.filter(pa.array(~missing_mask(values))))
    sizes = counts.field("counts").to_numpy()
    large = [value for value, size in zip(counts.field("values").to_pylist(), sizes, strict=True)
             if size >= FEWEST_OF_A_GROUP]  # fmt: skip
    return tuple(sorted(large)), len(sizes) - len(large), int(sizes[sizes < FEWEST_OF_A_GROUP].sum())


def merge_groups(table: pa.Table, columns: Mapping[str, Column]) -> pa.Table:
    """Replace values of S that a column does not list by its default, if the column is marked as having rare values."""
    merged = {}
    for name in table.column_names:
        column, values = columns.get(name), table[name]
        if column is not None and column.kind == "categorical" and column.rare and column.categories:
            known = pc.is_in(values, pa.array(column.categories).cast(values.type, safe=False))
            kept = pc.or_(known, pa.array(missing_mask(values)))
            values = pc.if_else(kept, values, pa.scalar(column.default).cast(values.type, safe=False))
        merged[name] = values
    return pa.table(merged)


def rare_values(table: pa.Table) -> list[str]:
    """Problems with values of S that so few rows hold that listing them in a file would identify these rows."""
    return [_few_rows(name) for name in table.column_names if _has_few(table[name])]


def _has_few(values: pa.ChunkedArray) -> bool:
    if not is_class(values):
        return False
    counts = pc.value_counts(values).field("counts").to_numpy()
    return len(counts) <= MOST_CLASSES and bool((counts < FEWEST).any())


def _few_rows(name: str) -> str:
    return (
        f"The sensitive column {name!r} has values held by fewer than {FEWEST} rows. A veil would list them and "
        "identify these rows: merge them with other values, or remove the rows."
    )


def _continuous(name: str, values: pa.ChunkedArray) -> tuple[Column, list[str]]:
    plain = Column(name, "continuous", family="number")
    missing = missing_mask(values)
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return plain, [f"loss='squared' needs numbers, but the sensitive column {name!r} holds {values.type}."]
    numbers = values.to_numpy().astype(np.float64)[~missing]
    if not len(numbers):
        return plain, [f"The sensitive column {name!r} holds no values."]
    if not np.isfinite(numbers).all():
        return plain, [f"The sensitive column {name!r} holds infinity. Replace it with a number."]
    if numbers.std() == 0 and not missing.any():
        return plain, [f"The sensitive column {name!r} holds a single value in all rows: there is nothing to hide."]
    return replace(plain, missing=bool(missing.any()), center=numbers.mean(), scale=numbers.std() or 1.0), []
