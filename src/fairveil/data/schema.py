"""Columns with their roles and dependencies, and their layout in a tensor."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from fairveil._utils.atomic import write_atomic
from fairveil._utils.errors import InputError
from fairveil._utils.html import fragment
from fairveil.data.bins import most_bins
from fairveil.data.columns import FEWEST, Column, Role, shown
from fairveil.data.dependencies import Dependency, Link, find_dependencies
from fairveil.data.frames import Table, read_table
from fairveil.data.infer import infer_column
from fairveil.data.layout import Group, Layout
from fairveil.data.types import type_name

#: Maximum number of dependencies in a schema.
_MOST_RULES = 4000


@dataclass(frozen=True)
class Schema:
    """The columns of a table, and which determine others. Inferred from data, edited by hand, stored as JSON.

    Examples
    --------
    >>> import pandas as pd
    >>> import fairveil as fv
    >>> schema = fv.Schema.infer(pd.DataFrame({"town": ["x", "y"] * 50, "age": range(100)}))
    >>> [(column.name, column.kind) for column in schema.edit("town", role="keep").columns]
    [('town', 'categorical'), ('age', 'integer')]
    """

    columns: tuple[Column, ...] = field(default_factory=tuple)
    dependencies: tuple[Dependency, ...] = ()

    def __post_init__(self) -> None:
        problems = [problem for column in self.columns for problem in column.problems()]
        if not problems:
            names = self.names
            problems = [f"The schema names column {shown(n)} twice."
                        for n in sorted({n for n in names if names.count(n) > 1})]  # fmt: skip
        if not problems and len(self.dependencies) > _MOST_RULES:
            problems = [f"The schema lists more than {_MOST_RULES} dependencies."]
        if not problems:
            problems = [problem for rule in self.dependencies for problem in self._rule_problems(rule)]
        if problems:
            raise InputError(problems)

    def _rule_problems(self, rule: Dependency) -> list[str]:
        """Problems with a dependency, if any."""
        texts = isinstance(rule.column, str) and isinstance(rule.by, str) and isinstance(rule.values, tuple)
        if not texts or rule.column == rule.by or {rule.column, rule.by} - set(self.names):
            return ["A dependency of the schema does not name two of its columns. Remove it."]
        column, by = self[rule.column], self[rule.by]
        if not (column.seen and by.seen):
            return []
        fixed = any(other.column == by.name and self[other.by].role == "keep" for other in self.dependencies
                    if other.by in self.names)  # fmt: skip
        if column.role == "keep" and by.role == "encode" and not fixed:
            return [f"Column {by.name!r} is encoded, but {column.name!r}, which it determines, is kept as it is: the "
                    "kept column reveals the original. Give both the same role."]  # fmt: skip
        pieces: Sequence[Any] = by.categories if by.kind == "categorical" else rule.starts
        numbers = isinstance(rule.starts, tuple) and all(type(start) in (int, float) for start in rule.starts)
        if (
            not numbers
            or not pieces
            or len(rule.values) != len(pieces) + by.missing
            or list(rule.starts) != sorted(rule.starts)
        ):
            return [f"The dependency of {column.name!r} on {by.name!r} must list a value for each category or piece of "
                    f"{by.name!r}. Infer the schema again, or remove the dependency."]  # fmt: skip
        if not all(_belongs(value, column) for value in rule.values):
            return [f"The dependency of {column.name!r} on {by.name!r} lists values that {column.name!r} does not "
                    "have. Infer the schema again, or remove the dependency."]  # fmt: skip
        return []

    @classmethod
    def infer(
        cls,
        data: Any,
        *,
        sensitive: Sequence[str] = (),
        drop: Sequence[str] = (),
        keep: Sequence[str] = (),
        scale: Literal["std", "range"] = "std",
        fewest: int = FEWEST,
    ) -> Self:
        """Describe the columns of a pandas, polars or pyarrow table or an array; reports all problems at once.

        Columns get the role `encode` unless named otherwise. `scale` is the unit of a number's distortion: its standard
        deviation, or its full range as in the paper. `fewest` keeps a schema from revealing single rows: categories
        held by fewer rows are not listed (they are read as the most frequent one), each end of a range is reached by at
        least that many rows, and bins of fewer rows are merged. Columns determined by another one are detected as well,
        and every release respects these dependencies.
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
            kind = type_name(table.types[name]) if name in table.types else None
            column, problem = infer_column(name, table.arrow[name], role, scale, coded=coded, fewest=fewest, type_=kind,
                                           most=most_bins(len(table.names)))  # fmt: skip
            columns.append(column)
            problems += problem
        if problems:
            raise InputError(problems)
        return cls(*find_dependencies(columns, table.arrow, fewest))

    @property
    def names(self) -> list[str]:
        """Column names, in order."""
        return [column.name for column in self.columns]

    @property
    def released(self) -> tuple[Column, ...]:
        """The columns of a release, in order."""
        return tuple(column for column in self.columns if column.released)

    @property
    def seen(self) -> tuple[Column, ...]:
        """The columns that encoders and adversaries see, in order: those encoded in a tensor."""
        return tuple(column for column in self.columns if column.seen)

    def output_names(self, *, sampled: bool) -> list[str]:
        """The columns of a release, in order: those of the table, or one per slot of a soft release."""
        return [column.name for column in self.released] if sampled else list(self.layout.slot_names)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def edit(self, name: str, **changes: Any) -> Self:
        """The same schema with some fields of one column changed."""
        if name not in self.names:
            raise InputError(f"The schema has no column {name!r}.")
        if "starts" in changes:  # shares belong to the bins
            changes = {"shares": (), **changes}
        columns = tuple(replace(c, **changes) if c.name == name else c for c in self.columns)
        values_stay = changes.keys() <= {"role", "center", "scale"}
        rules = tuple(rule for rule in self.dependencies if values_stay or name not in (rule.column, rule.by))
        return replace(self, columns=columns, dependencies=rules)

    @cached_property
    def layout(self) -> Layout:
        """The position of each released column in a tensor."""
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
        plain = Layout(tuple(groups), tuple(numbers))
        links: list[Link] = []
        for rule in self._rules_in_order():
            repeated = any(link.column == rule.column for link in links)
            if not repeated or self[rule.by].role == "encode":  # a kept column cannot be adjusted
                links.append(_link(rule, plain, repeated=repeated))
        return replace(plain, links=tuple(links))

    def _rules_in_order(self) -> list[Dependency]:
        """The rules that a release enforces, each after those that determine its source.

        If possible, a column follows one that no other determines. Rules for a column with several such sources come
        first, because there sources are adjusted; among them, those of kept columns come first.
        """
        active = [rule for rule in self.dependencies if self[rule.column].role == "encode" and self[rule.by].seen]
        determined = {rule.column for rule in active}
        free = [rule for rule in active if rule.by not in determined]
        followed = {rule.column for rule in free}
        chained = {rule.column: rule for rule in reversed(active) if rule.column not in followed}
        several = {rule.column for rule in free if sum(other.column == rule.column for other in free) > 1}
        ordered = sorted(free, key=lambda rule: (rule.column not in several, self[rule.by].role != "keep"))
        settled = (set(self.names) - determined) | followed
        while chained:
            ready = [rule for rule in chained.values() if rule.by in settled]
            if not ready:
                break
            ordered += ready
            settled |= {rule.column for rule in ready}
            chained = {name: rule for name, rule in chained.items() if name not in settled}
        return ordered

    def without_bins(self) -> Self:
        """The same schema with every number released with additive noise, for encoders that are not sampled."""
        columns = tuple(replace(column, starts=(), shares=()) for column in self.columns)
        return replace(self, columns=columns)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        plain: dict[str, Any] = {"columns": [asdict(column) for column in self.columns]}
        if self.dependencies:
            plain["dependencies"] = [asdict(rule) for rule in self.dependencies]
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        strange = sorted(map(shown, set(values) - {"columns", "dependencies", "joint"}))
        if strange:
            raise InputError(f"This is not a schema: it has {', '.join(strange[:3])} besides its columns.")
        try:
            columns = tuple(Column(**tupled(row)) for row in values["columns"])
            rules = tuple(Dependency(**tupled(row)) for row in values.get("dependencies") or ())
        except (KeyError, TypeError, AttributeError):
            # Without the original error text: it may show the file's content.
            problem = "This is not a schema: a column has unknown fields, or is not a mapping. Expected what "
            raise InputError(f"{problem}Schema.to_json or fairveil inspect writes.") from None
        return cls(columns, rules)

    def _repr_html_(self) -> str:
        """For notebooks: one row per column."""
        rows: list[list[object]] = [["column", "role", "kind", "values", "missing"]]
        for column in self.columns:
            ends = [column.lower, column.upper]
            values = f"{len(column.categories)} categories" if column.categories else None
            if column.kind != "categorical":
                values = " to ".join("unbounded" if end is None else f"{end:g}" for end in ends)
            rows.append([column.name, column.role, column.kind, values, "yes" if column.missing else ""])
        rules = f", {len(self.dependencies)} of them determined by others" if self.dependencies else ""
        return fragment("Schema", f"{len(self.columns)} columns{rules}", rows)

    def to_json(self) -> str:
        """As JSON, to be edited and read back with `from_json`."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError("This is not a schema: it cannot be read as JSON.") from None
        if not isinstance(values, dict):
            raise InputError("This is not a schema: it must be a mapping with 'columns'.")
        return cls.from_dict(values)

    def save(self, path: str | Path) -> None:
        """Write the JSON to a file."""
        write_atomic(Path(path), (self.to_json() + "\n").encode())

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Read the JSON from a file."""
        return cls.from_json(Path(path).read_text(encoding="utf-8"))


def tupled(row: dict[str, Any]) -> dict[str, Any]:
    """A mapping read from JSON, with lists converted to tuples, as frozen dataclasses hold them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _belongs(value: object, column: Column) -> bool:
    """Whether a column can hold this value."""
    if value is None:
        return column.missing
    if column.kind == "categorical":
        return isinstance(value, (str, int, float, bool)) and value in column.categories
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return (column.lower is None or column.lower <= value) and (column.upper is None or value <= column.upper)


def _link(rule: Dependency, layout: Layout, *, repeated: bool) -> Link:
    """A dependency as positions in a tensor."""
    groups = {group.column.name: group for group in layout.groups}
    places = {column.name: i for i, column in enumerate(layout.numbers)}
    source, target = groups.get(rule.by), groups.get(rule.column)
    number, source_number = places.get(rule.column), places.get(rule.by)
    held, starts = list(rule.values), list(rule.starts)
    edges: tuple[float, ...] = ()
    gone: tuple[int, int] | None = None
    by = source.column if source is not None else layout.numbers[places[rule.by]]
    if source_number is not None and by.starts and source is not None:
        # Each bin lies within one interval.
        of_bin = np.searchsorted(np.asarray(starts), np.asarray(by.starts) + 0.5 * (by.grid or 0.0), side="right") - 1
        held = [*(rule.values[max(int(piece), 0)] for piece in of_bin), *rule.values[len(starts) :]]
        starts = list(by.starts)
    elif source_number is not None:
        gone = None if source is None or not by.missing else (source.start, source.width - 1)
        source, edges = None, tuple(_scaled(start - 0.5 * (by.grid or 0.0), by) for start in starts)
    slots = () if target is None else tuple(_slot(value, target) for value in held)
    values = () if number is None else tuple(_scaled(value, layout.numbers[number]) for value in held)
    usual = by.categories.index(by.default) if by.default in by.categories else 0
    likely = [usual, *range(len(held))]
    defaults = tuple(next((s for s in likely if slots[s] == t), usual) for t in range(target.width if target else 0))
    moved = tuple(_scaled(starts[min(s, len(starts) - 1)], by) for s in defaults) if starts else ()
    return Link(
        column=rule.column, source=None if source is None else (source.start, source.stop),
        target=None if target is None else (target.start, target.stop), source_number=source_number, number=number,
        edges=edges, gone=gone, slots=slots, values=values, defaults=defaults, default_values=moved, repeated=repeated,
    )  # fmt: skip


def _scaled(value: object, column: Column) -> float:
    return (value - column.center) / column.scale if isinstance(value, (int, float)) else 0.0


def _slot(value: Any, group: Group) -> int:
    column = group.column
    if value is None:
        return group.width - 1
    if group.number is None:
        return column.categories.index(value)
    starts = np.asarray(column.starts or (-np.inf,))
    found = np.searchsorted(starts, float(value) + 0.5 * (column.grid or 0.0), side="right")
    return max(int(found) - 1, 0)
