"""Columns determined by another column, as `education` determines `education-num`: found in data, kept in releases.

A release that breaks such a rule contains rows that cannot occur in the table. Anyone who sees one knows that the row
was changed, and if one group is changed more often than another, that reveals S.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil.data.bins import bin_shares
from fairveil.data.columns import FEWEST, MOST_CATEGORIES, Category, Column
from fairveil.data.frames import missing_mask

#: Rules are first tested on this many rows; most pairs of columns fail there.
_TRIED = 500
#: A rule is accepted if its probability under independence is below e to this power.
_UNLIKELY = -30.0
#: A number may determine another column by at most this many cuts of its range.
_MOST_CUTS = 128
#: The share of rows that may contradict a rule because they lie in intervals of too few rows.
_PASSED_OVER = 0.002


@dataclass(frozen=True)
class Dependency:
    """`column` is determined by `by`.

    values: the value of `column` for each category of `by`, or for each interval of its range; last, if `by` can be
    missing, the value in that case. None: no value. starts: for a number, where the intervals begin.
    """

    column: str
    by: str
    values: tuple[Category | None, ...]
    starts: tuple[float, ...] = ()


def find_dependencies(
    columns: Sequence[Column], table: pa.Table, fewest: int = FEWEST
) -> tuple[tuple[Column, ...], tuple[Dependency, ...]]:
    """All rules between the seen columns; and the columns, some with bins split so that they respect a rule.

    If two columns determine each other, the one that is kept, or else the first categorical one, is the determining
    one. fewest: the minimum number of rows that hold a value listed in a rule.
    """
    seen = [column for column in columns if column.seen]
    if len(seen) < 2 or not table.num_rows:
        return tuple(columns), ()
    codes = [_codes(column, table[column.name]) for column in seen]
    rules = _rules(seen, codes, table, fewest)
    kept = {column.name: column for column in columns}
    found: list[Dependency] = []
    order = sorted(range(len(seen)), key=lambda i: (seen[i].role != "keep", seen[i].kind != "categorical", i))
    place = {column: rank for rank, column in enumerate(order)}
    for j in range(len(seen)):
        for i in sorted(rules):
            mutual = i in rules.get(j, ())
            if j in rules[i] and not (mutual and place[j] < place[i]):
                by, rule = _dependency(kept[seen[i].name], seen[j], table, fewest)
                kept[by.name] = by
                found.append(rule)
    return tuple(kept[column.name] for column in columns), tuple(found)


def _codes(column: Column, values: pa.ChunkedArray) -> NDArray[np.int64]:
    """An integer for each value, -1 for "no value", -2 if the schema does not contain the value."""
    plain = values.combine_chunks()
    coded = plain.dictionary_encode() if not pa.types.is_dictionary(plain.type) else plain
    codes = np.asarray(pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
    codes[missing_mask(values)] = -1
    if column.kind == "categorical":
        known = set(column.categories)
        lost = np.array([value.as_py() not in known for value in coded.dictionary], dtype=bool)
        outside = lost[codes] if len(lost) else np.zeros(len(codes), dtype=bool)
    else:
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        low, high = column.lower, column.upper
        outside = (numbers < (-np.inf if low is None else low)) | (numbers > (np.inf if high is None else high))
    codes[outside & (codes >= 0)] = -2
    return codes


def _rules(
    columns: Sequence[Column], codes: list[NDArray[np.int64]], table: pa.Table, fewest: int
) -> dict[int, set[int]]:
    """For each column, the columns it determines on all rows, excluding chance."""
    every = np.stack(codes, axis=1)
    tried = np.arange(len(every))[:: max(1, len(every) // _TRIED)][:_TRIED]
    varied = [j for j in range(every.shape[1]) if len(np.unique(every[every[:, j] >= -1, j])) > 1]
    rules = {}
    for i in varied:
        if columns[i].kind == "categorical" and len(np.unique(every[:, i])) > MOST_CATEGORIES:
            continue
        likely = _candidates(columns[i], every[tried, i], every[tried], table[columns[i].name].take(pa.array(tried)))
        candidates = [j for j in varied if j != i and likely[j] and _holds(every[:, i], every[:, j])]
        kept = {j for j in candidates if _believed(columns[i], every[:, i], every[:, j], table, fewest)}
        if kept:
            rules[i] = kept
    return rules


def _candidates(
    by: Column, codes: NDArray[np.int64], others: NDArray[np.int64], values: pa.ChunkedArray
) -> NDArray[np.bool_]:
    """Which columns could be determined, judged on a few rows and for all columns at once: most pairs fail."""
    if by.kind == "categorical":
        order = np.argsort(codes, kind="stable")
        same = (codes[order][1:] == codes[order][:-1]) & (codes[order][1:] >= -1)
        before, after = others[order][:-1][same], others[order][1:][same]
        return np.asarray(~((before != after) & (before >= -1) & (after >= -1)).any(axis=0))
    order = np.argsort(values.to_numpy(zero_copy_only=False).astype(np.float64), kind="stable")
    changes = (others[order][1:] != others[order][:-1]).sum(axis=0)
    # Rows outside the schema's values may interrupt an interval.
    return np.asarray(changes <= 2 * _MOST_CUTS)


def _believed(by: Column, codes: NDArray[np.int64], column: NDArray[np.int64], table: pa.Table, fewest: int) -> bool:
    """Whether a rule is unlikely to hold by chance. For a number, few intervals of its range must suffice."""
    if by.kind == "categorical":
        return _chance(codes, column) < _UNLIKELY
    starts = _pieces(by, codes, column, table, fewest)
    if starts is None:
        return False
    pieces = np.where(codes >= 0, _places(by, starts, table[by.name]), codes)
    # The intervals were chosen to fit: each could begin at any row.
    return _chance(pieces, column) + len(starts) * math.log(len(codes)) < _UNLIKELY


def _holds(by: NDArray[np.int64], column: NDArray[np.int64]) -> bool:
    both = (by >= -1) & (column >= -1)
    by, column = by[both], column[both]
    order = np.argsort(by, kind="stable")
    same = by[order][1:] == by[order][:-1]
    return not bool((column[order][1:] != column[order][:-1])[same].any())


def _chance(by: NDArray[np.int64], column: NDArray[np.int64]) -> float:
    """The log of the probability that the rule holds if the two columns are independent."""
    both = (by >= -1) & (column >= -1)
    shares = np.unique(column[both], return_counts=True)[1] / max(int(both.sum()), 1)
    sizes = np.unique(by[both], return_counts=True)[1]
    return sum(math.log(max(float((shares**size).sum()), 1e-300)) for size in sizes[sizes > 1])


def _dependency(by: Column, column: Column, table: pa.Table, fewest: int) -> tuple[Column, Dependency]:
    """The rule with its values, and the determining column, with each bin inside one interval."""
    if by.kind == "categorical":
        return by, Dependency(column.name, by.name, _values(by, by.categories, column, table, fewest))
    codes = _codes(by, table[by.name]), _codes(column, table[column.name])
    starts = _pieces(by, *codes, table, fewest)
    assert starts is not None
    cut = _split(by, starts, table[by.name], fewest) if by.starts else by
    return cut, Dependency(column.name, by.name, _values(by, starts, column, table, fewest), starts)


def _split(by: Column, starts: tuple[float, ...], values: pa.ChunkedArray, fewest: int) -> Column:
    """A number whose bins also begin at these starts."""
    bins = tuple(sorted({*by.starts, *starts}))
    numbers = values.filter(pa.array(~missing_mask(values))).to_numpy().astype(np.float64)
    return replace(by, starts=bins, shares=bin_shares(bins, by.grid or 0.0, numbers, fewest))


def _values(
    by: Column, slots: Sequence[Any], column: Column, table: pa.Table, fewest: int
) -> tuple[Category | None, ...]:
    """The value of `column` in each slot of `by`; for slots with few rows, the value of the nearest slot below."""
    places = _places(by, slots, table[by.name])
    known = _codes(column, table[column.name])
    usable = np.flatnonzero((places >= 0) & (known >= -1))
    where, rows, counts = np.unique(places[usable], return_index=True, return_counts=True)
    values = table[column.name]
    first = {int(slot): values[int(usable[row])].as_py() for slot, row, count in zip(where, rows, counts, strict=True)
             if count >= fewest}  # fmt: skip
    out: list[Category | None] = []
    fallback = first[min(first)] if first else column.default if column.kind == "categorical" else column.center
    for slot in range(len(slots) + by.missing):
        fallback = first.get(slot, fallback)
        out.append(None if fallback is None or fallback != fallback else fallback)
    return tuple(out)


def _places(column: Column, slots: Sequence[Any], values: pa.ChunkedArray) -> NDArray[np.int64]:
    """The slot of each value, one past the last for "no value"; -1 if the schema does not contain the value."""
    if column.kind == "categorical":
        position = {value: i for i, value in enumerate(slots)}
        places = np.array([position.get(value, -1) for value in values.to_pylist()], dtype=np.int64)
    else:
        numbers = values.to_numpy(zero_copy_only=False).astype(np.float64)
        places = np.searchsorted(np.asarray(slots), numbers + 0.5 * (column.grid or 0.0), side="right") - 1
    places[_codes(column, values) == -2] = -1
    places[missing_mask(values)] = len(slots) if column.missing else -1
    return places


def _pieces(
    by: Column, codes: NDArray[np.int64], column: NDArray[np.int64], table: pa.Table, fewest: int
) -> tuple[float, ...] | None:
    """Where the intervals of a number begin on which another column is constant; None if there are too many.

    codes, column: the codes of both columns, row by row. Intervals of few rows are ignored as long as they are rare:
    for an unrelated column, nearly all intervals are short.
    """
    if by.lower is None or by.grid is None:
        return None
    usable = np.flatnonzero((codes >= 0) & (column >= -1))
    numbers = table[by.name].to_numpy(zero_copy_only=False).astype(np.float64)[usable]
    order = np.argsort(numbers, kind="stable")
    numbers, values = numbers[order], column[usable][order]
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    sizes = np.diff(np.append(begins, len(values)))
    if sizes[sizes < fewest].sum() > _PASSED_OVER * len(values):
        return None
    begins = begins[sizes >= fewest]
    if not len(begins) or len(begins) > _MOST_CUTS:
        return None
    cuts = [_cut(float(numbers[row - 1]), float(numbers[row]), by) for row in begins[1:]]
    return (by.lower, *cuts)


def _cut(low: float, high: float, by: Column) -> float:
    """Where to cut between two values: at an existing bin edge, or else at a round number."""
    assert by.grid is not None
    between = [start for start in by.starts if low + 0.5 * by.grid < start < high + 0.5 * by.grid]
    return between[0] if between else _round_between(low, high, by.grid, by.grid if by.type else 1.0)


def _round_between(low: float, high: float, grid: float, base: float) -> float:
    """The roundest grid point above `low` and up to `high`; `base` is the unit of round numbers."""
    widest, finest = math.ceil(math.log10(max(high - low, grid) / base)) + 1, math.floor(math.log10(grid / base))
    for power in range(widest, finest - 1, -1):
        unit = max(base * 10.0**power, grid)
        candidate = math.floor(high / unit + 1e-9) * unit
        if candidate > low + 0.5 * grid:
            return round(candidate, max(0, -math.floor(math.log10(grid)) + 1))
    return high


@dataclass(frozen=True)
class Link:
    """A dependency as positions in a tensor.

    column: the determined column. source: start and stop of the determining one-hot group; None for a number without
    bins. target: the same for the determined group; None if it has none. number, source_number: positions among all
    numbers; None for categorical columns. edges: where the intervals of a number without bins begin, on the tensor's
    scale. gone: the group, and the slot in it, that mark the number as missing. slots: for each source slot or
    interval, the target slot (from 0); values: the number, on the tensor's scale. defaults: for each target slot, the
    source slot to use if the two contradict each other; default_values: the number in that case. repeated: an earlier
    link determines the same target, so here the source is adjusted instead.
    """

    column: str
    source: tuple[int, int] | None
    target: tuple[int, int] | None
    source_number: int | None
    number: int | None
    edges: tuple[float, ...]
    gone: tuple[int, int] | None
    slots: tuple[int, ...]
    values: tuple[float, ...]
    defaults: tuple[int, ...]
    default_values: tuple[float, ...]
    repeated: bool
