"""What an attacker can see of a release, as numbers.

- `values`: numbers, one-hot categories, and which cells are missing.
- `details`: where S hides when values look clean: decimal digits and last bits of numbers, missingness, row order.
- `everything`: both. - `original`: the release beside the original rows and which of their values it kept; only for an
  attacker who holds the originals, so it is compared with what those tell alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil.tables import Table, missing_mask

Matrix = NDArray[np.float32]

#: One-hot slots for the most frequent categories of a column; all others share one.
_MOST_CATEGORIES = 100
#: Decimal places looked at, counted from the units; fewer where a table has many columns.
_LEVELS = 9
_MOST_DIGITS = 2000
#: The last bits of a number's mantissa.
_BITS = 4
#: Periods of the row order that are tried.
_PERIODS = range(2, 11)


@dataclass(frozen=True)
class FeatureMap:
    """How the columns of a release become numbers; the same for every draw of it.

    categories: for each text column its most frequent values. numbers: for each numeric column (mean, deviation,
    levels of its digits that vary).
    """

    categories: dict[str, pa.Array]
    numbers: dict[str, tuple[float, float, tuple[int, ...]]]
    missing: tuple[str, ...]

    @classmethod
    def of(cls, tables: Sequence[Table]) -> "FeatureMap":
        """From all draws of a release, without looking at S."""
        categories, numbers, missing = {}, {}, []
        names = tables[0].names
        numeric = [name for name in names if _is_number(tables[0].arrow[name])]
        levels = min(_LEVELS, max(2, _MOST_DIGITS // max(2 * len(numeric), 1)))
        for name in names:
            column = pa.chunked_array([chunk for table in tables for chunk in table.arrow[name].chunks])
            gone = missing_mask(column)
            if gone.any():
                missing.append(name)
            if name in numeric:
                present = column.to_numpy(zero_copy_only=False).astype(np.float64)[~gone]
                spread = float(present.std()) if len(present) else 0.0
                center = float(present.mean()) if len(present) else 0.0
                numbers[name] = (center, spread or 1.0, _varying_levels(present, levels))
            else:
                counts = pc.value_counts(_as_text(column).filter(pa.array(~gone)))
                order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")[:_MOST_CATEGORIES]
                categories[name] = counts.field("values").take(pa.array(order))
        return cls(categories, numbers, tuple(missing))

    def values(self, table: Table) -> Matrix:
        """Standardised numbers, one-hot categories, missing flags: (rows, features)."""
        parts: list[NDArray[np.generic]] = [
            _one_hot(table.arrow[name], known) for name, known in self.categories.items()
        ]
        for name, (center, spread, _) in self.numbers.items():
            parts.append(((_filled(table.arrow[name], center) - center) / spread)[:, None])
        return _stack([*parts, self.absent(table)], len(table))

    def absent(self, table: Table) -> Matrix:
        """Which cells are missing."""
        return _stack([missing_mask(table.arrow[name])[:, None] for name in self.missing], len(table))

    def details(self, table: Table, position: NDArray[np.int64]) -> Matrix:
        """Digits, parities and last bits of numbers; missing cells and their number; the row order."""
        parts: list[NDArray[np.generic]] = []
        for name, (center, _, levels) in self.numbers.items():
            numbers = _filled(table.arrow[name], center)
            for level in levels:
                digit = _digit(numbers, level)
                parts += [digit[:, None] / 9.0, (digit % 2)[:, None]]
            if levels and levels[-1] > 0:
                bits = numbers.view(np.int64)[:, None] >> np.arange(_BITS)[None, :]
                parts.append(bits & 1)
        absent = self.absent(table)
        order = np.stack([position % period / period for period in _PERIODS], axis=1)
        last = max(int(position.max(initial=0)), 1)
        return _stack([*parts, absent, absent.sum(axis=1, keepdims=True), position[:, None] / last, order], len(table))


def shared_features(released: Sequence[Table], original: Table) -> FeatureMap | None:
    """One map for a release and its original, where they have the same columns of the same sorts."""
    first = released[0]
    same = first.names == original.names and all(
        _is_number(first.arrow[name]) == _is_number(original.arrow[name]) for name in first.names
    )
    return FeatureMap.of([*released, original]) if same else None


def kept_values(released: Table, original: Table) -> Matrix:
    """Which cells of a row are exactly as they were, and how many: (rows, columns + 1)."""
    shared = [name for name in released.names if name in original.names]
    flags = [_same(released.arrow[name], original.arrow[name])[:, None] for name in shared]
    matrix = _stack(flags, len(released))
    return np.hstack([matrix, matrix.mean(axis=1, keepdims=True)]) if shared else matrix


def _same(a: pa.ChunkedArray, b: pa.ChunkedArray) -> NDArray[np.bool_]:
    if _is_number(a) and _is_number(b):
        x, y = (column.to_numpy(zero_copy_only=False).astype(np.float64) for column in (a, b))
        return np.asarray((x == y) | (np.isnan(x) & np.isnan(y)))
    equal = pc.equal(_as_text(a), _as_text(b)).fill_null(False).to_numpy()
    return np.asarray(equal | (missing_mask(a) & missing_mask(b)))


def _is_number(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _filled(column: pa.ChunkedArray, value: float) -> NDArray[np.float64]:
    numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return np.where(missing_mask(column), value, numbers)


def _one_hot(column: pa.ChunkedArray, known: pa.Array) -> Matrix:
    found = pc.index_in(_as_text(column), value_set=known)
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
    finite = numbers[np.isfinite(numbers)]
    levels = [level for level in range(_LEVELS) if len(finite) and np.ptp(_digit(finite, level)) > 0]
    return tuple(levels[-most:])


def _stack(parts: Sequence[NDArray[np.generic]], rows: int) -> Matrix:
    return np.hstack([np.zeros((rows, 0), dtype=np.float32), *(part.astype(np.float32) for part in parts)])
