"""The distance of two numbers by their ranks: bounded, and independent of the scale and the tails of a column.

With Δ the difference of the ranks of two values in their column's own distribution, the distance is

    unit * Δ² / (Δ² + HALF²)

It grows with the square of small moves and levels off for large ones. Two properties follow from the form. It is
bounded, so that a mean over held-out rows can be bounded without assumptions about tails. And erasing a column is not
cheap: replacing every value by the best single value never costs more than drawing it anew from the column (the latter
is a mixture of the former), but here it costs nearly as much, 1 against 1.15; with squared differences half as much.

The unit is chosen per column so that replacing all of its values by its median costs 1 on average, but at most
`LARGEST_UNIT` times as much as for a column without ties: a column that is 0 in 99 % of the rows is little changed by
setting all of it to 0, and a rare change of it must not cost more than all others together.
"""

import math
from dataclasses import dataclass, fields
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fairveil.data.columns import Column
from fairveil.data.layout import Layout

Numbers = TypeVar("Numbers", Tensor, np.ndarray)

#: The difference of ranks that costs half as much as the largest possible one.
HALF = 0.25
#: The largest unit of a column, relative to that of a column without ties.
LARGEST_UNIT = 2.0
#: The unit of a column without ties: 1 over the mean of Δ² / (Δ² + HALF²) for Δ uniform up to 1/2.
_PLAIN_UNIT = 1.0 / (1.0 - 2.0 * HALF * math.atan(0.5 / HALF))


@dataclass(frozen=True)
class RankScale:
    """The ranks of all numbers of a layout that are drawn by bins.

    numbers: their positions among the layout's numbers. edges: (numbers, bins + 1), on the tensor's scale, padded with
    infinity. low, high: (numbers, bins), the ranks of the ends of each bin. unit: (numbers,).
    center, spread, weight, owner: for each one-hot slot, the mean and standard deviation of the rank that is released
    when it is drawn, the unit of its number (0 for slots of categories and of "missing"), and the number's position in
    `numbers`.
    """

    numbers: Tensor
    edges: Tensor
    low: Tensor
    high: Tensor
    unit: Tensor
    center: Tensor
    spread: Tensor
    weight: Tensor
    owner: Tensor

    @classmethod
    def of(cls, layout: Layout) -> "RankScale":
        """The scale of a layout; without numbers if none has bins."""
        binned = [(group, group.column) for group in layout.groups
                  if group.number is not None and group.column.starts and group.column.role == "encode"]  # fmt: skip
        most, width = max((len(column.starts) for _, column in binned), default=1), layout.group_width
        edges = torch.full((len(binned), most + 1), math.inf)
        low, high, unit = torch.ones(len(binned), most), torch.ones(len(binned), most), torch.zeros(len(binned))
        center, spread, weight = torch.zeros(width), torch.zeros(width), torch.zeros(width)
        owner = torch.zeros(width, dtype=torch.long)
        for i, (group, column) in enumerate(binned):
            count, half = len(column.starts), 0.5 * (column.grid or 0.0)
            ends = np.append(np.asarray(column.starts), (column.upper or 0.0) + 2.0 * half) - half
            edges[i, : count + 1] = torch.from_numpy((ends - column.center) / column.scale).float()
            ranks = column.ranks()
            low[i, :count], high[i, :count] = torch.from_numpy(ranks.T.copy()).float()
            middle, deviation = rank_moments(column)
            unit[i] = rank_unit(column)
            inside = slice(group.start, group.start + count)
            center[inside], spread[inside] = torch.from_numpy(middle).float(), torch.from_numpy(deviation).float()
            weight[inside], owner[group.start : group.stop] = unit[i], i
        positions = torch.tensor([group.number for group, _ in binned], dtype=torch.long)
        return cls(positions, edges, low, high, unit, center, spread, weight, owner)

    def to(self, like: Tensor) -> "RankScale":
        """On the device of another tensor."""
        if self.unit.device == like.device:
            return self
        return RankScale(**{f.name: getattr(self, f.name).to(like.device) for f in fields(self)})

    def ranks(self, numbers: Tensor) -> Tensor:
        """The ranks of all numbers of a layout, (..., numbers of the layout), in order of `numbers`: (..., numbers).

        Between two grid points ranks are interpolated; below and above the range they are 0 and 1.
        """
        chosen = numbers.index_select(-1, self.numbers)
        values = chosen.reshape(-1, len(self.numbers)).T.contiguous()
        place = torch.searchsorted(self.edges, values, right=True) - 1
        bin_ = place.clamp(0, self.low.shape[1] - 1)
        start, stop = self.edges.gather(1, bin_), self.edges.gather(1, bin_ + 1)
        low, high = self.low.gather(1, bin_), self.high.gather(1, bin_)
        inside = low + (high - low) * ((values - start) / (stop - start)).nan_to_num(0.0)
        below, above = values < self.edges[:, :1], stop.isinf() | (values >= stop)
        found = torch.where(below, 0.0, torch.where(above, 1.0, inside))
        return found.T.reshape(chosen.shape)

    def distances(self, released: Tensor, original: Tensor) -> Tensor:
        """The distance of each number, given by its rank: (..., numbers)."""
        return self.unit * _levelled(released - original)

    def prices(self, original: Tensor) -> Tensor:
        """The expected distance of original ranks (rows, numbers) from the draw in each slot: (rows, group width).

        The ranks drawn within a bin are replaced by two points with the same mean and variance, m - s and m + s: with
        q = (x - m)² + s² + HALF², their mean distance is unit (1 - HALF² q / (q² - 4 s² (x - m)²)).
        """
        squares = (original.index_select(-1, self.owner) - self.center).square_()
        spread = self.spread.square()
        total = squares + (spread + HALF**2)
        squares.mul_(-4.0 * spread).addcmul_(total, total)
        return total.div_(squares).mul_(-(HALF**2)).add_(1.0).mul_(self.weight)

    def largest(self) -> Tensor:
        """The largest distance of each number: (numbers,)."""
        return self.unit * float(_levelled(torch.tensor(1.0)))


def rank_moments(column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the rank of a uniform draw from the grid points of each bin: (bins,) each."""
    low, high = column.ranks().T
    points = np.round((column.bins()[:, 1] - column.bins()[:, 0]) / (column.grid or 1.0)) + 1
    return (low + high) / 2, (high - low) * np.sqrt((points**2 - 1) / 12) / points


def rank_unit(column: Column) -> float:
    """1 over the mean of the levelled distance of a column's values from its median, limited by `LARGEST_UNIT`."""
    middle, deviation = rank_moments(column)
    shares = np.asarray(column.shares) if column.shares else np.ones(len(middle))
    shares = shares / shares.sum()
    bin_ = int(np.searchsorted(np.cumsum(shares), 0.5 - 1e-9))
    low, high = column.ranks()[bin_]
    median = float(np.clip(0.5, low, high))
    apart = np.stack([middle - deviation, middle + deviation]) - median
    mean = float((shares * _levelled(apart).mean(axis=0)).sum())
    return min(1.0 / mean if mean > 0 else math.inf, LARGEST_UNIT * _PLAIN_UNIT)


def _levelled(apart: Numbers) -> Numbers:
    squares = apart * apart
    levelled: Numbers = squares / (squares + HALF**2)
    return levelled
