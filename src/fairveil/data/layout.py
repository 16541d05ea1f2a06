"""The positions of columns in a tensor. No other module knows a position."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fairveil.data.columns import Column
from fairveil.data.dependencies import Link


@dataclass(frozen=True)
class Group:
    """One-hot slots start..stop of a tensor: the categories of a column, or the bins of number `number`.

    If the column can be missing, the last slot marks a missing value.
    """

    column: Column
    start: int
    stop: int
    number: int | None = None

    @property
    def width(self) -> int:
        """Number of slots."""
        return self.stop - self.start


@dataclass(frozen=True)
class Layout:
    """The positions of released columns in a tensor: one-hot groups first, then one slot per number.

    A number with bins, or one that can be missing, has a group in addition to its own slot. shape: for images,
    channels, height and width. links: which slots determine which others.
    """

    groups: tuple[Group, ...]
    numbers: tuple[Column, ...]
    shape: tuple[int, int, int] | None = None
    links: tuple[Link, ...] = ()

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
        """Positions, among the numbers, of those without bins: they are released with additive noise."""
        return tuple(i for i, column in enumerate(self.numbers) if not column.starts)

    @property
    def all_free(self) -> bool:
        """Whether all columns are numbers without bins."""
        return not self.groups and len(self.free) == len(self.numbers)

    @cached_property
    def slot_names(self) -> tuple[str, ...]:
        """A name for every slot, as `column=category` or the number's column name."""
        names = [name for group in self.groups for name in _group_names(group)]
        return (*names, *(column.name for column in self.numbers))

    @cached_property
    def kept(self) -> np.ndarray:
        """For each slot, whether it is released unchanged."""
        owners = [group.column for group in self.groups for _ in range(group.width)] + list(self.numbers)
        return np.array([column.role == "keep" for column in owners], dtype=bool)


def _group_names(group: Group) -> list[str]:
    values: list[object] = list(group.column.categories)
    if group.number is not None:
        values = list(group.column.starts) or ["<present>"]
    return [f"{group.column.name}={value}" for value in [*values, *["<missing>"] * group.column.missing]]
