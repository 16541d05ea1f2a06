"""A summary of the rows of an input in a few kilobytes: keyed hashes of their encoded values.

A sketch keeps the smallest hashes of all rows, with their counts: a uniform sample of the distinct rows, with the same
selection for every input. Two inputs share about as many rows as their sketches do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

#: Number of hashes kept: overlaps are estimated to about 1 / sqrt of this.
SIZE = 16_384
#: Standard errors by which an overlap must exceed chance to be certain.
_ERRORS = 3.0
#: Minimum share of unique rows for an overlap to be detectable.
_FEWEST_ALONE = 0.02

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Sketch:
    """The smallest distinct hashes, in ascending order, and how many rows have each."""

    hashes: Hashes
    counts: NDArray[np.int64]

    @classmethod
    def empty(cls) -> Self:
        """The sketch of no rows."""
        return cls(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64))

    @classmethod
    def of(cls, hashes: Sequence[int] | Hashes, counts: Sequence[int] | NDArray[np.int64] | None = None) -> Self:
        """From the hash of every row; or from distinct hashes and their counts."""
        distinct, place = np.unique(np.asarray(hashes, dtype=np.uint64), return_inverse=True)
        each = np.ones(len(place)) if counts is None else np.asarray(counts, dtype=np.float64)
        sums = np.bincount(place, weights=each, minlength=len(distinct)).astype(np.int64)
        return cls(distinct[:SIZE], sums[:SIZE])

    def __add__(self, other: "Sketch") -> "Sketch":
        return Sketch.of(np.concatenate([self.hashes, other.hashes]), np.concatenate([self.counts, other.counts]))

    @property
    def effective_rows(self) -> float:
        """The effective number of independent rows: rows with the same hash are not independent."""
        return float(self.counts.sum() ** 2 / np.square(self.counts, dtype=np.float64).sum())

    def upto(self, reach: np.uint64) -> "Sketch":
        """Only hashes up to this one."""
        kept = self.hashes <= reach
        return Sketch(self.hashes[kept], self.counts[kept])

    @property
    def reach(self) -> int:
        """The largest hash up to which all rows are included."""
        return int(self.hashes[-1]) if len(self.hashes) == SIZE else 2**64 - 1


@dataclass(frozen=True)
class Overlap:
    """The share of an input's rows that occurred before, beyond chance; and its lower confidence limit."""

    share: float
    sure: float


def overlap(sketch: Sketch, earlier: Sequence[Sketch]) -> Overlap:
    """How many rows of a sketch are in earlier inputs, beyond chance.

    In a table of few columns many people have the same row. How often a new person's row is among the rows of earlier
    inputs can be estimated from these alone (Good and Turing): it is 1 minus the share of rows that occur once. This
    fails if the new people differ from the earlier ones; but then unique rows are not found more often than twice the
    share of rows that occur twice. Several inputs are combined, so that a few rows from each add up.
    """
    reach = np.uint64(min([sketch.reach, *(other.reach for other in earlier)]))
    now, before = sketch.upto(reach), sum((other.upto(reach) for other in earlier), Sketch.empty())
    if not len(now.hashes) or not len(before.hashes):
        return Overlap(0.0, 0.0)
    rows = float(before.counts.sum())
    alone, twice = (float((before.counts == count).sum()) * count / rows for count in (1, 2))
    every = _beyond(now, before, before.hashes, 1.0, 1.0 - alone)
    if alone - twice < _FEWEST_ALONE:
        return every
    singles = _beyond(now, before, before.hashes[before.counts == 1], alone, twice)
    return Overlap(min(every.share, 2.0 * singles.share), min(every.sure, 2.0 * singles.share))


def _beyond(now: Sketch, before: Sketch, known: Hashes, repeated: float, chance: float) -> Overlap:
    """The share of repeated rows, if `repeated` of such rows and `chance` of others are among the known ones."""
    found = float(now.counts[np.isin(now.hashes, known)].sum() / now.counts.sum())
    error = math.sqrt(found * (1 - found) / now.effective_rows + chance * (1 - chance) / before.effective_rows)
    rest = max(repeated - chance, 1e-9)
    return Overlap(max(0.0, found - chance) / rest, max(0.0, found - chance - _ERRORS * error) / rest)


def same_rows(one: Sketch, other: Sketch) -> bool:
    """Whether two inputs hold the same rows with the same counts: detectable even where many people are alike."""
    reach = np.uint64(min(one.reach, other.reach))
    first, second = one.upto(reach), other.upto(reach)
    return np.array_equal(first.hashes, second.hashes) and np.array_equal(first.counts, second.counts)


def tells_rows_apart(sketch: Sketch) -> bool:
    """Whether enough rows are unique for a repeated part of the input to be noticed."""
    return bool((sketch.counts == 1).sum() >= _FEWEST_ALONE * sketch.counts.sum())


def row_hashes(codes: NDArray[np.int64], key: bytes) -> Hashes:
    """A keyed 64-bit hash of every row of codes (rows, columns): a random linear map, then a mixing step.

    The map is drawn from the key, so two rows collide with a probability of about 2^-60, and hashes of two ledgers are
    unrelated.
    """
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big") % 2**128))
    weights = generator.integers(0, 2**64, codes.shape[1] + 1, dtype=np.uint64) | np.uint64(1)
    total = np.full(len(codes), weights[-1], dtype=np.uint64)
    for column, weight in zip(codes.T, weights, strict=False):
        total += (column.astype(np.uint64) + np.uint64(1)) * weight
    return _mixed(total)


def ordered_digest(hashes: Hashes, start: int) -> NDArray[np.uint64]:
    """Two sums over rows that depend on every row and its position; sums of parts of an input add up.

    start: the position of the first of these rows in the input.
    """
    places = np.arange(start + 1, start + len(hashes) + 1, dtype=np.uint64)
    return np.array([
        _mixed(hashes + places * np.uint64(factor)).sum(dtype=np.uint64)
        for factor in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
    ])  # fmt: skip


def _mixed(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value (the finaliser of splitmix64)."""
    values = values.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    return values ^ (values >> np.uint64(31))
