"""What an attacker can see of a release, as numbers.

- `values`: numbers, one-hot categories, and which cells are missing.
- `details`: where S hides when values look clean: decimal digits and last bits of numbers, shapes of texts, missing
  cells, row order (in the whole table and within each part of a split).
- `everything`: both. - `original`: the release beside the original rows and which of their values it kept; only for an
  attacker who holds the originals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil.data.frames import Table, missing_mask

Matrix = NDArray[np.float32]

#: One-hot slots for the most frequent categories of a column; all others share one.
_MOST_CATEGORIES = 100
#: Decimal places looked at, counted from the units, and low bits of a mantissa; fewer where there are many columns.
_LEVELS, _BITS = 16, 16
_MOST_DETAILS = 2000
#: Periods of the row order that are tried, and steps in it.
_PERIODS, _STEPS = range(2, 11), 8
#: Buckets for the pairs of letters of columns with many different texts.
_BUCKETS = 32
#: Share of texts that must read as numbers for a column to be one.
_NUMERIC = 0.95


@dataclass(frozen=True)
class FeatureMap:
    """How the columns of a release become numbers; the same for every draw of it.

    categories: for each text column its most frequent values. long: those with more values than are listed.
    numbers: for each numeric column (mean, deviation, levels of its digits that vary, low bits looked at).
    """

    categories: dict[str, pa.Array]
    long: tuple[str, ...]
    numbers: dict[str, tuple[float, float, tuple[int, ...], int]]
    missing: tuple[str, ...]

    @classmethod
    def of(cls, tables: Sequence[Table]) -> "FeatureMap":
        """From all draws of a release, without looking at S."""
        categories, long, numbers, missing = {}, [], {}, []
        columns = {
            name: pa.chunked_array([chunk for table in tables for chunk in table.arrow[name].chunks])
            for name in tables[0].names
        }
        numeric = {name: _as_number(column) for name, column in columns.items()}
        count = max(sum(found is not None for found in numeric.values()), 1)
        levels, bits = (min(most, max(2, _MOST_DETAILS // (3 * count))) for most in (_LEVELS, _BITS))
        for name, column in columns.items():
            gone = missing_mask(column)
            if gone.any():
                missing.append(name)
            values = numeric[name]
            if values is not None:
                present = values[np.isfinite(values)]
                spread = float(present.std()) if len(present) else 0.0
                center = float(present.mean()) if len(present) else 0.0
                whole = bool(np.all(present == np.round(present)))
                numbers[name] = (center, spread or 1.0, _varying_levels(present, levels), 0 if whole else bits)
                continue
            counts = pc.value_counts(_as_text(name, column).filter(pa.array(~gone)))
            order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")[:_MOST_CATEGORIES]
            categories[name] = counts.field("values").take(pa.array(order))
            if len(counts) > _MOST_CATEGORIES:
                long.append(name)
        return cls(categories, tuple(long), numbers, tuple(missing))

    def values(self, table: Table) -> Matrix:
        """Standardised numbers, one-hot categories, missing flags: (rows, features)."""
        parts: list[NDArray[np.generic]] = [
            _one_hot(_as_text(name, table.arrow[name]), known) for name, known in self.categories.items()
        ]
        for name, (center, spread, _, _) in self.numbers.items():
            parts.append(((_filled(table.arrow[name], center) - center) / spread)[:, None])
        return _stack([*parts, self.absent(table)], len(table))

    def absent(self, table: Table) -> Matrix:
        """Which cells are missing."""
        return _stack([missing_mask(table.arrow[name])[:, None] for name in self.missing], len(table))

    def details(self, table: Table) -> Matrix:
        """Digits, parities and last bits of numbers; shapes of texts; missing cells and their number."""
        parts: list[NDArray[np.generic]] = []
        for name, (center, _, levels, bits) in self.numbers.items():
            numbers = _filled(table.arrow[name], center)
            for level in levels:
                digit = _digit(numbers, level)
                parts += [digit[:, None] / 9.0, (digit % 2)[:, None]]
            if bits:
                parts += [_low_bits(numbers, table.arrow[name].type, bits), np.signbit(numbers)[:, None]]
        parts += [_text_shape(_as_text(name, table.arrow[name])) for name in self.long]
        absent = self.absent(table)
        return _stack([*parts, absent, absent.sum(axis=1, keepdims=True)], len(table))


def order_features(rows: int, parts: Sequence[NDArray[np.int64]]) -> Matrix:
    """The row order as an attacker sees it, in the whole table and within each part: place, steps and periods."""
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
    """One map for a release and its original, so that a model of one can be tested on the other."""
    first = released[0]
    same = first.names == original.names and all(
        (_as_number(first.arrow[name]) is None) == (_as_number(original.arrow[name]) is None) for name in first.names
    )
    if not same:
        raise InputError("test_on_original needs an original with the same columns, of the same types, as the release.")
    return FeatureMap.of([*released, original])


def kept_values(released: Table, original: Table) -> Matrix:
    """Which cells of a row are exactly as they were, and how many: (rows, columns + 1)."""
    shared = [name for name in released.names if name in original.names]
    flags = [_same(name, released.arrow[name], original.arrow[name])[:, None] for name in shared]
    matrix = _stack(flags, len(released))
    return np.hstack([matrix, matrix.mean(axis=1, keepdims=True)]) if shared else matrix


def with_disagreement(released: Any, people: NDArray[np.int64]) -> Any:
    """A table with, for each row, how many rows its person has and how many values they hold in each column."""
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
    x, y = _as_number(a), _as_number(b)
    if x is not None and y is not None:
        return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))
    equal = pc.equal(_as_text(name, a), _as_text(name, b)).fill_null(False).to_numpy()
    return np.asarray(equal | (missing_mask(a) & missing_mask(b)))


def _as_number(column: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """The column as numbers, NaN where missing; None where it is none. Dates, decimals, digits in text are numbers."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
    if pa.types.is_temporal(kind):
        whole = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
        return np.asarray(column.cast(whole).to_numpy(zero_copy_only=False), dtype=np.float64)
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return None
    texts = column.to_numpy(zero_copy_only=False)
    sample = [text for text in texts[:: max(1, len(texts) // 1000)] if text is not None]
    if not sample or np.mean([_reads_as_number(text) for text in sample]) < _NUMERIC:
        return None
    return np.array([float(text) if text is not None and _reads_as_number(text) else np.nan for text in texts])


def _reads_as_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _as_text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # `from None`: arrow's own message may show a value of the data.
        raise InputError(f"Column {name!r} has the type {column.type}, which no attacker reads. Convert it.") from None


def _filled(column: pa.ChunkedArray, value: float) -> NDArray[np.float64]:
    numbers = _as_number(column)
    assert numbers is not None
    return np.where(np.isnan(numbers), value, numbers)


def _low_bits(numbers: NDArray[np.float64], kind: pa.DataType, bits: int) -> NDArray[np.generic]:
    """The last bits of each number in the type in which it was released."""
    if pa.types.is_float32(kind):
        whole = numbers.astype(np.float32).view(np.int32).astype(np.int64)
    else:
        whole = numbers.view(np.int64)
    return (whole[:, None] >> np.arange(bits)[None, :]) & 1


def _text_shape(column: pa.ChunkedArray) -> Matrix:
    """Length, first and last letter, and which pairs of letters occur: for texts with too many values to list."""
    out = np.zeros((len(column), 3 + _BUCKETS), dtype=np.float32)
    for row, text in enumerate(column.fill_null("").to_numpy(zero_copy_only=False)):
        if text:
            out[row, :3] = len(text), ord(text[0]) % 256, ord(text[-1]) % 256
            for first, second in pairwise(text):
                out[row, 3 + (31 * ord(first) + ord(second)) % _BUCKETS] += 1.0
    return out


def _one_hot(column: pa.ChunkedArray, known: pa.Array) -> Matrix:
    found = pc.index_in(column, value_set=known)
    codes = found.fill_null(len(known)).to_numpy()
    # Neither known nor missing: a rare category. A missing cell has a flag of its own.
    out = np.zeros((len(codes), len(known) + 1), dtype=np.float32)
    out[np.arange(len(codes)), codes] = 1.0
    out[missing_mask(column), len(known)] = 0.0
    return out


def _digit(numbers: NDArray[np.float64], level: int) -> NDArray[np.float64]:
    """The digit at 10^-level; the little is for decimals that binary fractions miss by a hair."""
    return np.asarray(np.floor(np.abs(numbers) * 10.0**level + 1e-6) % 10)


def _varying_levels(numbers: NDArray[np.float64], most: int) -> tuple[int, ...]:
    """Decimal places at which the numbers differ, down to where a double has no digits left."""
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return ()
    smallest = 15 - int(np.ceil(np.log10(max(float(np.median(np.abs(finite))), 1.0)) or 0))
    levels = [level for level in range(min(_LEVELS, smallest + 1)) if np.ptp(_digit(finite, level)) > 0]
    return tuple(levels[-most:])


def _stack(parts: Sequence[NDArray[np.generic]], rows: int) -> Matrix:
    return np.hstack([np.zeros((rows, 0), dtype=np.float32), *(part.astype(np.float32) for part in parts)])
