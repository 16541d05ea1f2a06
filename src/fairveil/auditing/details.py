"""Fine structure of a release as numeric features: S may leak there even if the values are independent of it.

The features are generic, not designed for specific leaks: hours, digits, frequencies, equal cells, row positions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil.data.types import arrow_type, from_pattern, text_pattern

Array = NDArray[np.float64]
Matrix = NDArray[np.float32]

#: Maximum number of decimal places, on both sides of the point, and of low bits of a mantissa.
_LEVELS, _BITS = 16, 16
#: Sine and cosine frequencies per number, and quantile bins; fewer if there are many columns.
_WAVES, _BINS = 32, 32
#: Maximum number of features of each kind over all numeric columns of a table.
_MOST_DETAILS, _MOST_WAVES, _MOST_BINS, _MOST_DIVIDED = 2000, 640, 480, 360
#: Hash buckets for the words, pairs and triples of letters of text columns with many distinct values; and for their
#: first letters.
_WORDS, _PAIRS, _TRIPLES, _FIRST = 128, 64, 128, 64
#: Remainders of integers; those of 2, 5 and 10 are digits.
_DIVISORS = (3, 4, 6, 7, 8, 9, 11, 12, 13)
#: Maximum number of columns for which all pairs are compared, and for which occurrences of all pairs are counted.
_MOST_COMPARED, _MOST_COUNTED = 40, 8
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
#: Integers in these ranges may be seconds or milliseconds since 1970.
_EPOCHS = ((1e8, 5e9, 1e6), (1e11, 5e12, 1e3))


@dataclass(frozen=True)
class NumberDetails:
    """The features of a numeric column, chosen from all draws of a release without using S.

    levels: decimal places at which the numbers differ, negative left of the point. bits: number of low mantissa bits.
    waves: angular frequencies per standard deviation. edges: between quantile bins. ticks: microseconds per unit if
    the numbers are timestamps, otherwise None. divisors: of integers with more values than that.
    """

    center: float
    spread: float
    levels: tuple[int, ...]
    bits: int
    waves: tuple[float, ...]
    edges: tuple[float, ...]
    ticks: float | None
    divisors: tuple[int, ...] = ()

    @classmethod
    def of(cls, numbers: Array, columns: int, kind: pa.DataType | None) -> "NumberDetails":
        """From the non-missing numbers of a column; columns: how many numeric columns there are."""
        present = numbers[np.isfinite(numbers)]
        center = float(present.mean()) if len(present) else 0.0
        spread = float(present.std()) if len(present) else 0.0
        whole = bool(np.all(present == np.round(present)))
        levels, waves, bins = (
            min(most, max(2, total // (share * columns)))
            for most, total, share in ((_LEVELS, _MOST_DETAILS, 3), (_WAVES, _MOST_WAVES, 2), (_BINS, _MOST_BINS, 1))
        )
        varied = len(np.unique(present)) if len(present) else 0
        frequencies = tuple(np.geomspace(1.0, 40.0, waves)) if varied > bins else ()
        edges = np.unique(np.quantile(present, np.linspace(0, 1, bins + 1)[1:-1])) if varied > 2 else np.zeros(0)
        many = whole and varied > max(_DIVISORS) and len(_DIVISORS) * columns <= _MOST_DIVIDED
        return cls(center, spread or 1.0, varying_levels(present, levels), 0 if whole else min(_BITS, levels),
                   frequencies, tuple(edges.tolist()), ticks_of(present, kind, whole=whole),
                   _DIVISORS if many else ())  # fmt: skip

    def features(self, numbers: Array, kind: pa.DataType) -> list[NDArray[np.generic]]:
        """Digits and parities, low bits, waves, bins and calendar fields; missing numbers must be filled."""
        parts: list[NDArray[np.generic]] = []
        for level in self.levels:
            digit = digit_at(numbers, level)
            parts += [digit[:, None] / 9.0, (digit % 2)[:, None]]
        if self.bits:
            parts += [low_bits(numbers, kind, self.bits), np.signbit(numbers)[:, None]]
        if self.waves:
            angle = ((numbers - self.center) / self.spread)[:, None] * np.asarray(self.waves)[None, :]
            parts += [np.sin(angle), np.cos(angle)]
        if self.edges:
            parts.append(np.digitize(numbers, self.edges)[:, None] == np.arange(len(self.edges) + 1)[None, :])
        if self.levels:
            digits = np.stack([digit_at(numbers, level) for level in self.levels], axis=1)
            parts.append(digits.sum(axis=1, keepdims=True) % 2)
        parts += [(numbers % divisor)[:, None] / divisor for divisor in self.divisors]
        if self.ticks is not None:
            parts += calendar(numbers * self.ticks)
        return parts


def ticks_of(present: Array, kind: pa.DataType | None, *, whole: bool) -> float | None:
    """Microseconds per unit of these numbers if they are, or may be, timestamps; otherwise None."""
    if kind is not None and pa.types.is_date(kind):
        return float(_DAY)
    if kind is not None and (pa.types.is_timestamp(kind) or pa.types.is_time(kind)):
        return 1.0
    if not len(present) or not whole:
        return None
    middle = float(np.median(present))
    return next((ticks for low, high, ticks in _EPOCHS if low < middle < high), None)


def moments_of(text: pa.ChunkedArray) -> tuple[Array, pa.DataType] | None:
    """Texts that are dates or times as numbers, and their type; None for other texts."""
    pattern = text_pattern(text) if pa.types.is_string(text.type) else None
    if pattern is None:
        return None
    numbers, _ = from_pattern(text, pattern)
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64), arrow_type(pattern)


def calendar(moments: Array) -> list[NDArray[np.generic]]:
    """Hour, weekday, month, day and the digits of minute and second one-hot; weekend, day of the year, parities."""
    stamps = np.round(moments).astype("datetime64[us]")
    days = np.floor_divide(moments, _DAY)
    hour, weekday = np.floor_divide(moments, _HOUR) % 24, (days + 3) % 7
    month = stamps.astype("datetime64[M]").astype(np.int64) % 12
    day = (stamps.astype("datetime64[D]") - stamps.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64)
    of_year = (stamps.astype("datetime64[D]") - stamps.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
    minute, second = np.floor_divide(moments, _MINUTE) % 60, np.floor_divide(moments, _SECOND) % 60
    return [
        hour[:, None] == np.arange(24), weekday[:, None] == np.arange(7), month[:, None] == np.arange(12),
        (hour / 23)[:, None], (weekday >= 5)[:, None], (minute / 59)[:, None], (second / 59)[:, None],
        (day / 30)[:, None], (day % 2)[:, None], (hour % 2)[:, None], (minute % 2)[:, None], (of_year / 365)[:, None],
        (days % 2)[:, None], day[:, None] == np.arange(31), (second % 2)[:, None],
        (np.floor_divide(days + 3, 7) % 2)[:, None],
        *(part[:, None] == np.arange(count) for unit in (minute, second)
          for part, count in ((unit // 10, 6), (unit % 10, 10)) if np.ptp(unit)),
    ]  # fmt: skip


def calendar_codes(moments: Array) -> list[NDArray[np.generic]]:
    """Hour, weekday, day of the month and month, as classes."""
    stamps = np.round(moments).astype("datetime64[us]")
    months = stamps.astype("datetime64[M]")
    day = (stamps.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64)
    return [np.floor_divide(moments, _HOUR) % 24, np.floor_divide(moments, _DAY) % 7, day, months.astype(np.int64) % 12]


def occurrences(codes: Mapping[str, NDArray[np.int64]], rows: int) -> list[NDArray[np.generic]]:
    """The number of occurrences of each value, of pairs of values if columns are few, and of the whole row.

    Its logarithm, its parity, flags for 1 and 2.
    """
    parts: list[NDArray[np.generic]] = []
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


def neighbours(codes: Mapping[str, NDArray[np.int64]], rows: int) -> list[NDArray[np.generic]]:
    """Whether a row equals the previous and the next one in each column, and in what share of the columns."""
    flags = np.zeros((rows, len(codes)), dtype=bool)
    for column, values in enumerate(codes.values()):
        flags[1:, column] = values[1:] == values[:-1]
    behind = np.roll(flags, -1, axis=0)
    behind[-1:] = False
    before = flags.sum(axis=1, keepdims=True)
    return [flags, behind, before / max(len(codes), 1), behind.sum(axis=1, keepdims=True) / max(len(codes), 1),
            before == len(codes)]  # fmt: skip


def steps(numbers: Mapping[str, Array]) -> list[NDArray[np.generic]]:
    """How far each number is from those of the previous and the next row: the sign, and the rank of the distance."""
    parts: list[NDArray[np.generic]] = []
    for values in numbers.values() if len(numbers) <= _MOST_COMPARED else ():
        change = np.diff(values, prepend=values[:1])
        for step in (change, np.append(change[1:], 0.0)):
            order = np.abs(step).argsort(kind="stable").argsort(kind="stable") / max(len(step), 1)
            parts += [np.sign(step)[:, None], order[:, None], (order < 0.25)[:, None]]
    return parts


def equal_columns(numbers: Mapping[str, Array], texts: Mapping[str, pa.ChunkedArray]) -> list[NDArray[np.generic]]:
    """Whether two columns of the same kind hold the same value, or one exceeds the other; and how close they are."""
    parts: list[NDArray[np.generic]] = []
    if len(numbers) <= _MOST_COMPARED:
        for first, second in combinations(numbers.values(), 2):
            same = first == second
            parts += [same[:, None]] if 0 < same.sum() < len(same) else []
            above = first > second
            parts += [above[:, None]] if 0 < above.sum() < len(above) else []
            if len(numbers) <= _MOST_COUNTED:
                parts += _closeness(first, second)
    if len(texts) <= _MOST_COMPARED:
        for one, other in combinations(texts.values(), 2):
            equal = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
            parts += [equal[:, None]] if 0 < equal.sum() < len(equal) else []
    return parts


def text_shape(column: pa.ChunkedArray) -> Matrix:
    """For texts with many distinct values: `text_form`, hashed words, letter pairs and triples, and first letters."""
    form = text_form(column)
    hashed = np.zeros((len(column), _PAIRS + _WORDS + _TRIPLES + _FIRST), dtype=np.float32)
    words, triples, first = (_PAIRS, _PAIRS + _WORDS, _PAIRS + _WORDS + _TRIPLES)
    for row, text in enumerate(column.fill_null("").to_numpy(zero_copy_only=False)):
        if text:
            for one, two in pairwise(text):
                hashed[row, (31 * ord(one) + ord(two)) % _PAIRS] += 1.0
            for one, two, three in zip(text, text[1:], text[2:], strict=False):
                hashed[row, triples + (961 * ord(one) + 31 * ord(two) + ord(three)) % _TRIPLES] = 1.0
            for word in text.split():
                hashed[row, words + _hashed(word.lower()) % _WORDS] = 1.0
            hashed[row, first + _hashed(text[:3]) % _FIRST] = 1.0
    return np.hstack([form, hashed])


def text_form(column: pa.ChunkedArray) -> Matrix:
    """The form of each text: its length, words, first and last letter, capitals, digits, spaces and zeros."""
    out = np.zeros((len(column), 15), dtype=np.float32)
    for row, text in enumerate(column.fill_null("").to_numpy(zero_copy_only=False)):
        if text:
            words = len(text.split())
            capitals, digits = sum(map(str.isupper, text)), sum(map(str.isdigit, text))
            out[row] = (
                len(text), len(text) % 2, words, words % 2, ord(text[0]) % 256, ord(text[-1]) % 256, capitals,
                text[0].isupper(), digits, digits % 2, text != text.strip(), "  " in text, text[-1] == "0",
                "." in text, "e" in text.lower(),
            )  # fmt: skip
    return out


def _closeness(first: Array, second: Array) -> list[NDArray[np.generic]]:
    """The ranks of the distance of two numbers and of their ratio, with flags for the closest quarter."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(first / second, nan=0.0, posinf=0.0, neginf=0.0)
    distance = np.abs((first - first.mean()) / (first.std() or 1.0) - (second - second.mean()) / (second.std() or 1.0))
    ranks = [values.argsort(kind="stable").argsort(kind="stable") / len(values)
             for values in (np.abs(first - second), distance, ratio)]  # fmt: skip
    counts = np.unique(np.round(ratio, 2), return_inverse=True, return_counts=True)
    return [*(rank[:, None] for rank in ranks), *((rank < 0.25)[:, None] for rank in ranks[:2]),
            np.log2(counts[2][counts[1]])[:, None]]  # fmt: skip


def _hashed(word: str) -> int:
    """A hash that is the same in every process (FNV-1a)."""
    value = 2_166_136_261
    for letter in word:
        value = (value ^ ord(letter)) * 16_777_619 % 2**32
    return value


def low_bits(numbers: Array, kind: pa.DataType, bits: int) -> NDArray[np.generic]:
    """The low bits of each number, in the type in which it was released."""
    if pa.types.is_float32(kind):
        whole = numbers.astype(np.float32).view(np.int32).astype(np.int64)
    else:
        whole = numbers.view(np.int64)
    return (whole[:, None] >> np.arange(bits)[None, :]) & 1


def digit_at(numbers: Array, level: int) -> Array:
    """The digit at 10^-level; 1e-6 is added because binary fractions may lie slightly below the decimal."""
    return np.asarray(np.floor(np.abs(numbers) * 10.0**level + 1e-6) % 10)


def varying_levels(numbers: Array, most: int) -> tuple[int, ...]:
    """Decimal places at which the numbers differ, from the leading digit down to the precision of a double."""
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        return ()
    magnitude = int(np.ceil(np.log10(max(float(np.abs(finite).max()), 1.0))))
    smallest = 15 - int(np.ceil(np.log10(max(float(np.median(np.abs(finite))), 1.0)) or 0))
    places = range(-magnitude, min(_LEVELS, smallest + 1))
    levels: Sequence[int] = [level for level in places if np.ptp(digit_at(finite, level)) > 0]
    return tuple(levels[-most:])
