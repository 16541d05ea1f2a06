"""The distance of a release from the original, per row, separately for categorical and continuous columns.

All of these are means over rows of a sum over columns, so they do not depend on the size of a batch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil.data.columns import Column
from fairveil.data.layout import Layout
from fairveil.objectives.bounds import Limits
from fairveil.objectives.ranks import RankScale
from fairveil.objectives.released import ReleasedBatch

#: Position of each kind of column in the last dimension of a distortion.
KINDS = ("categorical", "continuous")
_SMALLEST = 1e-12

RowDistortion = Callable[[Tensor, Tensor], Tensor]
CategoricalMeasure = Literal["hamming", "cross_entropy"]
NumberMeasure = Literal["ranks", "squared"]

#: What a distortion of 1 amounts to, by the measure's name.
UNITS = {
    "ranks": "one changed category, or all values of one column of numbers replaced by its median",
    "squared": "one changed category, or one number changed by its standard deviation (squared)",
    "ranks and squared": "one changed category, all values of one column of numbers with bins replaced by its median, "
                         "or one number without bins changed by its standard deviation (squared)",
    "hamming": "one changed category",
    "cross_entropy": "one nat of the original categories' probability, or one number changed by its standard "
                     "deviation (squared)",
    "custom": "one unit of the given function",
    "loss": "one unit of the predictions' loss",
}  # fmt: skip


class Distortion:
    """Distortion of each row as a tensor (..., rows, 2): its categorical and its continuous part.

    categorical: `hamming`: the number of columns whose value differs (for a number: whether it is missing differs).
        `cross_entropy`: minus the log of the probability of the original value, in nats (the authors' choice).
    numbers: `squared`: the squared difference on the schema's scale. `ranks`: the bounded distance of
        `fairveil.objectives.ranks` for numbers with bins, the squared difference for others.
    soft: the release consists of the probabilities themselves. Hamming is then the probability that a draw from them
        would differ.
    custom: a function of (released, original), each (..., rows, width), that replaces both parts by one number per row.
    """

    def __init__(
        self,
        layout: Layout,
        categorical: CategoricalMeasure = "hamming",
        custom: RowDistortion | None = None,
        *,
        numbers: NumberMeasure = "squared",
        soft: bool = False,
    ) -> None:
        self.layout = layout
        self.categorical = categorical
        self.custom = custom
        self.soft = soft
        self.by_rank = numbers == "ranks" and any(c.starts and c.role == "encode" for c in layout.numbers)
        self._slots = _Slots.of(layout)
        self._ranks = RankScale.of(layout) if self.by_rank else None

    @property
    def name(self) -> str:
        """The measure's name; a custom function is identified by its name, as its address changes with every run."""
        return f"{self.categorical}, {self.measure}, {getattr(self.custom, '__qualname__', None)}"

    @property
    def measure(self) -> str:
        """A key of `UNITS`; for a measure that `make_distortion` accepts, its name."""
        if self.custom is not None:
            return "custom"
        if self.categorical == "cross_entropy":
            return self.categorical
        if self.by_rank:
            return "ranks and squared" if self.layout.free else "ranks"
        return "squared" if self.layout.numbers else "hamming"

    def expected(self, release: ReleasedBatch, original: Tensor) -> Tensor:
        """Differentiable; the expectation over the draw is exact where possible, which reduces noise."""
        if self.custom is not None or self.categorical == "cross_entropy" or self.soft:
            return self.realised(release, original)
        if release.atoms is not None and release.atoms.dim() == 3 and release.weights is not None:
            return torch.einsum("ark,mra->mrk", self.of_atoms(release.atoms, original), release.weights)
        # Slot-major, like p in the encoders.
        p = release.probabilities.transpose(-1, -2)
        prices = self._prices(original)
        categorical = (p * prices.categorical.transpose(-1, -2).contiguous()).sum(dim=-2) + prices.fixed
        continuous = release.squares
        if continuous is None and self.layout.all_free:
            continuous = (release.values - original).square().sum(dim=-1)
        elif continuous is None:
            free = self._slots.to(original).free
            continuous = (release.values[..., free] - original[..., free]).square().sum(dim=-1)
        if prices.continuous is not None:
            continuous = continuous + (p * prices.continuous.transpose(-1, -2).contiguous()).sum(dim=-2)
        return torch.stack([categorical, continuous], dim=-1)

    @property
    def is_linear(self) -> bool:
        """Whether a row's expected distortion is linear in its slot probabilities, and so given by `prices`."""
        soft = self.soft or self.custom is not None or self.categorical == "cross_entropy"
        return not soft and not self.layout.free

    def of_atoms(self, atoms: Tensor, original: Tensor) -> Tensor:
        """Of each row's own atoms, averaged over the draw within bins: (atoms, rows, 2); requires `is_linear`."""
        prices = self._prices(original)
        groups = atoms[..., self.layout.grouped]
        categorical = (groups * prices.categorical).sum(dim=-1) + prices.fixed
        continuous = torch.zeros_like(categorical)
        if prices.continuous is not None:
            continuous = (groups * prices.continuous).sum(dim=-1)
        return torch.stack([categorical, continuous], dim=-1)

    def prices(self, original: Tensor) -> tuple[Tensor, Tensor]:
        """The cost of each slot for each row (rows, group width), and a fixed part (rows,); requires `is_linear`.

        The expected distortion of a row is fixed + prices . probabilities; with the drawn slots, that of a release.
        """
        prices = self._prices(original)
        moved = 0.0 if prices.continuous is None else prices.continuous
        return prices.categorical + moved, prices.fixed

    def _prices(self, original: Tensor) -> "_Prices":
        # r is 1 with probability p and x is 0 or 1, so E (r - x)^2 = x + p (1 - 2 x): linear in p, with prices shared
        # by all members.
        slots = self._slots.to(original)
        x = original[..., self.layout.grouped]
        continuous = None
        if self._ranks is not None:
            scale = self._ranks.to(original)
            continuous = scale.prices(scale.ranks(original[..., self.layout.continuous]))
            if slots.any_missing:  # a number that is missing has no rank; that it is released counts as a category
                continuous = continuous * (1.0 - x.index_select(-1, slots.gone) * slots.can_be_gone)
        elif len(slots.free) < len(self.layout.numbers):
            number = original[..., slots.owner]
            continuous = slots.binned * (slots.second - 2.0 * slots.mean * number + number.square())
        return _Prices((1.0 - 2.0 * x) * slots.weight, (x * slots.weight).sum(dim=-1), continuous)

    def realised(self, release: ReleasedBatch, original: Tensor) -> Tensor:
        """Of the rows as released."""
        if self.custom is not None:
            total = self.custom(release.values, original.expand_as(release.values))
            if not isinstance(total, Tensor) or total.shape != release.values.shape[:-1]:
                raise InputError("A distortion function must return one number per row: a tensor of shape (..., rows).")
            return torch.stack([total, torch.zeros_like(total)], dim=-1)
        slots = self._slots.to(original)
        grouped = self.layout.grouped
        x = original[..., grouped]
        if self.categorical == "cross_entropy":
            # Groups of numbers count only by their missing slot, as a binary variable.
            p = release.probabilities.clamp(_SMALLEST, 1.0)
            nats = -x * p.log() * slots.named - slots.missing * (1.0 - x) * torch.log1p(-p.clamp(max=1.0 - 1e-7))
            categorical = nats.sum(dim=-1)
        elif self.soft and self.categorical == "hamming":
            p = release.probabilities
            categorical = ((p + x - 2.0 * p * x) * slots.weight).sum(dim=-1)
        else:
            categorical = ((release.values[..., grouped] - x).square() * slots.weight).sum(dim=-1)
        continuous = self.of_numbers(release.values, original).sum(dim=-1)
        return torch.stack([categorical.expand_as(continuous), continuous], dim=-1)

    def of_numbers(self, released: Tensor, original: Tensor) -> Tensor:
        """The distance of every number: (..., rows, numbers of the layout)."""
        inside = self.layout.continuous
        apart = (released[..., inside] - original[..., inside]).square()
        if self._ranks is None:
            return apart
        scale, slots = self._ranks.to(original), self._slots.to(original)
        by_rank = scale.distances(scale.ranks(released[..., inside]), scale.ranks(original[..., inside]))
        if slots.any_missing:
            last = slots.last.index_select(0, scale.numbers)
            gone = (released[..., last] > 0.5) | (original[..., last] > 0.5)
            by_rank = torch.where(gone & slots.has_last.index_select(0, scale.numbers), 0.0, by_rank)
        return apart.index_copy(-1, scale.numbers, by_rank)

    def unchanged(self, x: Tensor, original: Tensor) -> Tensor:
        """Of rows whose categories and bins are released unchanged: (..., rows, 2); requires `is_additive`.

        x: the encoded rows. original: the rows as the caller has them. This measures the draw within each bin, numbers
        outside the schema's ranges, and categories that the schema does not list.
        """
        as_encoded = self.realised(ReleasedBatch(x, x[..., self.layout.grouped]), original)
        within = self._prices(original).continuous
        if within is None:
            return as_encoded
        free = self._slots.to(original).free
        numbers = (x[..., free] - original[..., free]).square().sum(dim=-1)
        numbers = numbers + (x[..., self.layout.grouped] * within).sum(dim=-1)
        return torch.stack([as_encoded[..., 0], numbers], dim=-1)

    @property
    def is_additive(self) -> bool:
        """Whether it is a sum over columns of distances between released and original values."""
        return self.custom is None and not self.soft and self.categorical != "cross_entropy"

    @property
    def is_weighted_square(self) -> bool:
        """Whether it is sum w (r - x)^2 with the `slot_weights`: Hamming for categories, squares for numbers."""
        return self.categorical == "hamming" and self.custom is None and not self.by_rank

    def limits(self) -> dict[str, Limits]:
        """What limits the distortion of one row, by kind and in total."""
        layout = self.layout
        if self.custom is not None:
            return dict.fromkeys((*KINDS, "total"), Limits(math.inf, math.inf, by_squares=True))
        encoded = [group for group in layout.groups if group.column.role == "encode" and group.width > 1]
        changes = float(sum(group.number is None or group.column.missing for group in encoded))
        of_number = {i: column.span**2 for i, column in enumerate(layout.numbers)}
        ranked = {} if self._ranks is None else dict(
            zip(self._ranks.numbers.tolist(), self._ranks.largest().tolist(), strict=True)
        )  # fmt: skip
        found = [most for i, most in (of_number | ranked).items() if layout.numbers[i].role == "encode"]
        numbers, single, squares = sum(found), max(found, default=0.0), len(ranked) < len(found)
        if self.categorical == "cross_entropy":  # probabilities are limited from below, but numbers are not clipped
            nats = -math.log(_SMALLEST)
            return {
                "categorical": Limits(nats * len(layout.groups), nats, by_squares=True),
                "continuous": Limits(math.inf, single, by_squares=True),
                "total": Limits(math.inf, max(single, nats), by_squares=True),
            }
        return {
            "categorical": Limits(changes, 1.0),
            "continuous": Limits(numbers, single, squares),
            "total": Limits(changes + numbers, max(single, 1.0), squares),
        }


def slot_weights(layout: Layout) -> Tensor:
    """The weight w of each slot such that the distortion is sum w (r - x)^2: Hamming and squared parts combined."""
    return torch.cat([_Slots.of(layout).weight, torch.ones(len(layout.numbers))])


@dataclass(frozen=True)
class _Prices:
    """For each row: the cost of each slot, by kind of column (rows, group width), and a fixed part (rows,)."""

    categorical: Tensor
    fixed: Tensor
    continuous: Tensor | None


@dataclass(frozen=True)
class _Slots:
    """For each one-hot slot: its weight, and the number it represents.

    weight: 1/2 for categories (two different one-hot vectors are at squared distance 2), 1 for "missing" of a number.
    named: 1 for slots that count by their own log-probability. missing: 1 for "missing" of a number. owner: position of
    the number's slot in the tensor (arbitrary if there is none). binned: 1 for slots of numbers with bins. mean,
    second: first and second moment of the number released when this slot is drawn. free: numbers without bins. gone,
    can_be_gone: for each slot of a number, its slot for "missing", and 1 if there is one. last, has_last: the same for
    each number.
    """

    weight: Tensor
    named: Tensor
    missing: Tensor
    owner: Tensor
    binned: Tensor
    mean: Tensor
    second: Tensor
    free: Tensor
    gone: Tensor
    can_be_gone: Tensor
    last: Tensor
    has_last: Tensor

    @property
    def any_missing(self) -> bool:
        """Whether any number can be missing."""
        return len(self.missing) > 0 and bool(self.has_last.any())

    @classmethod
    def of(cls, layout: Layout) -> "_Slots":
        width = layout.group_width
        weight, named, missing = torch.full((width,), 0.5), torch.ones(width), torch.zeros(width)
        binned, mean, second = torch.zeros(width), torch.zeros(width), torch.zeros(width)
        owner, gone, can_be_gone = (torch.zeros(width, dtype=torch.long) for _ in range(3))
        last_slot = torch.zeros(len(layout.numbers), dtype=torch.long)
        has_last = torch.zeros(len(layout.numbers), dtype=torch.bool)
        for group in layout.groups:
            if group.number is None:
                continue
            inside, last = slice(group.start, group.stop), group.stop - 1
            weight[inside], named[inside] = 0.0, 0.0
            if group.column.missing:
                weight[last], named[last], missing[last] = 1.0, 1.0, 1.0
                gone[inside], can_be_gone[inside] = last, 1
                last_slot[group.number], has_last[group.number] = last, True
            if group.column.starts and group.column.role == "encode":
                owner[inside], binned[inside] = layout.group_width + group.number, 1.0
                first, squares = bin_moments(group.column)
                mean[group.start : group.start + len(first)] = first
                second[group.start : group.start + len(first)] = squares
        free = torch.tensor([layout.group_width + i for i in layout.free], dtype=torch.long)
        return cls(weight, named, missing, owner, binned, mean, second, free, gone, can_be_gone, last_slot, has_last)

    def to(self, like: Tensor) -> "_Slots":
        if self.weight.device == like.device:
            return self
        return _Slots(**{f.name: getattr(self, f.name).to(like.device) for f in fields(self)})


def bin_moments(column: Column) -> tuple[Tensor, Tensor]:
    """First and second moment of a uniform draw from the grid points of each bin, on the tensor's scale."""
    assert column.grid is not None
    bins = (column.bins() - column.center) / column.scale
    mean = bins.mean(axis=1)
    points = np.round((bins[:, 1] - bins[:, 0]) * column.scale / column.grid) + 1
    variance = (points**2 - 1) / 12 * (column.grid / column.scale) ** 2
    return torch.from_numpy(mean).float(), torch.from_numpy(mean**2 + variance).float()


def make_distortion(distortion: str | RowDistortion, layout: Layout, release: str) -> Distortion:
    """A distortion by its name (`auto` depends on the kind of release), or from a function of (released, original)."""
    soft = release != "sampled"
    if callable(distortion):
        return Distortion(layout, custom=distortion, soft=soft)
    if distortion == "auto":
        return Distortion(layout, "cross_entropy" if soft else "hamming", numbers="ranks", soft=soft)
    if distortion == "hamming" and layout.numbers:
        raise InputError(
            f"distortion='hamming' is not defined for numbers ({_names(layout.numbers)}). Use 'auto', which counts "
            "changed categories and measures numbers by their ranks."
        )
    if distortion == "ranks" and layout.free:
        without = [layout.numbers[i] for i in layout.free]
        raise InputError(
            f"distortion='ranks' needs numbers with bins, and {_names(without)} has none: pixels, numbers without a "
            "range, soft releases and encoders with a codebook or additive noise. Use 'squared'."
        )
    if distortion in ("hamming", "squared", "ranks"):
        return Distortion(layout, numbers="ranks" if distortion == "ranks" else "squared", soft=soft)
    if distortion == "cross_entropy":
        return Distortion(layout, "cross_entropy", soft=soft)
    expected = "'auto', 'ranks', 'squared', 'hamming', 'cross_entropy', or a function of (released, original)"
    raise InputError(must_be("FairEncoder", "distortion", expected, distortion))


def _names(columns: Sequence[Column]) -> str:
    names = [repr(column.name) for column in columns]
    return ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
