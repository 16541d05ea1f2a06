"""One column: what it is, which values a release may hold, and how all that is read off data."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairveil.tables import missing_mask

Role = Literal["sensitive", "encode", "drop", "keep", "pass"]
Kind = Literal["categorical", "continuous", "integer"]
Family = Literal["string", "number", "boolean"]
Category = str | int | float | bool

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


@dataclass(frozen=True)
class Column:
    """One column: what it is, what is done with it, and which values a release may hold.

    role: `encode` (released, censored), `keep` (released as it is, seen by every adversary), `pass` (released as it
        is, seen by nobody: names, identifiers), `drop` or `sensitive` (not released). None: not decided yet, which
        no schema accepts.
    kind: `categorical`, `continuous`, or `integer` (a number on a grid).
    missing: whether "no value" is one of the values.
    categories, default: the values of a categorical column; the most frequent one.
    lower, upper, grid: the range and the step of a number; None leaves it unbounded or unrounded.
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
    lower: float | None = None
    upper: float | None = None
    grid: float | None = None
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
        where, found = f"Column {self.name!r} of the schema", []
        if self.kind not in get_args(Kind):
            found.append(f"{where} has the unknown kind {self.kind!r}. Use one of {', '.join(get_args(Kind))}.")
        if self.role is None:
            return [f"{where} has no role yet. Give it one of {', '.join(get_args(Role))}."]
        if self.role not in get_args(Role):
            found.append(f"{where} has the unknown role {self.role!r}. Use one of {', '.join(get_args(Role))}.")
        if self.kind == "categorical" and self.seen and not self.categories:
            found.append(f"{where} is categorical but lists no categories.")
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
    fewest: int = 1,
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
    counts = [count for count in pc.value_counts(present) if count["counts"].as_py() >= fewest]
    values = [count["values"].as_py() for count in counts]
    if not values:
        return column, [
            f"Column {column.name!r} has no value that {fewest} rows share: a name or an identifier cannot be "
            "censored. Give it the role 'drop', or group its values first."
        ]
    if len(values) > MOST_CATEGORIES:
        return column, [
            f"Column {column.name!r} has {len(values)} distinct values, more than {MOST_CATEGORIES}: a name or an "
            "identifier cannot be censored. Give it the role 'drop', or group its values first."
        ]
    sizes = [count["counts"].as_py() for count in counts]
    return replace(column, categories=tuple(sorted(values)), default=values[int(np.argmax(sizes))]), []


def _infer_number(
    column: Column, values: np.ndarray, floating: bool, scale: Literal["std", "range"], fewest: int
) -> tuple[Column, list[str]]:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        where = f"in {int((~np.isfinite(values)).sum())} rows"
        return column, [f"Column {column.name!r} holds infinity {where}. Replace it by a number or by a missing value."]
    every = np.unique(values)
    values = _without_extremes(values, fewest)
    distinct = np.unique(values)
    if len(distinct) <= 2:
        whole = np.all(distinct == np.round(distinct)) and not floating
        categories = tuple(int(v) if whole else float(v) for v in distinct)
        common = categories[int(np.argmax([(values == v).sum() for v in distinct]))]
        return replace(column, categories=categories, default=common), []
    lower, upper = float(distinct[0]), float(distinct[-1])
    if upper - lower > 1e12 or max(abs(lower), abs(upper)) > 1e15:
        return column, [
            f"Column {column.name!r} spans more than a table of ordinary numbers: it may be an identifier. "
            "Give it the role 'drop', or rescale it."
        ]
    grid = _grid(distinct, every)
    whole = grid >= 1.0 and bool(np.all((distinct - lower) % grid == 0))
    lower = lower if whole else math.floor(lower / grid) * grid
    spread = float(values.std()) if scale == "std" else upper - lower
    lower = _tidy(lower, grid)
    return (
        replace(
            column,
            kind="integer" if whole else "continuous",
            lower=lower,
            upper=_tidy(upper if whole else math.ceil(upper / grid) * grid, grid),
            grid=grid,
            center=float(np.median(values)) if scale == "std" else lower,
            scale=spread,
            starts=_bin_starts(values, lower, grid),
        ),
        [],
    )


def _without_extremes(values: np.ndarray, fewest: int) -> np.ndarray:
    """Numbers moved to the range whose ends at least `fewest` rows reach or pass."""
    if fewest <= 1 or len(values) < 2 * fewest:
        return values
    ordered = np.partition(values, [fewest - 1, len(values) - fewest])
    return np.asarray(np.clip(values, ordered[fewest - 1], ordered[len(values) - fewest]))


def _bin_starts(values: np.ndarray, lower: float, grid: float) -> tuple[float, ...]:
    """Where bins begin: a bin for each spike, the rest cut at quantiles of its rows, wide ones cut again."""
    steps, counts = np.unique(np.round((values - lower) / grid).astype(np.int64), return_counts=True)
    if len(steps) <= MOST_BINS // 2:
        starts = _gaps_closed(steps)
    else:
        common = counts >= _SPIKE * len(values)
        spikes = steps[common][np.argsort(-counts[common], kind="stable")][: MOST_BINS // 4]
        rest = np.repeat(steps, np.where(np.isin(steps, spikes), 0, counts))
        levels = np.linspace(0.0, 1.0, MOST_BINS // 2 if len(rest) else 0)
        cuts = np.quantile(rest, levels, method="nearest") if len(rest) else levels
        starts = np.unique(np.concatenate([[0], spikes, spikes + 1, cuts]).astype(np.int64))
        starts = _cut_wide_bins(starts[starts <= steps[-1]], steps, counts)
    return tuple(_tidy(lower + float(s) * grid, grid) for s in starts)


def _cut_wide_bins(starts: np.ndarray, steps: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Halve the bin in which a uniform draw would move its rows most, until the whole costs little or bins run out.

    A heavy tail puts few rows in a bin that spans most of the range: drawing there would cost more than any budget.
    """
    total = float(np.average((steps - np.average(steps, weights=counts)) ** 2, weights=counts))
    while len(starts) < 2 * MOST_BINS:
        ends = np.append(starts[1:], steps[-1] + 1)
        owner = np.searchsorted(starts, steps, side="right") - 1
        rows = np.bincount(owner, counts, len(starts))
        centre = (starts + ends - 1) / 2
        spread = np.bincount(owner, counts * (steps - centre[owner]) ** 2, len(starts))
        cost = spread + rows * ((ends - starts) ** 2 - 1) / 12
        worst = int(np.argmax(np.where(ends - starts > 1, cost, -1.0)))
        if cost.sum() <= _BIN_COST * total * counts.sum() or ends[worst] - starts[worst] <= 1:
            break
        starts = np.insert(starts, worst + 1, (starts[worst] + ends[worst]) // 2)
    return starts


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
