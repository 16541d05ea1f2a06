"""From a network's raw output to a release: actual draws (`sampled`) or the paper's soft vectors (`probabilities`).

Raw output of width `head_width(layout)`: one logit per one-hot slot, then a shift and a log-deviation for each number
without bins. Noise is drawn once per row and shared by all members: they are separate encoders, so this coupling is
harmless, and drawing is a large part of the cost. Large tensors are slot-major in memory (see `grouped_ops`), whatever
their shape.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fairveil._utils.randomness import RandomSource, normal, uniform
from fairveil.data.layout import Group, Layout
from fairveil.encoders.grouped_ops import group_draw, group_softmax
from fairveil.objectives.released import ReleasedBatch

#: Log-odds with which a fresh encoder keeps the original category.
START_LOG_ODDS = 3.5
#: Initial standard deviation of the noise on numbers, on the schema's scale.
START_DEVIATION = 0.05
#: Numbers that are read from their drawn bins by one matrix product: with all at once, its cost would grow with the
#: square of the number of columns.
_BLOCK = 16


def start_logit(width: int) -> float:
    """The bonus for the original's logit, among `width` equal ones, that keeps it with the initial odds."""
    return START_LOG_ODDS + math.log(max(width - 1, 1))


def head_width(layout: Layout) -> int:
    """Number of raw outputs that the heads need."""
    return layout.group_width + 2 * len(layout.free)


@dataclass(frozen=True)
class Noise:
    """Randomness for one batch, shared by all members.

    inputs: (rows, noise_dim) standard normal, for the network; gumbel: for the draws; normal: (rows, numbers);
    uniform in (0, 1): (rows, numbers), or more for encoders that need it.
    """

    inputs: Tensor
    gumbel: Tensor
    normal: Tensor
    uniform: Tensor

    def of_rows(self, rows: slice) -> "Noise":
        """The noise of some rows."""
        return Noise(self.inputs[rows], self.gumbel[rows], self.normal[rows], self.uniform[rows])

    def redrawn(self, source: RandomSource) -> "Noise":
        """The same noise at the network's input, all other noise fresh: for another draw from the same proposal."""
        rows, gumbel = self.gumbel.shape
        fresh = draw_noise(rows, 0, gumbel, self.normal.shape[1], self.uniform.shape[1], source)
        return replace(fresh, inputs=self.inputs)


def draw_noise(rows: int, inputs: int, gumbel: int, normals: int, uniforms: int, source: RandomSource) -> Noise:
    """Fresh noise for a batch: the number of rows, and of variables of each kind per row."""
    chances = uniform(source, rows, gumbel)
    return Noise(
        normal(source, rows, inputs),
        -torch.log(-torch.log(chances.clamp_(1e-20, 1.0 - 1e-7))),
        normal(source, rows, normals),
        uniform(source, rows, uniforms),
    )


class Snap(nn.Module):
    """Clips and rounds numbers to their range and grid, on the tensor's scale, with straight-through gradients."""

    lower: Tensor
    upper: Tensor
    step: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        inf = math.inf
        low = [(-inf if c.lower is None else (c.lower - c.center) / c.scale) for c in layout.numbers]
        high = [(inf if c.upper is None else (c.upper - c.center) / c.scale) for c in layout.numbers]
        step = [(0.0 if c.grid is None else c.grid / c.scale) for c in layout.numbers]
        self.register_buffer("lower", torch.tensor(low, dtype=torch.float32), persistent=False)
        self.register_buffer("upper", torch.tensor(high, dtype=torch.float32), persistent=False)
        self.register_buffer("step", torch.tensor(step, dtype=torch.float32), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        """Clip and round."""
        with torch.no_grad():
            inside = torch.minimum(torch.maximum(numbers, self.lower), self.upper)
            on_grid = self.step > 0
            step = torch.where(on_grid, self.step, 1.0)
            start = torch.where(on_grid, self.lower, 0.0)
            rounded = torch.round((inside - start) / step) * step + start
            snapped = torch.where(on_grid, rounded, inside)
        return snapped + (numbers - numbers.detach())  # adds exactly 0: the release lies on the grid


class Head(nn.Module):
    """Common to both kinds of release: group-wise softmax around the original, kept columns, missing numbers."""

    start: Tensor
    kept: Tensor
    missing_slots: Tensor
    missing_numbers: Tensor

    def __init__(self, layout: Layout, *, residual: bool = True) -> None:
        super().__init__()
        self.layout = layout
        self.residual = residual
        self.widths = [group.width for group in layout.groups]
        self.any_kept = bool(layout.kept.any())
        start = [start_logit(group.width) for group in layout.groups for _ in range(group.width)]
        gone = [(g.stop - 1, g.number) for g in layout.groups if g.number is not None and g.column.missing]
        self.register_buffer("start", torch.tensor(start, dtype=torch.float32), persistent=False)
        self.register_buffer("kept", torch.from_numpy(layout.kept), persistent=False)
        self.register_buffer("missing_slots", torch.tensor([s for s, _ in gone], dtype=torch.long), persistent=False)
        self.register_buffer("missing_numbers", torch.tensor([n for _, n in gone], dtype=torch.long), persistent=False)

    def logits(self, raw: Tensor, original: Tensor) -> Tensor:
        """Logits of the released slots, slot-major: the network corrects a strong preference for the original."""
        preferred = (self.start * original[..., self.layout.grouped]).transpose(-1, -2).contiguous()
        return raw.transpose(-1, -2)[..., self.layout.grouped, :] + preferred

    def softmax(self, logits: Tensor, original: Tensor) -> Tensor:
        """Slot probabilities, (..., rows, slots), from slot-major logits; kept columns keep their value."""
        return self.as_kept(group_softmax(logits, self.widths).transpose(-1, -2), original)

    def as_kept(self, values: Tensor, original: Tensor) -> Tensor:
        """Restore kept slots."""
        if not self.any_kept:
            return values
        return torch.where(self.kept[: values.shape[-1]], original[..., : values.shape[-1]], values)

    def hide_missing(self, grouped: Tensor, numbers: Tensor) -> Tensor:
        """Set numbers that are released as missing to 0."""
        if not len(self.missing_slots):
            return numbers
        present = 1.0 - grouped.index_select(-1, self.missing_slots)
        return numbers * torch.ones_like(numbers).index_copy(-1, self.missing_numbers, present)


class SampledHead(Head):
    """Actual draws: one slot per group by the Gumbel-max trick, then a grid point within the drawn bin of each number.

    Within a bin the draw is uniform and independent of X and S: a number carries no information beyond its bin, which
    every adversary sees. (An encoder free to shift numbers hides S in their last digits, where a tree finds it and a
    network does not.) Numbers without bins get a learned shift and Gaussian noise, are clipped and rounded to their
    grid. Training uses the same hard draw, with the gradient of the relaxed one (straight-through Gumbel, temperature
    1).
    """

    free: Tensor

    def __init__(self, layout: Layout, *, residual: bool = True) -> None:
        super().__init__(layout, residual=residual)
        self.snap = Snap(layout)
        groups = {group.number: group for group in layout.groups if group.number is not None and group.column.starts}
        self.pieces: list[int] = []  # sizes of slots between blocks and of blocks of numbers, in turn
        for i, first in enumerate(range(0, len(layout.numbers), _BLOCK)):
            numbers = range(first, min(first + _BLOCK, len(layout.numbers)))
            inside, ends = _ends([groups.get(number) for number in numbers], sum(self.pieces))
            self.register_buffer(f"ends{i}", ends, persistent=False)
            self.pieces += [inside.start - sum(self.pieces), inside.stop - inside.start]
        self.pieces.append(layout.group_width - sum(self.pieces))
        self.register_buffer("free", torch.tensor(layout.free, dtype=torch.long), persistent=False)

    def forward(self, raw: Tensor, original: Tensor, noise: Noise) -> ReleasedBatch:
        """Draw a release."""
        logits = self.logits(raw, original)
        drawn = group_draw(logits + noise.gumbel.transpose(-1, -2).contiguous(), self.widths)
        if self.any_kept:
            drawn = self.as_kept(drawn.transpose(-1, -2), original).transpose(-1, -2)
        values = drawn
        if self.layout.numbers:
            numbers = self.numbers(drawn, raw, original, noise)
            values = torch.cat([drawn, numbers.transpose(-1, -2)], dim=-2)
        return ReleasedBatch(self.as_kept(values.transpose(-1, -2), original), lambda: self.softmax(logits, original))

    def numbers(self, drawn: Tensor, raw: Tensor, original: Tensor, noise: Noise) -> Tensor:
        """The numbers for the drawn slots: (..., rows, numbers)."""
        numbers = self.within_bins(drawn, noise.uniform)
        if len(self.free):
            numbers = self.add_free(numbers, raw, original, noise)
        return self.hide_missing(drawn.transpose(-1, -2), self.snap(numbers))

    def binned(self, drawn: Tensor, uniform: Tensor) -> Tensor:
        """The numbers for the drawn slots if all numbers have bins: (..., rows, numbers)."""
        return self.hide_missing(drawn.transpose(-1, -2), self.snap(self.within_bins(drawn, uniform)))

    def within_bins(self, drawn: Tensor, uniform: Tensor) -> Tensor:
        """A point in the drawn bin of each number, not yet rounded to the grid."""
        # Split, not sliced: the gradient of a slice is as large as the whole.
        blocks = torch.split(drawn, self.pieces, dim=-2)[1::2]
        parts = [torch.matmul(getattr(self, f"ends{i}"), block).transpose(-1, -2).chunk(2, dim=-1)
                 for i, block in enumerate(blocks)]  # fmt: skip
        lows, spans = (part[0] if len(part) == 1 else torch.cat(part, dim=-1) for part in zip(*parts, strict=True))
        return lows + spans * uniform

    def add_free(self, numbers: Tensor, raw: Tensor, original: Tensor, noise: Noise) -> Tensor:
        """Numbers without bins: the original plus a learned shift and learned noise."""
        count = len(self.free)
        shift, spread = torch.split(raw[..., self.layout.group_width :], [count, count], dim=-1)
        deviation = START_DEVIATION * torch.exp(spread.clamp(-6.0, 6.0))
        if self.layout.all_free:
            return (original + shift if self.residual else shift) + deviation * noise.normal
        start = original[..., self.layout.continuous].index_select(-1, self.free)
        mean = start + shift if self.residual else shift
        return numbers.index_copy(-1, self.free, mean + deviation * noise.normal.index_select(-1, self.free))


def _ends(groups: Sequence[Group | None], start: int) -> tuple[slice, Tensor]:
    """The slots of some numbers, as one slice, and a matrix that maps drawn slots to the low end of each number's bin
    and its length: (2 numbers, slots). None: a number without bins. start: where the slice is if none has bins.
    """
    present = [group for group in groups if group is not None]
    inside = slice(present[0].start, present[-1].stop) if present else slice(start, start)
    ends = torch.zeros(2 * len(groups), inside.stop - inside.start)
    for row, group in enumerate(groups):
        if group is None:
            continue
        column = group.column
        bins = torch.from_numpy((column.bins() - column.center) / column.scale).float()
        slots = slice(group.start - inside.start, group.start - inside.start + len(bins))
        step = (column.grid or 0.0) / column.scale
        # From half a step below the first grid point to half a step above the last: all are equally likely.
        ends[row, slots] = bins[:, 0] - 0.499 * step
        ends[len(groups) + row, slots] = bins[:, 1] - bins[:, 0] + 0.998 * step
    return inside, ends


class ProbabilityHead(Head):
    """The paper's release: group-wise probabilities and real-valued numbers. Its fine structure leaks S."""

    def forward(self, raw: Tensor, original: Tensor, noise: Noise) -> ReleasedBatch:
        """Soft values; all randomness comes from the noise at the network's input."""
        grouped = self.softmax(self.logits(raw, original), original)
        shift = raw[..., self.layout.group_width : self.layout.width]
        start = original[..., self.layout.continuous] if self.residual else 0.0
        numbers = self.hide_missing(grouped, start + shift)
        values = self.as_kept(torch.cat([grouped, numbers], dim=-1), original)
        return ReleasedBatch(values, values[..., self.layout.grouped])


def make_head(release: str, layout: Layout, *, residual: bool = True) -> Head:
    """The head for a kind of release. residual: outputs are added to the original, otherwise they replace it."""
    kind = SampledHead if release == "sampled" else ProbabilityHead
    return kind(layout, residual=residual)
