"""Known facts about people, and how many rows of a release match them.

A fact is a person's true value in one column. Texts, booleans and numbers with few distinct values are compared
exactly; other numbers by ten bins of equal size, because releases draw such numbers anew and an attacker rarely knows
them to the last digit. A missing value matches a missing value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil.data.frames import missing_mask
from fairveil.data.kinds import MOST_CLASSES, MOST_VALUES, is_class

Codes = NDArray[np.int64]
Hashes = NDArray[np.uint64]

#: How many columns an attacker knows by default, and how many rows are used to choose them.
MOST_FACTS = 7
_CHOSEN_FROM = 50_000
#: Numbers are facts by default only if fewer columns than this have few values.
_FEW_COLUMNS = 3
_BINS = 10


@dataclass(frozen=True)
class Fact:
    """How one column is compared. Texts: `values` holds those of the original. Numbers: `values` if they have few of
    them, otherwise `edges` of bins.
    """

    name: str
    values: pa.Array | None = None
    numbers: NDArray[np.float64] | None = None
    edges: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, name: str, original: pa.ChunkedArray, released: pa.ChunkedArray) -> "Fact":
        """Decide by the original, as a number only if the released column holds numbers too."""
        if _is_numeric(original) and _is_numeric(released):
            present = _numbers(original)
            present = present[~np.isnan(present)]
            distinct = np.unique(present)
            if len(distinct) <= MOST_VALUES:
                return cls(name, numbers=distinct)
            return cls(name, edges=np.unique(np.quantile(present, np.linspace(0, 1, _BINS + 1)[1:-1])))
        return cls(name, values=pc.unique(_texts(name, original)).drop_null())

    @property
    def in_bins(self) -> bool:
        """Whether numbers are compared by bins."""
        return self.edges is not None

    def codes(self, column: pa.ChunkedArray) -> Codes:
        """A code per value: 0 for missing, 1.. for values of the original, and a last one for all other values."""
        if self.values is not None:
            text = _texts(self.name, column)
            found = pc.fill_null(pc.index_in(text, value_set=self.values), len(self.values))
            codes = found.to_numpy(zero_copy_only=False).astype(np.int64)
        elif self.edges is not None:
            codes = np.digitize(_numbers(column), self.edges).astype(np.int64)
        else:
            assert self.numbers is not None
            codes = _exact(_numbers(column), self.numbers)
        return np.where(missing_mask(column), 0, codes + 1)


@dataclass(frozen=True)
class Facts:
    """The columns that an attacker knows of a person."""

    columns: tuple[Fact, ...]

    @classmethod
    def of(cls, names: Sequence[str], original: pa.Table, released: pa.Table) -> "Facts":
        """How each of these columns is compared."""
        return cls(tuple(Fact.of(name, original[name], released[name]) for name in names))

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [fact.name for fact in self.columns]

    def codes(self, table: pa.Table) -> Codes:
        """The facts of every row: (rows, columns)."""
        return np.stack([fact.codes(table[fact.name]) for fact in self.columns], axis=1)


def check_facts(names: Sequence[str], shared: Sequence[str], secrets: Sequence[str]) -> None:
    """Reject columns that cannot be matched; all problems at once."""
    problems = [f"The known column {name!r} is sensitive: the attacker wants to find it." for name in names
                if name in secrets]  # fmt: skip
    problems += [f"The known column {name!r} is not in both the release and the original." for name in names
                 if name not in shared and name not in secrets]  # fmt: skip
    if len(set(names)) < len(names):
        problems.append("A known column is named twice.")
    if not names:
        problems.append("quasi_identifiers names no column.")
    if problems:
        raise InputError(problems)


def default_facts(original: pa.Table, shared: Sequence[str]) -> list[str]:
    """The columns that identify people best, at most seven.

    Columns with few distinct values are taken one after another, each time the one that adds most to the entropy of
    their joint value; columns that add nothing are left out. Texts with more than 256 values (names, identifiers) are
    not taken; numbers with many values only if there are hardly any other columns.
    """
    step = max(1, original.num_rows // _CHOSEN_FROM)
    some = original.take(pa.array(np.arange(0, original.num_rows, step))) if step > 1 else original
    few = [name for name in shared if _is_few_valued(original[name])]
    if len(few) < _FEW_COLUMNS:
        few += [name for name in shared if name not in few and _is_numeric(original[name])]
    codes = {fact.name: fact.codes(some[fact.name]) for fact in Facts.of(few, some, some).columns}
    chosen: list[str] = []
    joint, entropy = np.zeros(some.num_rows, dtype=np.int64), 0.0
    while codes and len(chosen) < MOST_FACTS:
        crossed = {name: joint * (int(own.max()) + 1) + own for name, own in codes.items()}
        gains = {name: _entropy(cross) - entropy for name, cross in crossed.items()}
        best = max(gains, key=lambda name: gains[name])
        if gains[best] < 1e-9:
            break
        chosen.append(best)
        entropy += gains[best]
        joint = np.unique(crossed[best], return_inverse=True)[1]
        del codes[best]
    return [name for name in shared if name in chosen]


#: How often each key occurs: the key of all facts, and of all facts but each one.
Counts = tuple[NDArray[np.int64], ...]


@dataclass
class Matches:
    """How many rows of a release match each person's facts; rows are counted in batches, in the memory of the people.

    exact: rows that match in all columns. without: for each column, rows that match in all others (and in this one or
    not): (people, columns).
    """

    facts: Facts
    people: Codes
    _slots: list[tuple[Hashes, NDArray[np.int64]]] = field(init=False)
    _counts: list[NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        found = [np.unique(keys, return_inverse=True) for keys in _keys(self.people)]
        self._slots = [(keys, slot.reshape(-1)) for keys, slot in found]
        self._counts = [np.zeros(len(keys), dtype=np.int64) for keys, _ in self._slots]

    def add(self, released: pa.Table) -> None:
        """Count more rows of the release."""
        self.include(self.counted(released))

    def counted(self, released: pa.Table) -> Counts:
        """How often each key occurs in some rows of the release; counts of all rows add up."""
        counts = []
        for (known, _), keys in zip(self._slots, _keys(self.facts.codes(released)), strict=True):
            at = np.searchsorted(known, keys).clip(max=len(known) - 1)
            counts.append(np.bincount(at[known[at] == keys], minlength=len(known)))
        return tuple(counts)

    def include(self, counts: Counts) -> None:
        """Add the counts of more rows."""
        for total, more in zip(self._counts, counts, strict=True):
            total += more

    @property
    def exact(self) -> NDArray[np.int64]:
        """Rows that match all facts, for each person."""
        return self._counts[0][self._slots[0][1]]

    @property
    def without(self) -> NDArray[np.int64]:
        """Rows that match all facts but one, whatever that one is: (people, columns)."""
        columns = [counts[slot] for (_, slot), counts in zip(self._slots[1:], self._counts[1:], strict=True)]
        return np.stack(columns, axis=1)

    @property
    def near(self) -> NDArray[np.int64]:
        """Rows that match all facts except exactly one, for each person."""
        return np.asarray(self.without.sum(axis=1) - self.people.shape[1] * self.exact)


def _keys(codes: Codes) -> list[Hashes]:
    """64-bit keys of all facts, and of all facts but each one."""
    hashed = [_mixed(column.astype(np.uint64) + np.uint64((place + 1) << 40)) for place, column in enumerate(codes.T)]
    whole = np.zeros(len(codes), dtype=np.uint64)
    for own in hashed:
        whole += own
    return [whole, *(whole - own for own in hashed)]


def _mixed(values: Hashes) -> Hashes:
    """The finaliser of splitmix64: nearby integers become unrelated ones."""
    mixed = values * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _is_few_valued(column: pa.ChunkedArray) -> bool:
    return is_class(column) and 2 <= pc.count_distinct(column, mode="all").as_py() <= MOST_CLASSES


def _is_numeric(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def _entropy(codes: Codes) -> float:
    shares = np.unique(codes, return_counts=True)[1] / len(codes)
    return float(-(shares * np.log(shares)).sum())


def _exact(numbers: NDArray[np.float64], known: NDArray[np.float64]) -> Codes:
    if not len(known):
        return np.zeros(len(numbers), dtype=np.int64)
    at = np.searchsorted(known, numbers).clip(max=len(known) - 1)
    return np.where(known[at] == numbers, at, len(known)).astype(np.int64)


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """A column as numbers, NaN where missing. Texts occur in batches of CSV files."""
    values: Any = column.to_numpy(zero_copy_only=False)
    if not _is_numeric(column):
        values = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").to_numpy()
    return np.asarray(values, dtype=np.float64)


def _texts(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # `from None`: arrow's own message may contain a data value.
        raise InputError(f"Column {name!r} has the type {column.type}, which cannot be compared. Convert it.") from None
