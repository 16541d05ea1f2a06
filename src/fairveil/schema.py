"""Columns, their roles and kinds, and where each one lies in a tensor. The only place that knows a column position."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairveil.errors import InputError
from fairveil.tables import Table, missing_mask, read_table

Role = Literal["sensitive", "encode", "drop", "keep"]
Kind = Literal["categorical", "continuous", "integer"]
Family = Literal["string", "number", "boolean"]
Category = str | int | float | bool

#: More categories than this are taken for names or identifiers, which no encoder can hide.
MOST_CATEGORIES = 512
#: Steps of the grid a number may take: a float32 tensor still tells them apart exactly.
MOST_STEPS = 2**20
#: A number is released by drawing one of at most this many bins, then a grid point within it.
MOST_BINS = 64
#: A value held by this share of the rows is a bin of its own, so that spikes survive.
_SPIKE = 0.002


@dataclass(frozen=True)
class Column:
    """One column: what it is, what is done with it, and which values a release may hold.

    role: `encode` (released, censored), `keep` (released as it is, seen by every adversary), `drop` or `sensitive`
        (not released).
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
    role: Role = "encode"
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
        return self.role in ("encode", "keep")

    def problems(self) -> list[str]:
        """Everything that is wrong with this column's description."""
        where, found = f"Column {self.name!r} of the schema", []
        if self.kind not in get_args(Kind):
            found.append(f"{where} has the unknown kind {self.kind!r}. Use one of {', '.join(get_args(Kind))}.")
        if self.role not in get_args(Role):
            found.append(f"{where} has the unknown role {self.role!r}. Use one of {', '.join(get_args(Role))}.")
        if self.kind == "categorical" and self.released and not self.categories:
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


@dataclass(frozen=True)
class Group:
    """One-hot slots start..stop of a tensor: the categories of a column, or the bins of number `number`.

    Where the column can be missing, the last slot says so.
    """

    column: Column
    start: int
    stop: int
    number: int | None = None

    @property
    def width(self) -> int:
        """How many slots."""
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """Where the released columns lie in a tensor: one-hot groups first, then one slot a number.

    A number with bins, or one that can be missing, has a group beside its own slot.
    """

    groups: tuple[Group, ...]
    numbers: tuple[Column, ...]

    @property
    def group_width(self) -> int:
        """Slots taken by one-hot groups; numbers start here."""
        return self.groups[-1].stop if self.groups else 0

    @property
    def width(self) -> int:
        """All slots."""
        return self.group_width + len(self.numbers)

    @property
    def grouped(self) -> slice:
        """The slots of all one-hot groups."""
        return slice(0, self.group_width)

    @property
    def continuous(self) -> slice:
        """The slots of all numbers."""
        return slice(self.group_width, self.width)

    @cached_property
    def free(self) -> tuple[int, ...]:
        """The numbers without bins, by position among the numbers: they are released with additive noise."""
        return tuple(i for i, column in enumerate(self.numbers) if not column.starts)

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        """A name for every slot, as `column=category` or the number's column name."""
        names = [name for group in self.groups for name in _group_names(group)]
        return (*names, *(column.name for column in self.numbers))

    @cached_property
    def kept(self) -> np.ndarray:
        """For each slot, whether it is released as it is."""
        owners = [group.column for group in self.groups for _ in range(group.width)] + list(self.numbers)
        return np.array([column.role == "keep" for column in owners], dtype=bool)

    def largest_distortion(self) -> float:
        """The most that Hamming plus squared distortion of one row can be under this layout; infinite if unbounded."""
        encoded = [group for group in self.groups if group.column.role == "encode" and group.width > 1]
        changes = sum(1.0 for group in encoded if group.number is None or group.column.missing)
        return changes + sum(_span(column) ** 2 for column in self.numbers if column.role == "encode")


def _span(column: Column) -> float:
    if column.lower is None or column.upper is None:
        return math.inf
    return (column.upper - column.lower) / column.scale


def _group_names(group: Group) -> list[str]:
    values: list[object] = list(group.column.categories)
    if group.number is not None:
        values = list(group.column.starts) or ["<present>"]
    return [f"{group.column.name}={value}" for value in [*values, *["<missing>"] * group.column.missing]]


@dataclass(frozen=True)
class Schema:
    """The columns of a table. Inferred from data, edited by hand, read and written as JSON."""

    columns: tuple[Column, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        problems = [problem for column in self.columns for problem in column.problems()]
        names = self.names
        problems += [f"The schema names column {n!r} twice." for n in sorted({n for n in names if names.count(n) > 1})]
        if problems:
            raise InputError(problems)

    @classmethod
    def infer(
        cls,
        data: Any,
        *,
        sensitive: Sequence[str] = (),
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        scale: Literal["std", "range"] = "std",
    ) -> Self:
        """Describe the columns of a pandas, polars or pyarrow table or an array; names every problem at once.

        Columns get the role `encode` unless named otherwise. `scale` is the unit of a number's distortion: its
        standard deviation, or its whole range as in the paper.
        """
        table = data if isinstance(data, Table) else read_table(data)
        roles: dict[str, Role] = {
            **dict.fromkeys(drop, "drop"),
            **dict.fromkeys(keep, "keep"),
            **dict.fromkeys(sensitive, "sensitive"),
        }
        problems = [f"There is no column {name!r} to give the role {role!r}." for name, role in roles.items()
                    if name not in table.names]  # fmt: skip
        columns = []
        for name in table.names:
            column, problem = infer_column(name, table.arrow[name], roles.get(name, "encode"), scale)
            columns.append(column)
            problems += problem
        if problems:
            raise InputError(problems)
        return cls(tuple(columns))

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return [column.name for column in self.columns]

    @property
    def released(self) -> tuple[Column, ...]:
        """The columns that a release holds, in order."""
        return tuple(column for column in self.columns if column.released)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def edit(self, name: str, **changes: Any) -> Self:
        """The same schema with some fields of one column changed."""
        if name not in self.names:
            raise InputError(f"The schema has no column {name!r}.")
        return replace(self, columns=tuple(replace(c, **changes) if c.name == name else c for c in self.columns))

    @cached_property
    def layout(self) -> Layout:
        """Where each released column lies in a tensor."""
        groups: list[Group] = []
        numbers: list[Column] = []
        start = 0
        for column in self.released:
            number = None
            width = len(column.categories) + column.missing
            if column.kind != "categorical":
                number = len(numbers)
                numbers.append(column)
                width = (max(len(column.starts), 1) + column.missing) if column.starts or column.missing else 0
            if width:
                groups.append(Group(column, start, start + width, number))
                start += width
        return Layout(tuple(groups), tuple(numbers))

    def without_bins(self) -> Self:
        """The same schema with every number released by additive noise, for encoders that are not sampled."""
        return replace(self, columns=tuple(replace(column, starts=()) for column in self.columns))

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        try:
            rows = values["columns"]
            return cls(tuple(Column(**tupled(row)) for row in rows))
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"This is not a schema ({error}). Expected what Schema.to_json writes.") from error

    def to_json(self) -> str:
        """Write as JSON, to be edited and read back with `from_json`."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise InputError(f"This is not a schema: no JSON ({error}).") from error
        return cls.from_dict(values)

    def save(self, path: str | Path) -> None:
        """Write the JSON to a file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Read the JSON from a file."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def tupled(row: dict[str, Any]) -> dict[str, Any]:
    """A mapping read from JSON with its lists as tuples, as frozen dataclasses hold them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def infer_column(
    name: str, values: pa.ChunkedArray, role: Role = "encode", scale: Literal["std", "range"] = "std"
) -> tuple[Column, list[str]]:
    """Describe one column, with a list of what makes it unusable (empty when all is well)."""
    missing = missing_mask(values)
    family = family_of(values.type)
    plain = Column(name, "categorical", role, family or "string", bool(missing.any()))
    if role in ("drop", "sensitive"):
        return plain, []
    if family is None:
        return plain, [f"Column {name!r} has the type {values.type}, which cannot be encoded. "
                       "Convert it to a number or a text, or give it the role 'drop'."]  # fmt: skip
    if missing.all():
        return plain, [f"Column {name!r} holds no value at all. Give it the role 'drop'."]
    present = values.filter(pa.array(~missing))
    if family == "number":
        return _infer_number(plain, present.to_numpy(), pa.types.is_floating(values.type), scale)
    return _infer_categories(plain, present)


def family_of(kind: pa.DataType) -> Family | None:
    """What sort of values an arrow type holds; None for those that cannot be encoded."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "string" if pa.types.is_null(kind) else None


def _infer_categories(column: Column, present: pa.ChunkedArray) -> tuple[Column, list[str]]:
    counts = pc.value_counts(present)
    values = [count["values"].as_py() for count in counts]
    if len(values) > MOST_CATEGORIES:
        return column, [
            f"Column {column.name!r} has {len(values)} distinct values, more than {MOST_CATEGORIES}: a name or an "
            "identifier cannot be censored. Give it the role 'drop', or group its values first."
        ]
    sizes = [count["counts"].as_py() for count in counts]
    return replace(column, categories=tuple(sorted(values)), default=values[int(np.argmax(sizes))]), []


def _infer_number(
    column: Column, values: np.ndarray, floating: bool, scale: Literal["std", "range"]
) -> tuple[Column, list[str]]:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        where = f"in {int((~np.isfinite(values)).sum())} rows"
        return column, [f"Column {column.name!r} holds infinity {where}. Replace it by a number or by a missing value."]
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
    grid = _grid(distinct)
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


def _bin_starts(values: np.ndarray, lower: float, grid: float) -> tuple[float, ...]:
    """Where bins begin: a bin for each spike, the rest cut at quantiles of its rows, at most MOST_BINS in all."""
    steps, counts = np.unique(np.round((values - lower) / grid).astype(np.int64), return_counts=True)
    if len(steps) <= MOST_BINS // 2:
        return tuple(_tidy(lower + float(s) * grid, grid) for s in _gaps_closed(steps))
    common = counts >= _SPIKE * len(values)
    spikes = steps[common][np.argsort(-counts[common], kind="stable")][: MOST_BINS // 4]
    rest = np.repeat(steps, np.where(np.isin(steps, spikes), 0, counts))
    levels = np.linspace(0.0, 1.0, MOST_BINS // 2 if len(rest) else 0)
    cuts = np.quantile(rest, levels, method="nearest") if len(rest) else levels
    starts = np.unique(np.concatenate([[0], spikes, spikes + 1, cuts]).astype(np.int64))
    return tuple(_tidy(lower + float(s) * grid, grid) for s in starts[starts <= steps[-1]])


def _gaps_closed(steps: np.ndarray) -> np.ndarray:
    """A bin for each step that occurs, and one for each gap between two of them."""
    starts: np.ndarray = np.unique(np.concatenate([[0], steps, steps + 1]))
    return np.asarray(starts[starts <= steps[-1]])


def _grid(distinct: np.ndarray) -> float:
    """The coarsest power of ten on which all values lie, made coarser until a tensor can hold its steps."""
    span = float(distinct[-1] - distinct[0])
    finest = math.ceil(math.log10(span / MOST_STEPS))
    for power in range(0, finest - 1, -1):
        if np.allclose(distinct, np.round(distinct, -power), rtol=0.0, atol=10.0**power * 1e-6):
            return float(10.0**power)
    return float(10.0**finest)


def _tidy(value: float, grid: float) -> float:
    """Remove the last binary digits that a decimal grid leaves behind (0.30000000000000004)."""
    return round(value, max(0, -math.floor(math.log10(grid)) + 1))
