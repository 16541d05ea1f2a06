"""Dates, times, durations and decimals: converted to numbers for encoding, and back for releases.

A date is a number of days, any other timestamp, time or duration a number of microseconds, a decimal a float.
`Column.type` records the original type: the name of an arrow type or, for text in a CSV file, its format pattern.
"""

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

#: Microseconds in a day, an hour, ten minutes, a minute, ten seconds, ...: possible time grids, the coarsest first.
_STEPS: Final = (86_400_000_000, 3_600_000_000, 600_000_000, 60_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000,
                 100, 10, 1)  # fmt: skip
_MINUTE, _SECOND, _MILLISECOND = 60_000_000, 1_000_000, 1_000
_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DATE = r"\d{4}-\d{2}-\d{2}"
_CLOCK = {"%H:%M": r"\d{2}:\d{2}", "%H:%M:%S": r"\d{2}:\d{2}:\d{2}"}
_FRACTIONS = {".fff": r"\.\d{3}", ".ffffff": r"\.\d{6}"}
#: Text patterns and the regular expressions that match them. strptime has no code for fractions of a second: `.fff`.
_TEXTS: Final[dict[str, str]] = {
    "%Y-%m-%d": _DATE,
    **_CLOCK,
    **{f"%H:%M:%S{f}": _CLOCK["%H:%M:%S"] + digits for f, digits in _FRACTIONS.items()},
    **{f"%Y-%m-%d{between}{pattern}": _DATE + between + clock for between in " T" for pattern, clock in _CLOCK.items()},
    **{f"%Y-%m-%d{between}%H:%M:%S{f}": _DATE + between + _CLOCK["%H:%M:%S"] + digits
       for between in " T" for f, digits in _FRACTIONS.items()},
}  # fmt: skip
_NAME = re.compile(
    r"date32\[day\]|date64\[ms\]|timestamp\[(s|ms|us|ns)(, tz=([A-Za-z0-9_+\-/:]{1,64}))?\]|time32\[(s|ms)\]"
    r"|time64\[(us|ns)\]|duration\[(s|ms|us|ns)\]|decimal(32|64|128|256)\((\d{1,2}), (\d{1,2})\)"
)


def is_moment(kind: pa.DataType) -> bool:
    """Whether an arrow type is a date, time, timestamp or duration."""
    return bool(pa.types.is_temporal(kind) and not pa.types.is_interval(kind))


def stands_for_number(kind: pa.DataType) -> bool:
    """Whether values of an arrow type are converted to numbers for encoding."""
    return is_moment(kind) or bool(pa.types.is_decimal(kind))


def type_name(kind: pa.DataType) -> str | None:
    """The schema's name for an arrow type that is converted to numbers; None for any other."""
    return str(kind) if stands_for_number(kind) else None


def to_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Dates as days, times and durations as microseconds, decimals as floats; any other column unchanged."""
    kind = column.type
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if not is_moment(kind):
        return column
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    whole = pa.int32() if pa.types.is_time32(kind) else pa.int64()
    ticks = column.cast(whole).cast(pa.int64())
    # A float cannot resolve nanoseconds in a timestamp: the last three digits are dropped.
    return pc.divide(ticks, 1000) if kind.unit == "ns" else pc.multiply(ticks, _TICKS[kind.unit])


def from_numbers(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Numbers converted back to the arrow type they represent."""
    if pa.types.is_decimal(kind):
        return pc.round(column.cast(pa.float64()), kind.scale).cast(kind, safe=False)
    low, high = _range(kind)
    numbers = pc.min_element_wise(column.cast(pa.float64()), high, skip_nulls=False)
    numbers = pc.max_element_wise(numbers, low, skip_nulls=False)
    whole = pc.round(numbers).cast(pa.int64())
    if pa.types.is_date(kind):
        return whole.cast(pa.int32()).cast(pa.date32()).cast(kind)
    ticks = pc.multiply(whole, 1000) if kind.unit == "ns" else pc.divide(whole, _TICKS[kind.unit])
    return ticks.cast(pa.int32()).cast(kind) if pa.types.is_time32(kind) else ticks.cast(kind)


def _range(kind: pa.DataType) -> tuple[float, float]:
    """The smallest and largest number that a date or time may be: the years 1 to 9999, the times of a day."""
    if pa.types.is_date(kind):
        return -719_162.0, 2_932_896.0
    if pa.types.is_time(kind):
        return 0.0, 86_399_999_999.0
    return -719_162.0 * _STEPS[0], 2_932_896.0 * _STEPS[0]


def arrow_type(name: str) -> pa.DataType:
    """The arrow type for a type name in a schema, or for a text pattern. Raises ValueError."""
    if name in _TEXTS:
        if "%Y" not in name:
            return pa.time64("us")
        return pa.date32() if name == "%Y-%m-%d" else pa.timestamp("us")
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError("not the type of a date, a time or a decimal")
    stamp, _, zone, time32, time64, span, bits, digits, scale = match.groups()
    if stamp:
        return pa.timestamp(stamp, zone)
    if time32 or time64:
        return pa.time32(time32) if time32 else pa.time64(time64)
    if span:
        return pa.duration(span)
    if bits:
        make = {"32": pa.decimal32, "64": pa.decimal64, "128": pa.decimal128, "256": pa.decimal256}[bits]
        return make(int(digits), int(scale))
    return pa.date32() if name.startswith("date32") else pa.date64()


def is_type(name: str) -> bool:
    """Whether this is a valid column type in a schema."""
    try:
        arrow_type(name)
    except (ValueError, pa.ArrowException):
        return False
    return True


def steps_of(name: str) -> tuple[float, ...]:
    """Possible grids for numbers of this type, the coarsest first; empty if grids are powers of ten."""
    kind = arrow_type(name)
    if pa.types.is_decimal(kind):
        return ()
    return (1.0,) if pa.types.is_date(kind) else tuple(map(float, _STEPS))


def text_pattern(text: pa.ChunkedArray) -> str | None:
    """The date or time pattern that all cells of a CSV column match; None if there is none."""
    present = pc.drop_null(text)
    if not len(present):
        return None
    first = present[0].as_py()
    for pattern, letters in _TEXTS.items():
        if re.fullmatch(letters, first):
            return pattern if _moments(present, pattern) is not None else None
    return None


def from_pattern(text: pa.ChunkedArray, name: str) -> tuple[pa.ChunkedArray, list[int]]:
    """Cells of a CSV file as numbers, and the positions of those that do not match the pattern. name: the type of the
    column; if it is not a pattern itself, the pattern of the first cell is used.
    """
    present = pc.drop_null(text)
    pattern = name if name in _TEXTS else next(
        (p for p, letters in _TEXTS.items() if len(present) and re.fullmatch(letters, present[0].as_py())), None
    )  # fmt: skip
    if pattern is None or _sort(arrow_type(pattern)) != _sort(arrow_type(name)):
        return text, [i for i, cell in enumerate(text.to_pylist()) if cell is not None][:10]
    found = _moments(text, pattern)
    if found is not None:
        return to_numbers(found), []
    wrong = pc.invert(pc.fill_null(pc.match_substring_regex(text, f"^{_TEXTS[pattern]}$"), True))
    return text, [int(i) for i in pc.indices_nonzero(wrong).to_pylist()] or [0]


def to_pattern(column: pa.ChunkedArray, name: str, grid: float) -> pa.ChunkedArray:
    """Dates and times as text: in the column's own CSV pattern, or in one that resolves its grid. Durations as whole
    numbers of their unit.
    """
    kind = column.type
    if pa.types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.string())
    if name in _TEXTS:
        pattern = name
    elif pa.types.is_date(kind):
        pattern = "%Y-%m-%d"
    else:
        clock = "%H:%M" if grid % _MINUTE == 0 else "%H:%M:%S"
        clock += "" if grid % _SECOND == 0 else ".fff" if grid % _MILLISECOND == 0 else ".ffffff"
        pattern = clock if pa.types.is_time(kind) else f"%Y-%m-%d {clock}"
    plain, _, fraction = pattern.partition(".")
    if pa.types.is_time(kind):
        column = column.cast(pa.time64("us")).cast(pa.int64()).cast(pa.timestamp("us"))
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz))
    else:
        column = column.cast(pa.timestamp("us"))
    text = pc.strftime(column, plain)
    if "%S" not in plain:
        return text
    # Seconds are written with their fraction, then truncated to the number of digits in the pattern.
    length = len(plain.replace("%Y", "2000").replace("%", "")) + (1 + len(fraction) if fraction else 0)
    return pc.utf8_slice_codeunits(text, 0, length + plain.count("%") - ("%Y" in plain))


def same_sort(kind: pa.DataType | None, name: str | None) -> bool:
    """Whether an arrow type agrees with a schema's type: both dates, both timestamps, ..., or both plain numbers."""
    if kind is None or name is None:
        return kind is None and name is None
    return _sort(kind) == _sort(arrow_type(name))


def _sort(kind: pa.DataType) -> str:
    return re.split(r"[\[\d(]", str(kind), maxsplit=1)[0]


def _moments(text: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray | None:
    """Cells as dates or times; None if any does not match the pattern or is not a valid date."""
    if not pc.all(pc.fill_null(pc.match_substring_regex(text, f"^{_TEXTS[pattern]}$"), True)).as_py():
        return None
    if "%Y" not in pattern:
        text = pc.binary_join_element_wise("1970-01-01", text, " ")
    try:
        return text.cast(pa.timestamp("us")).cast(arrow_type(pattern))
    except pa.ArrowInvalid:  # its message shows the cell
        return None
