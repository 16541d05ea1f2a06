"""Fine structure of a release as numeric features: S may leak there even if the values are independent of it.

The features are generic, not designed for specific leaks: hours, digits, frequencies, equal cells, row positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.data.types import arrow_type, from_pattern, text_pattern

Array = NDArray[np.float64]
Matrix = NDArray[np.float32]

#: Maximum number of decimal places, on both sides of the point, and of low bits of a mantissa.
_LEVELS, _BITS = 16, 16
#: Sine and cosine frequencies per number, and quantile bins; fewer if there are many columns.
_WAVES, _BINS = 32, 32
#: Maximum number of features of each kind over all numeric columns of a table.
_MOST_DETAILS, _MOST_WAVES, _MOST_BINS, _MOST_DIVIDED = 2000, 480, 480, 360
#: Remainders of integers; those of 2, 5 and 10 are digits.
_DIVISORS = (3, 4, 6, 7, 8, 9, 11, 12, 13)
#: With at most this many columns, this many low bits of a mantissa.
_FEW, _MORE_BITS = 8, 32
#: First digits are features of columns of more values than that whose sizes differ by this factor.
_VARIED, _DECADES = 30, 100.0
#: Digit sums are features of integers with at least this many digits.
_LONG = 4
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
#: Integers in these ranges may be seconds or milliseconds since 1970.
_EPOCHS = ((1e8, 5e9, 1e6), (1e11, 5e12, 1e3))


@dataclass(frozen=True)
class NumberDetails:
    """The features of a numeric column, chosen from all draws of a release without using S.

    levels: decimal places at which the numbers differ, negative left of the point. bits: number of low mantissa bits.
    waves: angular frequencies per standard deviation. edges: between quantile bins. ticks: microseconds per unit if
    the numbers are timestamps, otherwise None. divisors: of integers with more values than that. leading: whether
    first digits are features.
    """

    center: float
    spread: float
    levels: tuple[int, ...]
    bits: int
    waves: tuple[float, ...]
    edges: tuple[float, ...]
    ticks: float | None
    divisors: tuple[int, ...] = ()
    leading: bool = False

    @classmethod
    def of(cls, numbers: Array, columns: int, kind: pa.DataType | None) -> "NumberDetails":
        """From the non-missing numbers of a column; columns: how many numeric columns there are."""
        present = numbers[np.isfinite(numbers)]
        center = float(present.mean()) if len(present) else 0.0
        spread = float(present.std()) if len(present) else 0.0
        whole = bool(np.all(present == np.round(present)))
        levels, waves, bins = (
            min(most, max(2, total // (share * columns)))
            for most, total, share in ((_LEVELS, _MOST_DETAILS, 3), (_WAVES, _MOST_WAVES, 4), (_BINS, _MOST_BINS, 1))
        )
        varied = len(np.unique(present)) if len(present) else 0
        frequencies = tuple(np.geomspace(1.0, 40.0, waves)) if varied > bins else ()
        edges = np.unique(np.quantile(present, np.linspace(0, 1, bins + 1)[1:-1])) if varied > 2 else np.zeros(0)
        many = whole and varied > max(_DIVISORS) and len(_DIVISORS) * columns <= _MOST_DIVIDED
        bits = _MORE_BITS if columns <= _FEW else min(_BITS, levels)
        return cls(center, spread or 1.0, varying_levels(present, levels), 0 if whole else bits,
                   frequencies, tuple(edges.tolist()), ticks_of(present, kind, whole=whole),
                   _DIVISORS if many else (), varied > _VARIED and _spans_decades(present))  # fmt: skip

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
            parts += [np.sin(angle), np.cos(angle), np.sin(angle + np.pi / 4), np.cos(angle + np.pi / 4)]
        if self.edges:
            parts.append(np.digitize(numbers, self.edges)[:, None] == np.arange(len(self.edges) + 1)[None, :])
        if self.levels:
            digits = np.stack([digit_at(numbers, level) for level in self.levels], axis=1)
            total = digits.sum(axis=1, keepdims=True)
            parts.append(total % 2)
            if self.divisors and len(self.levels) >= _LONG:
                parts += [total % 10 == np.arange(10), total % 3 / 2]
        if self.leading:
            first, power = leading_digits(numbers)
            parts += [first // 10 == np.arange(1, 10), first % 2, power, power % 2]
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


def leading_digits(numbers: Array) -> tuple[Array, Array]:
    """The first two significant digits as a number from 10 to 99, and the power of ten of the first: (rows, 1) each."""
    size = np.abs(numbers)[:, None]
    power = np.floor(np.log10(size, where=size > 0, out=np.zeros_like(size)) + 1e-9)
    return np.floor(size / 10.0 ** (power - 1) + 1e-6), power


def _spans_decades(present: Array) -> bool:
    size = np.abs(present[present != 0])
    low, high = np.quantile(size, [0.05, 0.95]) if len(size) else (1.0, 1.0)
    return bool(high > _DECADES * low)


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
