"""The distance of a release from the original, per row, separately for categorical and continuous columns.

All of these are means over rows of a sum over columns, so they do not depend on the size of a batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil.data.columns import Column
from fairveil.data.layout import Layout
from fairveil.objectives.released import ReleasedBatch

#: Position of each kind of column in the last dimension of a distortion.
KINDS = ("categorical", "continuous")
_SMALLEST = 1e-12

RowDistortion = Callable[[Tensor, Tensor], Tensor]
CategoricalMeasure = Literal["hamming", "squared", "cross_entropy"]


class Distortion:
    """Distortion of each row as a tensor (..., rows, 2): its categorical and its continuous part.

    categorical: `hamming`: the number of columns whose value differs (for a number: whether it is missing differs).
        `squared`: the squared distance of one-hot vectors, twice the Hamming distance. `cross_entropy`: minus the log
        of the probability of the original value, in nats (the authors' choice).
    soft: the release consists of the probabilities themselves. Hamming is then the probability that a draw from them
        would differ, squared the distance between the vectors.
    custom: a function of (released, original), each (..., rows, width), that replaces both parts by one number per row.
    Numbers count by the squared difference on the schema's scale.
    """

    def __init__(
        self,
        layout: Layout,
        categorical: CategoricalMeasure = "hamming",
        custom: RowDistortion | None = None,
        *,
        soft: bool = False,
    ) -> None:
        self.layout = layout
        self.categorical = categorical
        self.custom = custom
        self.soft = soft
        self._slots = _Slots.of(layout)

    @property
    def name(self) -> str:
        """The measure's name; a custom function is identified by its name, as its address changes with every run."""
        return f"{self.categorical}, {getattr(self.custom, '__qualname__', None)}"

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
        weight = slots.weight * self._doubled
        continuous = None
        if len(slots.free) < len(self.layout.numbers):
            number = original[..., slots.owner]
            continuous = slots.binned * (slots.second - 2.0 * slots.mean * number + number.square())
        return _Prices((1.0 - 2.0 * x) * weight, (x * weight).sum(dim=-1), continuous)

    def realised(self, release: ReleasedBatch, original: Tensor) -> Tensor:
        """Of the rows as released."""
        if self.custom is not None:
            total = self.custom(release.values, original.expand_as(release.values))
            if not isinstance(total, Tensor) or total.shape != release.values.shape[:-1]:
                raise InputError("A distortion function must return one number per row: a tensor of shape (..., rows).")
            return torch.stack([total, torch.zeros_like(total)], dim=-1)
        slots = self._slots.to(original)
        grouped, numbers = self.layout.grouped, self.layout.continuous
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
            categorical = ((release.values[..., grouped] - x).square() * slots.weight).sum(dim=-1) * self._doubled
        continuous = (release.values[..., numbers] - original[..., numbers]).square().sum(dim=-1)
        return torch.stack([categorical.expand_as(continuous), continuous], dim=-1)

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
    def _doubled(self) -> float:
        return 2.0 if self.categorical == "squared" else 1.0

    @property
    def is_additive(self) -> bool:
        """Whether it is a sum over columns of distances between released and original values."""
        return self.custom is None and not self.soft and self.categorical != "cross_entropy"

    @property
    def is_weighted_square(self) -> bool:
        """Whether it is sum w (r - x)^2 with the `slot_weights`, as for categories and numbers by default."""
        categories = [group for group in self.layout.groups if group.number is None or group.column.missing]
        right = self.categorical == "hamming" or (self.categorical == "squared" and not categories)
        return right and self.custom is None

    @property
    def is_bounded(self) -> bool:
        """Whether `Layout.largest_distortion` bounds it."""
        return self.custom is None and self.categorical == "hamming"


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
    second: first and second moment of the number released when this slot is drawn. free: numbers without bins.
    """

    weight: Tensor
    named: Tensor
    missing: Tensor
    owner: Tensor
    binned: Tensor
    mean: Tensor
    second: Tensor
    free: Tensor

    @classmethod
    def of(cls, layout: Layout) -> "_Slots":
        width = layout.group_width
        weight, named, missing = torch.full((width,), 0.5), torch.ones(width), torch.zeros(width)
        binned, mean, second = torch.zeros(width), torch.zeros(width), torch.zeros(width)
        owner = torch.zeros(width, dtype=torch.long)
        for group in layout.groups:
            if group.number is None:
                continue
            inside, last = slice(group.start, group.stop), group.stop - 1
            weight[inside], named[inside] = 0.0, 0.0
            if group.column.missing:
                weight[last], named[last], missing[last] = 1.0, 1.0, 1.0
            if group.column.starts and group.column.role == "encode":
                owner[inside], binned[inside] = layout.group_width + group.number, 1.0
                first, squares = bin_moments(group.column)
                mean[group.start : group.start + len(first)] = first
                second[group.start : group.start + len(first)] = squares
        free = torch.tensor([layout.group_width + i for i in layout.free], dtype=torch.long)
        return cls(weight, named, missing, owner, binned, mean, second, free)

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
        return Distortion(layout, "cross_entropy" if soft else "hamming", soft=soft)
    if distortion == "hamming" and layout.numbers:
        names = ", ".join(repr(column.name) for column in layout.numbers)
        raise InputError(
            f"distortion='hamming' is not defined for numbers ({names}). Use 'auto', which uses Hamming for "
            "categories and squares for numbers."
        )
    if distortion in get_args(CategoricalMeasure):
        return Distortion(layout, cast(CategoricalMeasure, distortion), soft=soft)
    expected = "'auto', 'hamming', 'squared', 'cross_entropy', or a function of (released, original)"
    raise InputError(must_be("FairEncoder", "distortion", expected, distortion))
