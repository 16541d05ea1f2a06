"""Views of a release as numeric matrices, the inputs of attackers.

- `values`: numbers, one-hot categories, and which cells are missing.
- `details`: fine structure: digits, low bits, waves and bins of numbers, calendar fields, text features, frequencies of
  values and rows, equal columns, equal adjacent rows, missing cells, row order (see `details`).
- `everything`: both.
- `codes`: every column as a few classes, for attackers that use combinations of columns.
- `components`: principal components of images and of tables of many numbers (see `protocol`).
- `original`: the release with the original rows and flags for unchanged values; only for an attacker who holds the
  originals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil.auditing.details import (
    NumberDetails,
    calendar_codes,
    moments_of,
)
from fairveil.auditing.relations import (
    equal_columns,
    neighbours,
    occurrences,
    places,
    ranks_within,
    remainders,
    repeats,
    row_summary,
    steps,
    totals,
)
from fairveil.auditing.texts import text_form, text_shape
from fairveil.data.frames import Table, missing_mask

Matrix = NDArray[np.float32]

#: Maximum number of one-hot slots for the most frequent categories of a column; all others share one slot.
_MOST_CATEGORIES = 100
#: Maximum number of classes of a column in the view `codes`; quantile bins for numbers with more values. Columns of
#: more values, up to a number and of several rows each on average, are also coded by all of them.
_MOST_CODES, _CODED_BINS = 64, 8
_MOST_LEVELS, _ROWS_OF_A_LEVEL = 4096, 3
#: Periods of the row position, and number of steps over it.
_PERIODS, _STEPS = range(2, 11), 8
#: Signs that occur in fewer rows are not separate classes.
_RARE = 0.02
#: A text column is numeric if at least this share of its values parse as numbers.
_NUMERIC = 0.95


@dataclass(frozen=True)
class FeatureMap:
    """How the columns of a release become numbers; the same for every draw of it.

    categories: the most frequent values of each text column. long: text columns with more values than that.
    numbers: the features of each numeric column. values_of: the values of numeric columns with few distinct ones.
    missing: columns with missing cells. levels: all values of columns with many that occur several times.
    """

    categories: dict[str, pa.Array]
    long: tuple[str, ...]
    numbers: dict[str, NumberDetails]
    values_of: dict[str, NDArray[np.float64]]
    missing: tuple[str, ...]
    levels: dict[str, pa.Array | NDArray[np.float64]]

    @classmethod
    def of(cls, tables: Sequence[Table]) -> "FeatureMap":
        """Build from all draws of a release, without using S."""
        categories, long, numbers, missing = {}, [], {}, []
        values_of: dict[str, NDArray[np.float64]] = {}
        levels: dict[str, pa.Array | NDArray[np.float64]] = {}
        columns = {
            name: pa.chunked_array([chunk for table in tables for chunk in table.arrow[name].chunks])
            for name in tables[0].names
        }
        read = {name: _as_number(column, tables[0].types.get(name)) for name, column in columns.items()}
        count = max(sum(found is not None for found in read.values()), 1)
        for name, column in columns.items():
            gone = missing_mask(column)
            if gone.any():
                missing.append(name)
            found = read[name]
            if found is not None:
                numbers[name] = NumberDetails.of(found.values, count, found.kind)
                distinct = np.unique(found.values[np.isfinite(found.values)])
                if len(distinct) <= _MOST_CODES:
                    values_of[name] = distinct
                elif _repeat(len(distinct), len(column)):
                    levels[name] = distinct
                continue
            counts = pc.value_counts(_as_text(name, column).filter(pa.array(~gone)))
            order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")[:_MOST_CATEGORIES]
            categories[name] = counts.field("values").take(pa.array(order))
            if len(counts) > _MOST_CATEGORIES:
                long.append(name)
            if len(counts) > _MOST_CODES - 2 and _repeat(len(counts), len(column)):
                levels[name] = counts.field("values")
        return cls(categories, tuple(long), numbers, values_of, tuple(missing), levels)

    def values(self, table: Table) -> Matrix:
        """Standardised numbers, one-hot categories, missing flags: (rows, features)."""
        parts = [_one_hot(_as_text(name, table.arrow[name]), known) for name, known in self.categories.items()]
        return _stack([*parts, self.scaled(table), self.absent(table)], len(table))

    def scaled(self, table: Table) -> Matrix:
        """Standardised numbers only: (rows, numeric columns)."""
        columns = [
            ((self._filled(table, name) - how.center) / how.spread)[:, None] for name, how in self.numbers.items()
        ]
        return _stack(columns, len(table))

    def absent(self, table: Table) -> Matrix:
        """Which cells are missing."""
        return _stack([missing_mask(table.arrow[name])[:, None] for name in self.missing], len(table))

    def details(self, table: Table) -> Matrix:
        """Fine structure of every column, of pairs of columns, and of each row relative to the others."""
        filled = {name: self._filled(table, name) for name in self.numbers}
        parts: list[NDArray[np.generic]] = []
        for name, how in self.numbers.items():
            parts += how.features(filled[name], table.arrow[name].type)
            if name in self.values_of:  # numbers that may be category codes
                parts.append(filled[name][:, None] == self.values_of[name][None, :])
        texts = {name: _as_text(name, table.arrow[name]) for name in self.categories}
        parts += [text_shape(texts[name]) for name in self.long]
        # Numbers written in text: the same number can be written in several ways.
        written = [table.arrow[name] for name in self.numbers if pa.types.is_string(table.arrow[name].type)]
        parts += [text_form(column) for column in written] + steps(filled)
        codes, rows = {name: _coded(table.arrow[name]) for name in table.names}, len(table)
        ticks = {name: how.ticks for name, how in self.numbers.items() if how.ticks is not None}
        parts += equal_columns(filled, texts, ticks) + remainders(filled) + totals(filled)
        parts += occurrences(codes, rows) + places(codes) + ranks_within(codes, filled)
        parts += neighbours(codes, rows) + repeats(codes) + row_summary(codes, filled, rows)
        absent = self.absent(table)
        gone = absent.sum(axis=1, keepdims=True)
        return _stack([*parts, absent, gone, gone % 2], rows)

    def codes(self, table: Table) -> Matrix:
        """Every column as a few classes, the most frequent first; for timestamps, also hour, weekday, day and month;
        for integers, also whether they are odd; for numbers of many values, also whether they exceed the median and 0.
        Columns of more values that repeat are also there with a class for each value.
        """
        columns = []
        for name, known in self.categories.items():
            texts = _as_text(name, table.arrow[name])
            for values in (known[: _MOST_CODES - 2], *([self.levels[name]] if name in self.levels else [])):
                columns.append(
                    pc.fill_null(pc.index_in(texts, value_set=values), len(values)).to_numpy(zero_copy_only=False)
                )
        for name, how in self.numbers.items():
            numbers = self._filled(table, name)
            values = self.values_of.get(name)
            if values is not None:
                columns.append(np.searchsorted(values, numbers).clip(max=len(values) - 1))
            elif how.edges:
                edges = np.asarray(how.edges)
                chosen = edges[np.linspace(0, len(edges) - 1, min(_CODED_BINS - 1, len(edges))).round().astype(int)]
                columns.append(np.digitize(numbers, np.unique(chosen)))
                columns.append(numbers > edges[len(edges) // 2])
                below = float(np.mean(numbers < 0))
                columns += [numbers < 0] if min(below, 1.0 - below) > _RARE else []
                columns += [numbers % 2 == 1] if how.divisors else []
            if name in self.levels:
                columns.append(np.searchsorted(self.levels[name], numbers).clip(max=len(self.levels[name]) - 1))
            if how.ticks is not None:
                moments = numbers * how.ticks
                columns += calendar_codes(moments)
        columns += [missing_mask(table.arrow[name]) for name in self.missing]
        return _stack([column[:, None] for column in columns], len(table))

    def _filled(self, table: Table, name: str) -> NDArray[np.float64]:
        found = _as_number(table.arrow[name], table.types.get(name), sure=True)
        assert found is not None
        return np.where(np.isnan(found.values), self.numbers[name].center, found.values)


def _repeat(distinct: int, rows: int) -> bool:
    """Whether the values of a column are few enough, and frequent enough, to be classes."""
    return distinct <= _MOST_LEVELS and rows >= _ROWS_OF_A_LEVEL * distinct


def order_features(rows: int, parts: Sequence[NDArray[np.int64]]) -> Matrix:
    """Features of the row order, in the whole table and within each part: position, steps and periods."""
    within = np.zeros(rows)
    share = np.zeros(rows)
    for part in parts:
        within[part] = np.arange(len(part))
        share[part] = np.arange(len(part)) / max(len(part), 1)
    everywhere = np.arange(rows)
    columns: list[NDArray[np.generic]] = []
    for place, position in ((everywhere / max(rows, 1), everywhere), (share, within)):
        columns.append(place)
        columns += [place >= step / _STEPS for step in range(1, _STEPS)]
        columns += [position % period / period for period in _PERIODS]
    return np.stack(columns, axis=1).astype(np.float32)


def shared_features(released: Sequence[Table], original: Table) -> FeatureMap:
    """A common map for a release and its original, so that a model of one can be tested on the other."""
    first = released[0]
    same = first.names == original.names and all(
        (_as_number(first.arrow[name]) is None) == (_as_number(original.arrow[name]) is None) for name in first.names
    )
    if not same:
        raise InputError("test_on_original needs an original with the same columns, of the same types, as the release.")
    return FeatureMap.of([*released, original])


def kept_values(released: Table, original: Table) -> Matrix:
    """Which cells of a row are unchanged, and their share: (rows, columns + 1)."""
    shared = [name for name in released.names if name in original.names]
    flags = [_same(name, released.arrow[name], original.arrow[name])[:, None] for name in shared]
    matrix = _stack(flags, len(released))
    return np.hstack([matrix, matrix.mean(axis=1, keepdims=True)]) if shared else matrix


def with_disagreement(released: Any, people: NDArray[np.int64]) -> Any:
    """Add, for each row, the number of rows of its person and their number of distinct values per column."""
    if not isinstance(released, Table):
        raise InputError("clusters= is for tables.")
    frame = pd.DataFrame({"person": people})
    found = {"rows of the person": frame.groupby("person")["person"].transform("size")}
    for name in released.names:
        codes = released.arrow[name].combine_chunks().dictionary_encode().indices
        frame["value"] = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False)
        found[f"values of {name} of the person"] = frame.groupby("person")["value"].transform("nunique")
    table = released.arrow
    for name, values in found.items():
        table = table.append_column(name if name not in table.column_names else f"{name}*", pa.array(values.to_numpy()))
    return replace(released, arrow=table)


def _same(name: str, a: pa.ChunkedArray, b: pa.ChunkedArray) -> NDArray[np.bool_]:
    one, other = _as_number(a), _as_number(b)
    if one is not None and other is not None:
        x, y = one.values, other.values
        return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))
    equal = pc.equal(_as_text(name, a), _as_text(name, b)).fill_null(False).to_numpy()
    return np.asarray(equal | (missing_mask(a) & missing_mask(b)))


@dataclass(frozen=True)
class _Numbers:
    """A column as numbers, NaN where missing. kind: the type that they represent, if not numbers."""

    values: NDArray[np.float64]
    kind: pa.DataType | None


def _as_number(column: pa.ChunkedArray, kind: pa.DataType | None = None, *, sure: bool = False) -> _Numbers | None:
    """The column as numbers; None if it is not numeric. Dates and numbers stored as text count as numeric.

    kind: the type that its numbers represent. sure: the column is known to be numeric; skip the check.
    """
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _Numbers(np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64), kind)
    if not pa.types.is_string(column.type):
        return None
    moments = moments_of(column)
    if moments is not None:
        return _Numbers(*moments)
    texts = column.to_numpy(zero_copy_only=False)
    sample = [text for text in texts[:: max(1, len(texts) // 1000)] if text is not None]
    if not sure and (not sample or np.mean([_reads_as_number(text) for text in sample]) < _NUMERIC):
        return None
    read = [float(text) if text is not None and _reads_as_number(text) else np.nan for text in texts]
    return _Numbers(np.array(read), None)


def _coded(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """An integer code for each value of a column, 0 for missing."""
    codes = column.combine_chunks().dictionary_encode().indices
    return np.asarray(pc.fill_null(codes, -1).to_numpy(zero_copy_only=False), dtype=np.int64) + 1


def _reads_as_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # `from None`: arrow's own message may contain a data value.
        raise InputError(f"Column {name!r} has the type {column.type}, which no attacker reads. Convert it.") from None


def _one_hot(column: pa.ChunkedArray, known: pa.Array) -> Matrix:
    found = pc.index_in(column, value_set=known)
    codes = found.fill_null(len(known)).to_numpy()
    # The last slot is for rare categories. Missing cells have a separate flag.
    out = np.zeros((len(codes), len(known) + 1), dtype=np.float32)
    out[np.arange(len(codes)), codes] = 1.0
    out[missing_mask(column), len(known)] = 0.0
    return out


def _stack(parts: Sequence[NDArray[np.generic]], rows: int) -> Matrix:
    return np.hstack([np.zeros((rows, 0), dtype=np.float32), *(part.astype(np.float32) for part in parts)])
