"""Columns with their roles, and where each one lies in a tensor. The only place that knows a column position."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from fairveil.columns import Column, Role, infer_column
from fairveil.errors import InputError
from fairveil.tables import Table, read_table


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

    A number with bins, or one that can be missing, has a group beside its own slot. shape: of images, their channels,
    height and width.
    """

    groups: tuple[Group, ...]
    numbers: tuple[Column, ...]
    shape: tuple[int, int, int] | None = None

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

    @property
    def all_free(self) -> bool:
        """Whether there is nothing but numbers without bins."""
        return not self.groups and len(self.free) == len(self.numbers)

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

    def largest_distortion(self) -> dict[str, float]:
        """The most that Hamming and squared distortion of one row can be, by kind and in all; infinite if unbounded."""
        encoded = [group for group in self.groups if group.column.role == "encode" and group.width > 1]
        changes = sum(1.0 for group in encoded if group.number is None or group.column.missing)
        squares = sum(_span(column) ** 2 for column in self.numbers if column.role == "encode")
        return {"categorical": changes, "continuous": squares, "total": changes + squares}


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
        fewest: int = 1,
    ) -> Self:
        """Describe the columns of a pandas, polars or pyarrow table or an array; names every problem at once.

        Columns get the role `encode` unless named otherwise. `scale` is the unit of a number's distortion: its
        standard deviation, or its whole range as in the paper. `fewest`: categories that fewer rows hold are left out,
        and each end of a range is one that as many rows reach: a schema then tells of no single row.
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
            coded = name in table.coded
            role = roles.get(name, "encode")
            column, problem = infer_column(name, table.arrow[name], role, scale, coded=coded, fewest=fewest)
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

    @property
    def seen(self) -> tuple[Column, ...]:
        """The columns that encoders and adversaries see, in order: those with a place in a tensor."""
        return tuple(column for column in self.columns if column.seen)

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
        for column in self.seen:
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
        """As JSON, to be edited and read back with `from_json`."""
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
