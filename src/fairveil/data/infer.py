"""Infer the description of a column from data.

A schema is written into veils, which are published, so nothing in it may be the value of a few people: categories,
ends of ranges and bins need `FEWEST` rows each, and edges are round numbers.
"""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairveil.data.bins import MOST_BINS, bin_shares, bin_starts, tidy
from fairveil.data.columns import FEWEST, MOST_CATEGORIES, Column, Role, family_of
from fairveil.data.frames import missing_mask
from fairveil.data.types import steps_of

#: Maximum number of grid steps in a number's range: float32 still represents them exactly.
MOST_STEPS = 2**22
#: Clipping may cost this share of the variance before the range is widened.
_CLIP_COST = 0.002


def infer_column(
    name: str,
    values: pa.ChunkedArray,
    role: Role = "encode",
    scale: Literal["std", "range"] = "std",
    *,
    coded: bool = False,
    fewest: int = FEWEST,
    type_: str | None = None,
    most: int = MOST_BINS,
) -> tuple[Column, list[str]]:
    """Describe one column, and list what makes it unusable (empty if nothing does).

    coded: the caller stores the column as categories, so its numbers are labels. fewest: see `Schema.infer`. type_: the
    original type of numbers that represent dates, times or decimals. most: about how many bins a number may have.
    """
    missing = missing_mask(values)
    family = family_of(values.type)
    plain = Column(name, "categorical", role, family or "string", bool(missing.any()), type=type_)
    if role in ("drop", "sensitive", "pass"):
        return plain, []
    if family is None:
        return plain, [f"Column {name!r} has the type {values.type}, which cannot be encoded. "
                       "Convert it to a number or text, or give it the role 'drop'."]  # fmt: skip
    if missing.all():
        return plain, [f"Column {name!r} holds no values. Give it the role 'drop'."]
    present = values.filter(pa.array(~missing))
    if family == "number" and not coded:
        return _infer_number(plain, present.to_numpy(), pa.types.is_floating(values.type), scale, fewest, most)
    return _infer_categories(plain, present, fewest)


def _infer_categories(column: Column, present: pa.ChunkedArray, fewest: int) -> tuple[Column, list[str]]:
    every = pc.value_counts(present)
    counts = [count for count in every if count["counts"].as_py() >= fewest]
    values = [count["values"].as_py() for count in counts]
    if not values:
        return column, [
            f"Column {column.name!r} has {len(every)} distinct values, and none that {fewest} rows share: a name or an "
            "identifier cannot be censored. Give it the role 'drop', or group its values first."
        ]
    if len(values) > MOST_CATEGORIES:
        return column, [
            f"Column {column.name!r} has {len(values)} distinct values, more than {MOST_CATEGORIES}: a name or an "
            "identifier cannot be censored. Give it the role 'drop', or group its values first."
        ]
    sizes = [count["counts"].as_py() for count in counts]
    default = values[int(np.argmax(sizes))]
    return replace(column, categories=tuple(sorted(values)), default=default, rare=len(counts) < len(every)), []


def _infer_number(
    column: Column, values: np.ndarray, floating: bool, scale: Literal["std", "range"], fewest: int, most: int
) -> tuple[Column, list[str]]:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        where = f"in {int((~np.isfinite(values)).sum())} rows"
        return column, [f"Column {column.name!r} holds infinity {where}. Replace it with a number or a missing value."]
    raw, every = values, np.unique(values)
    values = _without_extremes(values, fewest)
    distinct = np.unique(values)
    if len(distinct) <= 2:
        distinct = np.array([v for v in distinct if (raw == v).sum() >= min(fewest, len(raw))] or distinct[:1])
        values = values[np.isin(values, distinct)]
        whole = np.all(distinct == np.round(distinct)) and not floating
        categories = tuple(int(v) if whole else float(v) for v in distinct)
        common = categories[int(np.argmax([(values == v).sum() for v in distinct]))]
        return replace(column, categories=categories, default=common, rare=len(every) > len(distinct)), []
    lower, upper = float(distinct[0]), float(distinct[-1])
    steps = steps_of(column.type) if column.type else ()
    if not steps and (upper - lower > 1e12 or max(abs(lower), abs(upper)) > 1e15):
        return column, [
            f"Column {column.name!r} spans too large a range for an ordinary number: it may be an identifier. "
            "Give it the role 'drop', or rescale it."
        ]
    grid = _clock_grid(distinct, every, steps) if steps else _grid(distinct, every)
    whole = grid >= 1.0 and bool(np.all((distinct - lower) % grid == 0))
    # For dates and times, round numbers are round multiples of the grid.
    base = grid if steps else 1.0
    low_unit, high_unit = (_end_unit(raw, end, upper - lower, grid, fewest, base) for end in (lower, upper))
    lower, upper = math.floor(lower / low_unit) * low_unit, math.ceil(upper / high_unit) * high_unit
    lower, upper = tidy(lower, grid), tidy(upper, grid)
    if fewest > 1 and len(raw) >= 2 * fewest:
        lower, upper = _wider(raw, lower, upper, grid, fewest, base, most)
    values = np.clip(raw, lower, upper)
    spread = float(values.std()) if scale == "std" else upper - lower
    middle = float(np.median(values))
    centre = lower if scale == "range" else middle if fewest <= 1 else _rounded(middle, grid, spread, base)
    starts = bin_starts(values, lower, grid, fewest, most)
    return (
        replace(
            column,
            kind="integer" if whole else "continuous",
            lower=lower,
            upper=upper,
            grid=grid,
            clipped=float(np.mean((raw < lower) | (raw > upper))),
            center=centre,
            scale=spread,
            starts=starts,
            shares=bin_shares(starts, grid, values, fewest),
        ),
        [],
    )


def _without_extremes(values: np.ndarray, fewest: int) -> np.ndarray:
    """Numbers clipped to a range whose ends are each reached by at least `fewest` rows."""
    if fewest <= 1 or len(values) < 2 * fewest:
        return values
    ordered = np.partition(values, [fewest - 1, len(values) - fewest])
    return np.asarray(np.clip(values, ordered[fewest - 1], ordered[len(values) - fewest]))


def power_of_ten(size: float, base: float = 1.0) -> float:
    """The largest power of ten times `base` that does not exceed `size`."""
    return float(base * 10.0 ** math.floor(math.log10(size / base)))


def _wider(
    values: np.ndarray, lower: float, upper: float, grid: float, fewest: int, base: float, most: int
) -> tuple[float, float]:
    """The range, widened if clipping the few rows outside it would cost much.

    In a wider range they share a bin with others and are drawn from it, which can cost less than clipping them. Ends
    are round numbers, and the bin holds at least as many rows as any other must.
    """
    inside = np.clip(values, lower, upper)
    if float(((values - inside) ** 2).sum()) <= _CLIP_COST * float(inside.var()) * len(values):
        return lower, upper
    unit = max(power_of_ten((upper - lower) / 20, base), grid)
    # By half of the range at most: otherwise one outlier's typing error could be drawn for ten other rows.
    steps = np.array([0.05, 0.1, 0.2, 0.3, 0.5]) * (upper - lower)
    uppers = [upper, *(np.ceil((upper + steps[upper + steps < values.max() + unit]) / unit) * unit)]
    lowers = [lower, *(np.floor((lower - steps[lower - steps > values.min() - unit]) / unit) * unit)]
    upper = float(min(uppers, key=lambda end: _loss(values, lower, float(end), grid, fewest, most)))
    lower = float(min(lowers, key=lambda end: _loss(values, float(end), upper, grid, fewest, most)))
    return tidy(lower, grid), tidy(upper, grid)


def _loss(values: np.ndarray, lower: float, upper: float, grid: float, fewest: int, most: int) -> float:
    """The squared cost of clipping to this range and drawing within its bins."""
    inside = np.clip(values, lower, upper)
    starts = np.asarray(bin_starts(inside, lower, grid, fewest, most))
    lows, highs = starts, np.append(starts[1:] - grid, upper)
    bins = np.searchsorted(starts, inside + 0.5 * grid, side="right") - 1
    middles, widths = ((lows + highs) / 2)[bins], (highs - lows)[bins]
    return float(((values - middles) ** 2 + ((widths + grid) ** 2 - grid**2) / 12).sum())


def _end_unit(values: np.ndarray, end: float, span: float, grid: float, fewest: int, base: float) -> float:
    """The unit to which an end of the range is rounded: the grid if many rows hold it, else a rounder number."""
    if len(values) < 2 * fewest:  # too few rows to reveal any of their values
        return max(power_of_ten(span, base), grid)
    common = int((values == end).sum()) >= fewest
    return grid if common else max(power_of_ten(span / 200, base), grid)


def _grid(distinct: np.ndarray, every: np.ndarray) -> float:
    """The coarsest power of ten on which all values lie, made coarser if float32 could not resolve its steps.

    distinct: values within the range. every: all values, which lie on the grid too.
    """
    span = float(distinct[-1] - distinct[0])
    finest = math.ceil(math.log10(span / MOST_STEPS))
    for power in range(math.floor(math.log10(span)), finest - 1, -1):
        if np.allclose(every, np.round(every, -power), rtol=0.0, atol=10.0**power * 1e-6):
            return float(10.0**power)
    return float(10.0**finest)


def _clock_grid(distinct: np.ndarray, every: np.ndarray, steps: tuple[float, ...]) -> float:
    """The coarsest time unit on which all values lie, or a coarser one if float32 could not resolve that many steps."""
    span = float(distinct[-1] - distinct[0])
    exact = next((i for i, step in enumerate(steps) if np.all(every % step == 0)), len(steps) - 1)
    return next((step for step in steps[exact::-1] if span / step <= MOST_STEPS), steps[0])


def _rounded(value: float, grid: float, spread: float, base: float) -> float:
    """A number rounded to a tenth of the spread or finer: the exact median is one person's value."""
    unit = max(power_of_ten(spread / 10, base), grid) if spread > 0 else grid
    return tidy(round(value / unit) * unit, unit)
