"""The probability matrix (PMM): for a discrete row, one learned transition matrix over its alphabet.

With several columns the alphabet is their product, so all columns change together; it must stay small.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil.encoders.base import Encoder, EncoderSpec
from fairveil.encoders.heads import Noise, start_logit
from fairveil.errors import InputError
from fairveil.objectives.distortion import Release
from fairveil.schema import Layout

#: Largest product alphabet: its matrix has the square of this many entries a member.
MOST_CELLS = 2048


class Matrix(Encoder):
    """`logits` (members, [classes of S,] cells, cells): row x of its softmax is the distribution of X_r given x."""

    strides: Tensor
    table: Tensor

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        cells = 1
        for group in layout.groups:
            cells *= group.width
        problem = None
        if layout.numbers or not layout.groups or layout.kept.any():
            problem = "needs categorical columns only, all to be encoded"
        elif cells > MOST_CELLS:
            problem = f"has {cells} combinations of categories to deal with, more than {MOST_CELLS}"
        elif spec.sensitive_width and not spec.sensitive_discrete:
            problem = "can see S only if S is a class"
        elif spec.release != "sampled":
            problem = "releases draws, so it needs release='sampled'"
        if problem:
            raise InputError(f"architecture='matrix' {problem}. Use 'feedforward' for larger or mixed tables.")
        self.cells = cells
        self.register_buffer("strides", _strides(layout), persistent=False)
        self.register_buffer("table", _table(layout, cells), persistent=False)
        self.logits = nn.Parameter(torch.zeros(members, max(spec.sensitive_width, 1), cells, cells))

    @property
    def gumbel_width(self) -> int:
        """One for each cell that may be drawn."""
        return self.cells

    def transition(self) -> Tensor:
        """P(x_r | x[, s]) of each member: (members, classes, cells, cells)."""
        return self.logits.softmax(dim=-1)

    def forward(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Release:
        """Draw a cell a row from the matrix; gradients by straight-through Gumbel."""
        cell = (rows * self.strides).sum(dim=-1).round().long()
        given = torch.zeros_like(cell) if sensitive is None else sensitive.argmax(dim=-1)
        logits = self.logits[:, given, cell]
        perturbed = logits + noise.gumbel
        hard = F.one_hot(perturbed.detach().argmax(dim=-1), self.cells).to(rows.dtype)
        if logits.requires_grad:
            relaxed = perturbed.softmax(dim=-1)
            hard = hard + (relaxed - relaxed.detach())
        chances = logits.softmax(dim=-1)
        return Release(hard @ self.table, chances @ self.table, self.table, chances)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Close to the identity."""
        with torch.no_grad():
            for logits, generator in zip(self.logits, generators, strict=True):
                logits.normal_(0.0, 0.1, generator=generator)
                logits += start_logit(self.cells) * torch.eye(self.cells, device=logits.device)


def _strides(layout: Layout) -> Tensor:
    """Weights that turn the one-hot groups of a row into the number of its cell."""
    weights, stride = [], 1
    for group in reversed(layout.groups):
        weights.append(torch.arange(group.width, dtype=torch.float32) * stride)
        stride *= group.width
    return torch.cat(weights[::-1])


def _table(layout: Layout, cells: int) -> Tensor:
    """The row (width) that each cell stands for: (cells, width)."""
    grids = torch.cartesian_prod(*[torch.arange(group.width) for group in layout.groups]).reshape(cells, -1)
    parts = [F.one_hot(grids[:, i], group.width) for i, group in enumerate(layout.groups)]
    return torch.cat(parts, dim=-1).to(torch.float32)
