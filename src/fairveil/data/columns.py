"""The description of one column: its kind, its role, and the values a release may hold."""

import math
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from fairveil.data.types import is_type, stands_for_number

Role = Literal["sensitive", "encode", "drop", "keep", "pass"]
Kind = Literal["categorical", "continuous", "integer"]
Family = Literal["string", "number", "boolean"]
Category = str | int | float | bool

#: Minimum number of rows that must share a category, reach an end of a range, or lie in a bin for a schema to list it.
FEWEST = 10
#: A column with more categories than this is taken for a name or identifier, which no encoder can hide.
MOST_CATEGORIES = 512
#: Beyond this, squared numbers overflow in a tensor.
_LARGEST = 1e18
#: Limits for schemas read from a file.
_MOST_LISTED, _LONGEST_TEXT = 2**16, 2**16


@dataclass(frozen=True)
class Column:
    """The description of one column: its kind, its role, and the values a release may hold.

    role: `encode` (released, censored), `keep` (released unchanged, seen by every adversary), `pass` (released
        unchanged, seen by nobody: names, identifiers), `drop` or `sensitive` (not released). None: undecided, which no
        schema accepts.
    kind: `categorical`, `continuous`, or `integer` (a number on a grid).
    missing: whether missing values can occur.
    categories, default: the values of a categorical column; the most frequent one. rare: others were too rare to be
        listed; they are read as the default.
    lower, upper, grid: the range and step of a number; None means unbounded or unrounded. clipped: the share of rows
        that were outside the range and are clipped to it.
    center, scale: a number x is encoded as (x - center) / scale, and distortion is measured in that unit (`scale` is
        the standard deviation unless you change it).
    type: the original type of a column whose numbers represent a date, time, duration or decimal: see
        `fairveil.data.types`.
    starts: where the bins of a number begin, the first at `lower`. A release draws a bin, then a grid point within it;
        spikes are bins of their own. Empty: the number is released with additive noise instead.
    shares: the share of the rows in each bin, rounded; ranks are measured on this distribution. Empty: equal shares.

    Examples
    --------
    >>> Column("town", "categorical", categories=("x", "y"), default="x").role
    'encode'
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
    shares: tuple[float, ...] = ()
    type: str | None = None

    @property
    def held_as(self) -> str:
        """How its values are parsed from text: by the type if there is one, else by the family."""
        return self.type or self.family

    @property
    def released(self) -> bool:
        """Whether the column is part of what is released."""
        return self.role in ("encode", "keep", "pass")

    @property
    def seen(self) -> bool:
        """Whether encoders and adversaries see the column, that is, whether it is encoded in a tensor."""
        return self.role in ("encode", "keep")

    @property
    def span(self) -> float:
        """The length of a number's range, in units of its scale; infinite without a range."""
        unbounded = self.lower is None or self.upper is None
        return math.inf if unbounded else (self.upper - self.lower) / self.scale  # type: ignore[operator]

    def problems(self) -> list[str]:
        """Everything wrong with this column's description."""
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
        sizes = [abs(value) for value in (self.lower, self.upper, self.center, *self.starts) if value is not None]
        steps = [value for value in (self.grid, self.scale) if value is not None]
        if any(size > _LARGEST for size in (*sizes, *steps)) or any(0 < step < 1 / _LARGEST for step in steps):
            found.append(f"{where} has a range, grid or scale beyond {_LARGEST:g}. Rescale the column.")
        if not 0 <= self.clipped <= 1:
            found.append(f"{where} has clipped = {shown(self.clipped)}, which must be a share between 0 and 1.")
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
        if self.shares and (len(self.shares) != len(self.starts) or min(self.shares) < 0 or sum(self.shares) <= 0):
            found.append(
                f"{where} needs a share for each of its bins, none below 0, or an empty list for equal shares."
            )
        return found

    def _wrong_types(self) -> list[str]:
        """Fields with values of the wrong type: a schema may come from a crafted file."""
        where = f"Column {self.name!r} of the schema"
        texts = {"kind": self.kind, "role": self.role, "family": self.family, "type": self.type}
        found = [f"{where} has {name} = {shown(value)}, which must be text." for name, value in texts.items()
                 if not isinstance(value, str | None)]  # fmt: skip
        if self.family not in get_args(Family) and not found:
            found.append(f"{where} has the unknown family {shown(self.family)}. Use {', '.join(get_args(Family))}.")
        if self.type is not None and not found and not (self.family == "number" and is_type(self.type)):
            found.append(f"{where} has the unknown type {shown(self.type)}, or one that its family, {self.family}, "
                         "cannot have.")  # fmt: skip
        found += [f"{where} has {name} = {shown(getattr(self, name))}, which must be true or false."
                  for name in ("missing", "rare") if not isinstance(getattr(self, name), bool)]  # fmt: skip
        for name in ("lower", "upper", "grid", "center", "scale", "clipped"):
            value = getattr(self, name)
            optional = value is None and name in ("lower", "upper", "grid")
            if not optional and not _is_number(value):
                found.append(f"{where} has {name} = {shown(value)}, which must be a finite number.")
        for name, right in (("categories", _is_category), ("starts", _is_number), ("shares", _is_number)):
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

    def ranks(self) -> np.ndarray:
        """The lowest and highest rank of every bin, in [0, 1]: (bins, 2). Equal for a single value: its mid-rank."""
        shares = np.asarray(self.shares) if self.shares else np.ones(len(self.starts))
        above = np.cumsum(shares) / shares.sum()
        ends = np.stack([above - shares / shares.sum(), above], axis=1)
        lows, highs = self.bins().T
        return np.where((highs > lows)[:, None], ends, ends.mean(axis=1, keepdims=True))


def family_of(kind: pa.DataType) -> Family | None:
    """The family of an arrow type's values; None for types that cannot be encoded."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "string"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or stands_for_number(kind):
        return "number"
    return "string" if pa.types.is_null(kind) else None


def name_problem(name: object) -> str | None:
    """Why this cannot be a column name; None if it can.

    A name is written into schemas, cards, web pages and terminals, so it must not contain control characters or
    characters that change the direction of text.

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
    """A value from a file, formatted for a message: ASCII, without control characters, truncated."""
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
