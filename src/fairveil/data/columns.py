"""One column: what it is, which values a release may hold, and how all that is read off data.

A schema is written into veils, which are handed on, so nothing in it may be the value of a few people: categories, ends
of ranges and bins need `FEWEST` rows each, and edges are round numbers.
"""

import math
import unicodedata
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairveil.data.frames import missing_mask

Role = Literal["sensitive", "encode", "drop", "keep", "pass"]
Kind = Literal["categorical", "continuous", "integer"]
Family = Literal["string", "number", "boolean"]
Category = str | int | float | bool

#: Rows that must share a category, reach an end of a range, or lie in a bin, for a schema to tell of it.
FEWEST = 10
#: More categories than this are taken for names or identifiers, which no encoder can hide.
MOST_CATEGORIES = 512
#: Steps of the grid a number may take: a float32 tensor still tells them apart exactly.
MOST_STEPS = 2**22
#: A number is released by drawing one of about this many bins (twice that for a heavy tail), then a point within it.
MOST_BINS = 64
#: A value held by this share of the rows is a bin of its own, so that spikes survive.
_SPIKE = 0.002
#: Bins are cut until drawing within them costs at most this share of the variance.
_BIN_COST = 0.01
#: Rows beyond the range may cost this share of the variance before the range is made wider.
_CLIP_COST = 0.002
#: Limits of what a schema that was read from a file may hold.
_MOST_LISTED, _LONGEST_TEXT = 2**16, 2**16


@dataclass(frozen=True)
class Column:
    """One column: what it is, what is done with it, and which values a release may hold.

    role: `encode` (released, censored), `keep` (released as it is, seen by every adversary), `pass` (released as it
        is, seen by nobody: names, identifiers), `drop` or `sensitive` (not released). None: not decided yet, which
        no schema accepts.
    kind: `categorical`, `continuous`, or `integer` (a number on a grid).
    missing: whether "no value" is one of the values.
    categories, default: the values of a categorical column; the most frequent one. rare: there were others, too rare to
        be listed; they are read as the default.
    lower, upper, grid: the range and the step of a number; None leaves it unbounded or unrounded. clipped: the share of
        the rows that lay beyond the range, and are moved to its end.
    center, scale: a number x enters a tensor as (x - center) / scale, and distortion is counted in that unit
        (`scale` is the standard deviation unless you change it).
    starts: where the bins of a number begin, the first at `lower`. A release draws a bin, then a grid point within it;
        spikes are bins of their own. Empty: the number is released with additive noise instead.
    """

    name: str
    kind: Kind
    role: Role | None = "encode"
    family: Family = "string"
    missing: bool = False
    categories: tuple[Category, ...] = ()
    default: Category | None = None
    rare: bool = False
    lower: float | None = None
    upper: float | None = None
    grid: float | None = None
    clipped: float = 0.0
    center: float = 0.0
    scale: float = 1.0
    starts: tuple[float, ...] = ()

    @property
    def released(self) -> bool:
        """Whether the column is part of what is released."""
        return self.role in ("encode", "keep", "pass")

    @property
    def seen(self) -> bool:
        """Whether encoders and adversaries see it: whether it has a place in a tensor."""
        return self.role in ("encode", "keep")

    def problems(self) -> list[str]:
        """Everything that is wrong with this column's description."""
        if problem := name_problem(self.name):
            return [f"A column of the schema {problem}"]
        where, found = f"Column {self.name!r} of the schema", self._wrong_types()
        if found:
            return found
        if self.kind not in get_args(Kind):
            found.append(f"{where} has the unknown kind {self.kind!r}. Use one of {', '.join(get_args(Kind))}.")
        if self.role is None:
            return [f"{where} has no role yet. Give it one of {', '.join(get_args(Role))}."]
        if self.role not in get_args(Role):
            found.append(f"{where} has the unknown role {self.role!r}. Use one of {', '.join(get_args(Role))}.")
        if self.kind == "categorical" and self.seen and not self.categories:
            found.append(f"{where} is categorical but lists no categories.")
        if self.seen and len(self.categories) + len(self.starts) > 8 * MOST_CATEGORIES:
            found.append(f"{where} lists more than {8 * MOST_CATEGORIES} values. Give it the role 'drop' or 'pass'.")
        if len(set(self.categories)) < len(self.categories):
            found.append(f"{where} lists a category twice.")
        if not (math.isfinite(self.scale) and self.scale > 0 and math.isfinite(self.center)):
            found.append(f"{where} needs a finite center and a finite scale above 0.")
        if self.grid is not None and not (math.isfinite(self.grid) and self.grid > 0):
            found.append(f"{where} needs a grid above 0, or null for none.")
        if self.grid is not None and self.lower is None:
            found.append(f"{where} has a grid but no lower end for it to start from.")
        if self.lower is not None and self.upper is not None and not self.lower <= self.upper:
            found.append(f"{where} has a lower end above its upper end.")
        if self.starts and (self.grid is None or self.upper is None or self.starts[0] != self.lower):
            found.append(f"{where} has bins, so it needs a grid and a range, and the first bin must start at 'lower'.")
        if any(a >= b for a, b in pairwise(self.starts)) or (
            self.starts and self.starts[-1] > (self.upper or math.inf)
        ):
            found.append(f"{where} needs bins that start in rising order within its range.")
        return found

    def _wrong_types(self) -> list[str]:
        """Fields that hold what they cannot: a schema may come from a file that somebody crafted."""
        where = f"Column {self.name!r} of the schema"
        texts = (self.kind, self.role, self.family)
        found = [f"{where} has {name} = {shown(value)}, which must be a text."
                 for name, value in zip(("kind", "role", "family"), texts, strict=True)
                 if not isinstance(value, str | None)]  # fmt: skip
        if self.family not in get_args(Family) and not found:
            found.append(f"{where} has the unknown family {shown(self.family)}. Use {', '.join(get_args(Family))}.")
        found += [f"{where} has {name} = {shown(getattr(self, name))}, which must be true or false."
                  for name in ("missing", "rare") if not isinstance(getattr(self, name), bool)]  # fmt: skip
        for name in ("lower", "upper", "grid", "center", "scale", "clipped"):
            value = getattr(self, name)
            optional = value is None and name in ("lower", "upper", "grid")
            if not optional and not _is_number(value):
                found.append(f"{where} has {name} = {shown(value)}, which must be a finite number.")
        for name, right in (("categories", _is_category), ("starts", _is_number)):
            values = getattr(self, name)
            if not isinstance(values, tuple) or len(values) > _MOST_LISTED or not all(map(right, values)):
                found.append(f"{where} must list {name} as at most {_MOST_LISTED} plain values.")
        if self.default is not None and not _is_category(self.default):
            found.append(f"{where} must have a plain value as its default.")
        if not found and not all(_is_of(self.family, value) for value in self.categories):
            found.append(f"{where} lists categories that are not of its family, {self.family}.")
        return found

    def bins(self) -> np.ndarray:
        """The lowest and highest grid point of every bin, in the caller's units: (bins, 2)."""
        assert self.grid is not None
        assert self.upper is not None
        starts = np.asarray(self.starts)
        return np.stack([starts, np.append(starts[1:] - self.grid, self.upper)], axis=1)


def infer_column(
    name: str,
    values: pa.ChunkedArray,
    role: Role = "encode",
    scale: Literal["std", "range"] = "std",
    *,
    coded: bool = False,
    fewest: int = FEWEST,
) -> tuple[Column, list[str]]:
    """Describe one column, with a list of what makes it unusable (empty when all is well).

    coded: the caller holds the column as categories, so its numbers are names. fewest: see `Schema.infer`.
    """
    missing = missing_mask(values)
    family = family_of(values.type)
    plain = Column(name, "categorical", role, family or "string", bool(missing.any()))
    if role in ("drop", "sensitive", "pass"):
        return plain, []
    if family is None:
        return plain, [f"Column {name!r} has the type {values.type}, which cannot be encoded. "
                       "Convert it to a number or a text, or give it the role 'drop'."]  # fmt: skip
    if missing.all():
        return plain, [f"Column {name!r} holds no value at all. Give it the role 'drop'."]
    present = values.filter(pa.array(~missing))
    if family == "number" and not coded:
        return _infer_number(plain, present.to_numpy(), pa.types.is_floating(values.type), scale, fewest)
    return _infer_categories(plain, present, fewest)


def family_of(kind: pa.DataType) -> Family | None:
    """What sort of values an arrow type holds; None for those that cannot be encoded."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    return "string" if pa.types.is_null(kind) else None


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
    column: Column, values: np.ndarray, floating: bool, scale: Literal["std", "range"], fewest: int
) -> tuple[Column, list[str]]:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        where = f"in {int((~np.isfinite(values)).sum())} rows"
        return column, [f"Column {column.name!r} holds infinity {where}. Replace it by a number or by a missing value."]
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
    if upper - lower > 1e12 or max(abs(lower), abs(upper)) > 1e15:
        return column, [
            f"Column {column.name!r} spans more than a table of ordinary numbers: it may be an identifier. "
            "Give it the role 'drop', or rescale it."
        ]
    grid = _grid(distinct, every)
    whole = grid >= 1.0 and bool(np.all((distinct - lower) % grid == 0))
    low_unit, high_unit = (_end_unit(raw, end, upper - lower, grid, fewest) for end in (lower, upper))
    lower, upper = math.floor(lower / low_unit) * low_unit, math.ceil(upper / high_unit) * high_unit
    lower, upper = _tidy(lower, grid), _tidy(upper, grid)
    if fewest > 1 and len(raw) >= 2 * fewest:
        lower, upper = _wider(raw, lower, upper, grid, fewest)
    values = np.clip(raw, lower, upper)
    spread = float(values.std()) if scale == "std" else upper - lower
    middle = float(np.median(values))
    centre = lower if scale == "range" else middle if fewest <= 1 else _rounded(middle, grid, spread)
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
            starts=_bin_starts(values, lower, grid, fewest),
        ),
        [],
    )


def _without_extremes(values: np.ndarray, fewest: int) -> np.ndarray:
    """Numbers moved to the range whose ends at least `fewest` rows reach or pass."""
    if fewest <= 1 or len(values) < 2 * fewest:
        return values
    ordered = np.partition(values, [fewest - 1, len(values) - fewest])
    return np.asarray(np.clip(values, ordered[fewest - 1], ordered[len(values) - fewest]))


def _wider(values: np.ndarray, lower: float, upper: float, grid: float, fewest: int) -> tuple[float, float]:
    """The range, perhaps wider, where the few rows beyond it would lose much.

    In a wider range they share one bin with others and are drawn anew in it, which can cost less than to clip them.
    Ends are round numbers, and the bin holds as many rows as any.
    """
    inside = np.clip(values, lower, upper)
    if float(((values - inside) ** 2).sum()) <= _CLIP_COST * float(inside.var()) * len(values):
        return lower, upper
    unit = max(10.0 ** math.floor(math.log10((upper - lower) / 20)), grid)
    # By half of the range at most: the values of one typing error must not become those of ten others.
    steps = np.array([0.05, 0.1, 0.2, 0.3, 0.5]) * (upper - lower)
    uppers = [upper, *(np.ceil((upper + steps[upper + steps < values.max() + unit]) / unit) * unit)]
    lowers = [lower, *(np.floor((lower - steps[lower - steps > values.min() - unit]) / unit) * unit)]
    upper = float(min(uppers, key=lambda end: _loss(values, lower, float(end), grid, fewest)))
    lower = float(min(lowers, key=lambda end: _loss(values, float(end), upper, grid, fewest)))
    return _tidy(lower, grid), _tidy(upper, grid)


def _loss(values: np.ndarray, lower: float, upper: float, grid: float, fewest: int) -> float:
    """What clipping to this range and drawing within its bins costs, in squares."""
    inside = np.clip(values, lower, upper)
    starts = np.asarray(_bin_starts(inside, lower, grid, fewest))
    lows, highs = starts, np.append(starts[1:] - grid, upper)
    bins = np.searchsorted(starts, inside + 0.5 * grid, side="right") - 1
    middles, widths = ((lows + highs) / 2)[bins], (highs - lows)[bins]
    return float(((values - middles) ** 2 + ((widths + grid) ** 2 - grid**2) / 12).sum())


def _end_unit(values: np.ndarray, end: float, span: float, grid: float, fewest: int) -> float:
    """To what an end of the range is rounded: to the grid if many rows hold it, else to a round number beyond it."""
    if len(values) < 2 * fewest:  # too few rows for any of their values to be told
        return float(max(10.0 ** math.floor(math.log10(span)), grid))
    common = int((values == end).sum()) >= fewest
    return grid if common else float(max(10.0 ** math.floor(math.log10(span / 200)), grid))


def _bin_starts(values: np.ndarray, lower: float, grid: float, fewest: int) -> tuple[float, ...]:
    """Where bins begin: a bin for each spike, the rest cut at round numbers near its quantiles, wide ones cut again."""
    steps, counts = np.unique(np.round((values - lower) / grid).astype(np.int64), return_counts=True)
    common = counts >= fewest
    if len(steps) <= MOST_BINS // 2 and 2 * counts[common].sum() >= counts.sum():
        starts = _gaps_closed(steps[common])
    else:
        spiky = counts >= max(fewest, _SPIKE * len(values))
        spikes = steps[spiky][np.argsort(-counts[spiky], kind="stable")][: MOST_BINS // 4]
        rest = np.repeat(steps, np.where(np.isin(steps, spikes), 0, counts))
        levels = np.linspace(0.0, 1.0, MOST_BINS // 2 if len(rest) else 0)
        cuts = np.quantile(rest, levels, method="nearest") if len(rest) else levels
        cuts = _round_cuts(cuts, lower / grid) if fewest > 1 else cuts
        fixed = np.unique(np.concatenate([[0], spikes, spikes + 1]).astype(np.int64))
        starts = np.unique(np.concatenate([fixed, cuts]).astype(np.int64))
        starts = _without_small(starts[starts <= steps[-1]], fixed, steps, counts, fewest)
        starts = _cut_wide_bins(starts, steps, counts, fewest)
    return tuple(_tidy(lower + float(s) * grid, grid) for s in starts)


def _round_cuts(cuts: np.ndarray, origin: float) -> np.ndarray:
    """Steps at which to cut, as rounder numbers nearby: a quantile is the value of a person.

    origin: the number 0 lies at the step -origin. Numbers are rounded, not their distance from the end of the range.
    """
    cuts = np.unique(cuts)
    apart = np.diff(cuts)
    if not len(apart):
        return cuts
    room = np.minimum(np.append(apart, apart[-1]), np.insert(apart, 0, apart[0]))
    unit = 10.0 ** np.floor(np.log10(np.maximum(room / 2, 1.0)))
    return np.asarray(np.round((cuts + origin) / unit) * unit - origin).round().clip(0)


def _without_small(
    starts: np.ndarray, fixed: np.ndarray, steps: np.ndarray, counts: np.ndarray, fewest: int
) -> np.ndarray:
    """Bins of a few rows joined with their neighbours; where a bin begins or ends at a spike, that edge stays."""
    while True:
        rows = np.bincount(np.searchsorted(starts, steps, side="right") - 1, counts, len(starts))
        small = np.flatnonzero((rows > 0) & (rows < fewest))
        joined = [i for bin_ in small for i in (bin_, bin_ + 1) if i < len(starts) and starts[i] not in fixed]
        if not joined:
            return starts
        starts = np.delete(starts, joined[0])


def _cut_wide_bins(starts: np.ndarray, steps: np.ndarray, counts: np.ndarray, fewest: int) -> np.ndarray:
    """Halve the bin in which a uniform draw would move its rows most, until the whole costs little or bins run out.

    A heavy tail puts few rows in a bin that spans most of the range: drawing there would cost more than any budget.
    """
    total = float(np.average((steps - np.average(steps, weights=counts)) ** 2, weights=counts))
    whole = np.zeros(0, dtype=np.int64)  # starts of bins that cannot be cut without leaving a few rows alone
    while len(starts) < 2 * MOST_BINS:
        ends = np.append(starts[1:], steps[-1] + 1)
        owner = np.searchsorted(starts, steps, side="right") - 1
        rows = np.bincount(owner, counts, len(starts))
        centre = (starts + ends - 1) / 2
        spread = np.bincount(owner, counts * (steps - centre[owner]) ** 2, len(starts))
        cost = spread + rows * ((ends - starts) ** 2 - 1) / 12
        can_be_cut = (ends - starts > 1) & ~np.isin(starts, whole)
        if not can_be_cut.any() or cost[can_be_cut].sum() <= _BIN_COST * total * counts.sum():
            break
        worst = int(np.argmax(np.where(can_be_cut, cost, -1.0)))
        inside = owner == worst
        cut = _cut_within(int(starts[worst]), int(ends[worst]), steps[inside], counts[inside], fewest)
        if cut is None:
            whole = np.append(whole, starts[worst])
        else:
            starts = np.insert(starts, worst + 1, cut)
    return starts


def _cut_within(start: int, end: int, steps: np.ndarray, counts: np.ndarray, fewest: int) -> int | None:
    """Where to cut a bin: near its middle, and so that no few rows are left alone; None if there is no such place."""
    middle = (start + end) // 2
    below = int(counts[steps < middle].sum())
    if not any(0 < side < fewest for side in (below, int(counts.sum()) - below)):
        return middle
    rows = np.cumsum(counts)
    if rows[-1] < 2 * fewest:
        return None
    low = int(steps[np.searchsorted(rows, fewest)]) + 1
    high = int(steps[np.searchsorted(rows, rows[-1] - fewest, side="right")])
    wanted = min(max(middle, low), high)
    # A round number between the two: either of them is the value of a person.
    for power in range(int(math.log10(end - start)), -1, -1):
        for place in (wanted // 10**power * 10**power, -(-wanted // 10**power) * 10**power):
            if low <= place <= high and start < place < end:
                return int(place)
    return None


def _gaps_closed(steps: np.ndarray) -> np.ndarray:
    """A bin for each step that occurs, and one for each gap between two of them."""
    starts: np.ndarray = np.unique(np.concatenate([[0], steps, steps + 1]))
    return np.asarray(starts[starts <= steps[-1]])


def _grid(distinct: np.ndarray, every: np.ndarray) -> float:
    """The coarsest power of ten on which all values lie, made coarser until a tensor can hold its steps.

    distinct: within the range. every: with those beyond it, which lie on the grid too.
    """
    span = float(distinct[-1] - distinct[0])
    finest = math.ceil(math.log10(span / MOST_STEPS))
    for power in range(math.floor(math.log10(span)), finest - 1, -1):
        if np.allclose(every, np.round(every, -power), rtol=0.0, atol=10.0**power * 1e-6):
            return float(10.0**power)
    return float(10.0**finest)


def _tidy(value: float, grid: float) -> float:
    """Remove the last binary digits that a decimal grid leaves behind (0.30000000000000004)."""
    return round(value, max(0, -math.floor(math.log10(grid)) + 1))


def _rounded(value: float, grid: float, spread: float) -> float:
    """A number rounded to about a hundredth of the spread: the median is the value of a person."""
    unit = max(10.0 ** math.floor(math.log10(spread / 10)), grid) if spread > 0 else grid
    return _tidy(round(value / unit) * unit, unit)


def name_problem(name: object) -> str | None:
    """Why this cannot be the name of a column; None if it can.

    A name is written into schemas, cards, pages and terminals, so it may hold no control characters and no marks that
    change the direction of text.

    >>> name_problem("age"), name_problem("a" + chr(10) + "b")
    (None, "has a name with control characters ('a\\\\nb'). Rename it.")
    """
    if not isinstance(name, str) or not name.strip():
        return "has no name."
    if any(unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") for letter in name):
        return f"has a name with control characters ({shown(name)}). Rename it."
    if len(name) > 500:
        return f"has a name of {len(name)} letters. Shorten it to 500."
    return None


def shown(value: object, most: int = 60) -> str:
    """A value from a file for a message: in ASCII, without control characters, cut short."""
    text = ascii(value) if isinstance(value, (str, int, float, bool, type(None))) else f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 4]} ..."


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < 1e300


def _is_category(value: object) -> bool:
    return isinstance(value, bool) or _is_number(value) or (isinstance(value, str) and len(value) <= _LONGEST_TEXT)


def _is_of(family: str, value: object) -> bool:
    if family == "string":
        return isinstance(value, str)
    return isinstance(value, bool) if family == "boolean" else _is_number(value)
