"""From a network's raw output to a release: real draws (`sampled`) or the paper's soft vectors (`probabilities`).

Raw output of width `head_width(layout)`: a logit a one-hot slot, then a shift and a log-deviation for each number
without bins.
Noise is drawn once a row and shared by all members: they are separate encoders, so their coupling is harmless, and
drawing is a large part of the cost.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil.objectives.distortion import Release
from fairveil.schema import Layout

#: Odds with which a fresh encoder keeps the original category, as a log.
START_LOG_ODDS = 3.5
#: The deviation of the noise on numbers at the start, on the schema's scale.
START_DEVIATION = 0.05


def start_logit(width: int) -> float:
    """What to add to the original's logit, among `width` equal ones, for it to be kept with the starting odds."""
    return START_LOG_ODDS + math.log(max(width - 1, 1))


def head_width(layout: Layout) -> int:
    """How many raw outputs the heads need."""
    return layout.group_width + 2 * len(layout.free)


@dataclass(frozen=True)
class Noise:
    """Randomness for one batch, shared by all members.

    inputs: (rows, noise_dim) standard normal, for the network; gumbel: for the draws; normal and
    uniform in (0, 1): (rows, numbers).
    """

    inputs: Tensor
    gumbel: Tensor
    normal: Tensor
    uniform: Tensor


def draw_noise(rows: int, inputs: int, gumbel: int, numbers: int, generator: torch.Generator) -> Noise:
    """Fresh noise for a batch of rows: how many variables of each sort a row."""
    device = generator.device
    uniform = torch.rand(rows, gumbel, generator=generator, device=device)
    return Noise(
        torch.randn(rows, inputs, generator=generator, device=device),
        -torch.log(-torch.log(uniform.clamp_(1e-20, 1.0 - 1e-7))),
        torch.randn(rows, numbers, generator=generator, device=device),
        torch.rand(rows, numbers, generator=generator, device=device),
    )


class Snap(nn.Module):
    """Numbers to their range and grid, on the tensor's scale; the gradient passes straight through."""

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
        return snapped + (numbers - numbers.detach())  # adds exactly 0: what is released lies on the grid


class Head(nn.Module):
    """What both kinds of release share: group-wise softmax around the original, kept columns, missing numbers."""

    start: Tensor
    kept: Tensor
    missing_slots: Tensor
    missing_numbers: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.layout = layout
        self.widths = [group.width for group in layout.groups]
        start = [start_logit(group.width) for group in layout.groups for _ in range(group.width)]
        gone = [(g.stop - 1, g.number) for g in layout.groups if g.number is not None and g.column.missing]
        self.register_buffer("start", torch.tensor(start, dtype=torch.float32), persistent=False)
        self.register_buffer("kept", torch.from_numpy(layout.kept), persistent=False)
        self.register_buffer("missing_slots", torch.tensor([s for s, _ in gone], dtype=torch.long), persistent=False)
        self.register_buffer("missing_numbers", torch.tensor([n for _, n in gone], dtype=torch.long), persistent=False)

    def logits(self, raw: Tensor, original: Tensor) -> Tensor:
        """Logits of the released slots: the network corrects a strong preference for the original."""
        slots = self.layout.grouped
        return raw[..., slots] + self.start * original[..., slots]

    def softmax(self, logits: Tensor) -> Tensor:
        """Softmax within each group; kept columns keep their value for sure."""
        if not self.widths:
            return logits
        return torch.cat([part.softmax(dim=-1) for part in torch.split(logits, self.widths, dim=-1)], dim=-1)

    def as_kept(self, values: Tensor, original: Tensor) -> Tensor:
        """Kept slots as they were."""
        if not self.layout.kept.any():
            return values
        return torch.where(self.kept[: values.shape[-1]], original[..., : values.shape[-1]], values)

    def hide_missing(self, grouped: Tensor, numbers: Tensor) -> Tensor:
        """A number that is released as missing shows as 0."""
        if not len(self.missing_slots):
            return numbers
        present = 1.0 - grouped.index_select(-1, self.missing_slots)
        return numbers * torch.ones_like(numbers).index_copy(-1, self.missing_numbers, present)


class SampledHead(Head):
    """Real draws: one slot a group by the Gumbel trick, then a grid point within the drawn bin of each number.

    Within a bin the draw is uniform and knows neither X nor S: what a number carries is its bin, which every adversary
    sees as such. (An encoder free to shift numbers hides S in their last digits, where a tree finds it and a network
    does not.) Numbers without bins get a learned shift and Gaussian noise, are clipped and put on their grid.
    Training sees the same hard draw, with the gradient of the relaxed one (straight-through Gumbel, temperature 1).
    """

    lows: Tensor
    spans: Tensor
    free: Tensor

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.snap = Snap(layout)
        lows = torch.zeros(layout.group_width, len(layout.numbers))
        spans = torch.zeros(layout.group_width, len(layout.numbers))
        for group in layout.groups:
            column = group.column
            if group.number is not None and column.starts:
                bins = torch.from_numpy((column.bins() - column.center) / column.scale).float()
                slots = slice(group.start, group.start + len(bins))
                step = (column.grid or 0.0) / column.scale
                # From half a step below the first grid point to half a step above the last: each is equally likely.
                lows[slots, group.number] = bins[:, 0] - 0.499 * step
                spans[slots, group.number] = bins[:, 1] - bins[:, 0] + 0.998 * step
        self.register_buffer("lows", lows, persistent=False)
        self.register_buffer("spans", spans, persistent=False)
        self.register_buffer("free", torch.tensor(layout.free, dtype=torch.long), persistent=False)

    def forward(self, raw: Tensor, original: Tensor, noise: Noise) -> Release:
        """Draw a release."""
        logits = self.logits(raw, original)
        grouped = self.as_kept(self.draw(logits, noise), original)
        numbers = grouped @ self.lows + (grouped @ self.spans) * noise.uniform
        if len(self.free):
            numbers = self.add_free(numbers, raw, original, noise)
        numbers = self.hide_missing(grouped, self.snap(numbers))
        values = self.as_kept(torch.cat([grouped, numbers], dim=-1), original)
        return Release(values, self.as_kept(self.softmax(logits), original))

    def add_free(self, numbers: Tensor, raw: Tensor, original: Tensor, noise: Noise) -> Tensor:
        """Numbers without bins: the original with a learned shift and learned noise."""
        count = len(self.free)
        shift, spread = torch.split(raw[..., self.layout.group_width :], [count, count], dim=-1)
        deviation = START_DEVIATION * torch.exp(spread.clamp(-6.0, 6.0))
        start = original[..., self.layout.continuous].index_select(-1, self.free)
        moved = start + shift + deviation * noise.normal.index_select(-1, self.free)
        return numbers.index_copy(-1, self.free, moved)

    def draw(self, logits: Tensor, noise: Noise) -> Tensor:
        """One-hot draws, one a group; the gradient is that of the softmax of the perturbed logits."""
        perturbed = logits + noise.gumbel
        if not self.widths:
            return perturbed
        parts = []
        for part in torch.split(perturbed, self.widths, dim=-1):
            hard = F.one_hot(part.detach().argmax(dim=-1), part.shape[-1]).to(part.dtype)
            if part.requires_grad:
                relaxed = part.softmax(dim=-1)
                hard = hard + (relaxed - relaxed.detach())
            parts.append(hard)
        return torch.cat(parts, dim=-1)


class ProbabilityHead(Head):
    """The paper's release: group-wise probabilities and the network's real numbers. Its fine structure leaks S."""

    def forward(self, raw: Tensor, original: Tensor, noise: Noise) -> Release:
        """Soft values; all randomness comes from the noise at the network's input."""
        grouped = self.softmax(self.logits(raw, original))
        shift = raw[..., self.layout.group_width : self.layout.width]
        numbers = self.hide_missing(grouped, original[..., self.layout.continuous] + shift)
        values = self.as_kept(torch.cat([grouped, numbers], dim=-1), original)
        return Release(values, values[..., self.layout.grouped])


def make_head(release: str, layout: Layout) -> Head:
    """A head by the name of its release."""
    return SampledHead(layout) if release == "sampled" else ProbabilityHead(layout)
