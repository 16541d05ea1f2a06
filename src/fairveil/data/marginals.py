"""The distribution of every column before and after a release: how far it moved, and whether the column collapsed.

A distortion adds up over rows, so it cannot tell a column whose values were exchanged among rows from one that holds a
single value everywhere. Here only the columns' distributions are compared.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil.data.columns import Column
from fairveil.data.layout import Layout

#: A column has collapsed if less than this share of its entropy is left.
COLLAPSED_BELOW = 0.5
#: A number without bins is counted in this many intervals of its range, or of this many units around its center.
_INTERVALS, _REACH = 32, 4.0


@dataclass(frozen=True)
class ColumnDrift:
    """How the distribution of one column changed, to a thousandth: exact figures could reveal single rows.

    total_variation: between its categories or bins before and after. ks: for a number, the largest difference of the
    distribution functions at the ends of the bins (Kolmogorov-Smirnov). distinct_before, distinct_after: how many of
    its categories or bins occur. entropy_kept: the entropy of its categories or bins after, as a share of that before.
    """

    column: str
    total_variation: float
    ks: float | None
    distinct_before: int
    distinct_after: int
    entropy_kept: float

    @property
    def collapsed(self) -> bool:
        """Whether less than half of its entropy is left: most rows hold one or a few values."""
        return self.entropy_kept < COLLAPSED_BELOW

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ColumnDrift":
        """Read what `to_dict` wrote; rejects values of other types, as the file may have been crafted."""
        drift = cls(**values)
        shares = (drift.total_variation, drift.ks or 0.0, drift.entropy_kept)
        counts = (drift.distinct_before, drift.distinct_after)
        plain = all(type(share) in (int, float) and 0 <= share < math.inf for share in shares)
        if not isinstance(drift.column, str) or not plain or not all(type(count) is int for count in counts):
            raise ValueError("the drift of a column must hold plain numbers")
        return drift


@dataclass(frozen=True)
class Marginals:
    """How many rows hold each category or bin of every encoded column: one row of `counts` per slot counted."""

    columns: tuple[Column, ...]
    ends: tuple[int, ...]
    counts: NDArray[np.float64]

    @classmethod
    def of(cls, layout: Layout, rows: Tensor, weight: Tensor | None = None) -> "Marginals":
        """Of encoded or released rows, (rows, width)."""
        share = torch.ones(len(rows), dtype=torch.float64) if weight is None else weight.double()
        slots = (rows[:, layout.grouped].double() * share[:, None]).sum(dim=0).numpy()
        grouped = [group for group in layout.groups if group.column.role == "encode"]
        binned = [group for group in grouped if group.number is None or group.column.starts]
        found = {group.column.name: slots[group.start : group.stop] for group in binned}
        for i in layout.free:
            column = layout.numbers[i]
            if column.role == "encode":
                found[column.name] = _in_intervals(column, rows[:, layout.group_width + i], share)
        named = {column.name: column for column in (*(group.column for group in layout.groups), *layout.numbers)}
        sizes = [len(counts) for counts in found.values()]
        every = np.concatenate(list(found.values())) if found else np.zeros(0)
        return cls(tuple(named[name] for name in found), tuple(np.cumsum(sizes).tolist()), every)

    def drift(self, after: NDArray[np.float64]) -> tuple[ColumnDrift, ...]:
        """The change of every column to other counts of the same slots."""
        starts = (0, *self.ends[:-1])
        return tuple(
            _drift(column, self.counts[start:end], after[start:end])
            for column, start, end in zip(self.columns, starts, self.ends, strict=True)
        )


def _in_intervals(column: Column, values: Tensor, weight: Tensor) -> NDArray[np.float64]:
    """Counts of a number without bins, on the tensor's scale."""
    low, high = -_REACH, _REACH
    if column.lower is not None and column.upper is not None:
        low, high = ((end - column.center) / column.scale for end in (column.lower, column.upper))
    cuts = torch.linspace(low, high, _INTERVALS + 1, dtype=torch.float64)[1:-1]
    place = torch.searchsorted(cuts, values.double().contiguous())
    return torch.bincount(place, weight, minlength=_INTERVALS).numpy()


def _drift(column: Column, before: NDArray[np.float64], after: NDArray[np.float64]) -> ColumnDrift:
    p, q = (counts / max(counts.sum(), 1e-12) for counts in (before, after))
    present = len(column.starts) or len(p)  # without the slot for missing values, which have no order
    ks = None if column.kind == "categorical" else float(np.abs(np.cumsum(p - q)[:present]).max())
    kept = _entropy(q) / _entropy(p) if _entropy(p) > 0 else 1.0
    return ColumnDrift(column.name, round(float(np.abs(p - q).sum() / 2), 3), None if ks is None else round(ks, 3),
                       int((before > 0).sum()), int((after > 0).sum()), round(kept, 3))  # fmt: skip


def _entropy(shares: NDArray[np.float64]) -> float:
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())


def largest_drift(columns: Sequence[ColumnDrift]) -> ColumnDrift | None:
    """The column whose distribution moved most; None without columns."""
    return max(columns, key=lambda drift: drift.total_variation, default=None)


def collapse_message(columns: Sequence[ColumnDrift]) -> str | None:
    """One sentence that names the collapsed columns, and what to do; None if there are none."""
    names = [
        f"{drift.column!r} ({drift.distinct_before} to {drift.distinct_after} values, "
        f"{100 * drift.entropy_kept:.0f} % of its entropy left)"
        for drift in columns
        if drift.collapsed
    ]
    if not names:
        return None
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"Columns that collapse to few values in a release: {shown}. Lower the budget, or drop or keep these columns."
    )
