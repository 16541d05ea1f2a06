"""Relations between cells as numeric features: S may leak in them even if no single cell tells anything.

How often a value occurs, which rows hold the same value, how a row compares with others of its group, with those next
to it or at a fixed distance, and how the columns of a row compare with each other.
"""

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import fft

Array = NDArray[np.float64]
Codes = NDArray[np.int64]
Features = list[NDArray[np.generic]]

#: Maximum number of columns for which all pairs are compared, for which pairs are compared in detail, and for which
#: sums of two columns are compared with a third.
_MOST_COMPARED, _MOST_COUNTED, _MOST_ADDED = 40, 8, 6
#: Remainders of the sum and of the difference of two columns of integers; one feature for each value of a remainder if
#: there are at most this many columns.
_DIVISORS, _FEW_WHOLE = (2, 3, 5, 7, 10), 3
_DAY = 86_400_000_000
#: Columns with at least this many values can be groups: rows are ranked within each. At most this many pairs of a group
#: and a number.
_FEWEST_GROUPS, _MOST_RANKED = 20, 12
#: A column repeats at a distance if its autocorrelation there has this many standard errors; the strongest are used.
_ERRORS, _MOST_LAGS = 6.0, 2
#: Significant digits by which sums, products and ratios count as equal.
_DIGITS = 6


def occurrences(codes: Mapping[str, Codes], rows: int) -> Features:
    """The number of occurrences of each value, of pairs of values if columns are few, and of the whole row.

    Its logarithm, its parity, flags for 1 and 2.
    """
    parts: Features = []
    whole = np.zeros(rows, dtype=np.uint64)
    for values in codes.values():
        whole = whole * np.uint64(1_099_511_628_211) + values.astype(np.uint64)
    pairs = []
    if 2 < len(codes) <= _MOST_COUNTED:
        sizes = {name: int(values.max(initial=0)) + 1 for name, values in codes.items()}
        pairs = [np.unique(codes[one] * sizes[other] + codes[other], return_inverse=True)[1]
                 for one, other in combinations(codes, 2) if sizes[one] > 2 and sizes[other] > 2]  # fmt: skip
    for values in (*codes.values(), *pairs, np.unique(whole, return_inverse=True)[1]):
        counts = np.bincount(values)[values]
        if np.ptp(counts):
            parts += [np.log2(counts)[:, None], (counts == 1)[:, None], (counts == 2)[:, None], (counts % 2)[:, None]]
    return parts


def places(codes: Mapping[str, Codes]) -> Features:
    """The place of a row among those with the same value of a column: its parity, whether it is the first or last."""
    parts: Features = []
    for values in codes.values():
        order = np.argsort(values, kind="stable")
        first = np.r_[True, values[order][1:] != values[order][:-1]]
        if first.all():
            continue
        start = np.maximum.accumulate(np.where(first, np.arange(len(values)), 0))
        place, last = np.empty((2, len(values)), dtype=np.int64)
        place[order], last[order] = np.arange(len(values)) - start, np.r_[first[1:], True]
        parts.append((place % 2)[:, None])
        if first.sum() >= _FEWEST_GROUPS:
            parts += [(place == 0)[:, None], last[:, None]]
    return parts


def ranks_within(codes: Mapping[str, Codes], numbers: Mapping[str, Array]) -> Features:
    """The rank of each number among the rows with the same value of another column; whether it is the largest or
    smallest of several.
    """
    counts = {name: np.bincount(values) for name, values in codes.items()}
    distinct = {name: int((count > 0).sum()) for name, count in counts.items()}
    groups = [name for name in codes if _FEWEST_GROUPS <= distinct[name] <= len(codes[name]) / 1.25]
    pairs = [(group, name) for group in sorted(groups, key=lambda name: -distinct[name]) for name in numbers
             if name != group]  # fmt: skip
    parts: Features = []
    for group, name in pairs[:_MOST_RANKED]:
        own, values = codes[group], numbers[name]
        order = np.lexsort((values, own))
        size = counts[group][own]
        start = np.cumsum(counts[group]) - counts[group]
        place = np.empty(len(own), dtype=np.int64)
        place[order] = np.arange(len(own))
        rank = place - start[own]
        several = size > 1
        share = np.where(several, rank / np.maximum(size - 1, 1), 0.5)
        parts += [share[:, None], (share > 0.5)[:, None], (several & (rank == 0))[:, None],
                  (several & (rank == size - 1))[:, None]]  # fmt: skip
    return parts


def neighbours(codes: Mapping[str, Codes], rows: int) -> Features:
    """Whether a row equals the previous and the next one in each column, and in what share of the columns."""
    flags = np.zeros((rows, len(codes)), dtype=bool)
    for column, values in enumerate(codes.values()):
        flags[1:, column] = values[1:] == values[:-1]
    behind = np.roll(flags, -1, axis=0)
    behind[-1:] = False
    before = flags.sum(axis=1, keepdims=True)
    return [flags, behind, before / max(len(codes), 1), behind.sum(axis=1, keepdims=True) / max(len(codes), 1),
            before == len(codes)]  # fmt: skip


def repeats(codes: Mapping[str, Codes]) -> Features:
    """Whether a cell equals the one a fixed number of rows before or after, where a column often repeats like that."""
    parts: Features = []
    for values in codes.values():
        for lag in _lags(values):
            same = np.zeros((2, len(values)), dtype=bool)
            same[0, lag:] = same[1, :-lag] = values[lag:] == values[:-lag]
            parts += [same.T]
    return parts


def _lags(values: Codes) -> list[int]:
    """The distances, of at least two rows, at which values are the same most often, if more often than by chance.

    Every value gets a random sign; equal values then show as autocorrelation, which a Fourier transform has for all
    distances at once.
    """
    rows = len(values)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], int(values.max(initial=0)) + 1)[values]
    signs -= signs.mean()
    power = float(np.square(signs).mean()) if rows else 0.0
    if rows < 4 or power == 0.0:
        return []
    size = fft.next_fast_len(2 * rows, real=True)
    together = fft.irfft(np.abs(fft.rfft(signs, size)) ** 2, size)[: rows // 2 + 1]
    errors = together / (power * np.sqrt(rows - np.arange(len(together))))
    errors[:2] = 0.0
    strongest = np.argsort(-errors, kind="stable")[:_MOST_LAGS]
    return [int(lag) for lag in strongest if errors[lag] > _ERRORS]


def steps(numbers: Mapping[str, Array]) -> Features:
    """How far each number is from those of the previous and the next row: the sign, and the rank of the distance."""
    parts: Features = []
    for values in numbers.values() if len(numbers) <= _MOST_COMPARED else ():
        change = np.diff(values, prepend=values[:1])
        for step in (change, np.append(change[1:], 0.0)):
            order = np.abs(step).argsort(kind="stable").argsort(kind="stable") / max(len(step), 1)
            parts += [np.sign(step)[:, None], order[:, None], (order < 0.25)[:, None]]
    return parts


def equal_columns(
    numbers: Mapping[str, Array], texts: Mapping[str, pa.ChunkedArray], ticks: Mapping[str, float]
) -> Features:
    """Whether two columns of the same kind hold the same value, or one exceeds the other; and how close they are.

    ticks: the microseconds per unit of columns that are timestamps.
    """
    parts: Features = []
    if len(numbers) <= _MOST_COMPARED:
        for one, other in combinations(numbers, 2):
            first, second = numbers[one], numbers[other]
            same = first == second
            parts += [same[:, None]] if 0 < same.sum() < len(same) else []
            above = first > second
            parts += [above[:, None]] if 0 < above.sum() < len(above) else []
            if len(numbers) <= _MOST_COUNTED:
                parts += _closeness(first, second)
            if one in ticks and other in ticks:
                days = np.floor((second * ticks[other] - first * ticks[one]) / _DAY)
                parts += [(days % 7)[:, None] == np.arange(7), (days % 2)[:, None]]
    if len(texts) <= _MOST_COMPARED:
        for text, second_text in combinations(texts.values(), 2):
            equal = pc.fill_null(pc.equal(text, second_text), False).to_numpy(zero_copy_only=False)
            parts += [equal[:, None]] if 0 < equal.sum() < len(equal) else []
    return parts


def remainders(numbers: Mapping[str, Array]) -> Features:
    """The remainders of the sums and differences of two columns of integers."""
    whole = [values for values in numbers.values() if np.array_equal(values, np.round(values)) and np.ptp(values) > 1]
    parts: Features = []
    if len(whole) > _MOST_COUNTED:
        return parts
    for first, second in combinations(whole, 2):
        for divisor in _DIVISORS:
            for values in (first + second, first - second) if divisor > 2 else (first + second,):
                left = (values % divisor)[:, None]
                few = len(whole) <= _FEW_WHOLE and divisor > 2
                parts.append(left == np.arange(divisor) if few else left / divisor)
    return parts


def totals(numbers: Mapping[str, Array]) -> Features:
    """Whether one column is the sum of two others."""
    parts: Features = []
    if len(numbers) > _MOST_ADDED:
        return parts
    for one, other in combinations(numbers, 2):
        total = numbers[one] + numbers[other]
        for third in numbers.keys() - {one, other}:
            same = np.isclose(total, numbers[third], rtol=1e-9, atol=1e-9) & (numbers[one] != 0) & (numbers[other] != 0)
            parts += [same[:, None]] if 0 < same.sum() < len(same) else []
    return parts


def row_summary(codes: Mapping[str, Codes], numbers: Mapping[str, Array], rows: int) -> Features:
    """Of each row: how many cells are 0 and how many hold the most frequent value of their column, with parities; how
    frequent its values are; how far it is from the center.
    """
    typical, frequency = np.zeros(rows, dtype=np.int64), np.zeros(rows)
    for values in codes.values():
        counts = np.bincount(values)
        typical += (values == counts.argmax()) & (counts.max() > 1)
        frequency += np.log2(counts[values])
    zeros, square, far = np.zeros(rows, dtype=np.int64), np.zeros(rows), np.zeros(rows)
    for column in numbers.values():
        zeros += column == 0
        scaled = np.abs(column - column.mean()) / (column.std() or 1.0)
        square, far = square + np.square(scaled), np.maximum(far, scaled)
    counted = [part[:, None] for count in (zeros, typical) for part in (count, count % 2)]
    return [*counted, *(_rank(values)[:, None] for values in (frequency, square, far)),
            (_rank(square) > 0.5)[:, None]]  # fmt: skip


def _closeness(first: Array, second: Array) -> Features:
    """The ranks of the distance of two numbers, of their sum and of their ratio, with flags for the closest quarter;
    and how often their sum, difference, product and ratio occur.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio, product = (np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
                          for values in (first / second, first * second))  # fmt: skip
    one, other = ((values - values.mean()) / (values.std() or 1.0) for values in (first, second))
    ranks = [_rank(values) for values in (np.abs(first - second), np.abs(one - other), np.abs(one + other), ratio)]
    counts = [_occurring(values) for values in (first + second, first - second, product, ratio)]
    return [*(rank[:, None] for rank in ranks), *((rank < 0.25)[:, None] for rank in ranks[:3]),
            *(np.log2(count)[:, None] for count in (*counts, _counted(np.round(ratio, 2))))]  # fmt: skip


def _rank(values: Array) -> Array:
    """Ranks from 0 to 1; equal values in the order of the rows."""
    return np.asarray(values.argsort(kind="stable").argsort(kind="stable") / max(len(values), 1))


def _occurring(values: Array) -> Array:
    """How often each number occurs, to some significant digits."""
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.abs(values), where=values != 0, out=np.zeros(len(values)))))
    return _counted(np.round(values * scale) / scale)


def _counted(values: Array) -> Array:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(counts[place])
