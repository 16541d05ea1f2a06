"""The probability matrix (PMM): one learned transition matrix over a finite alphabet.

The alphabet is the product of a few categorical columns, so that all of them change together; or, for any table, K
cells with a representative row each (`fairveil.encoders.codebook`): a row is released as some cell's representative.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil._utils.errors import InputError
from fairveil.data.schema import Layout
from fairveil.encoders.base import Encoder, EncoderSpec
from fairveil.encoders.codebook import cell_distances
from fairveil.encoders.grouped_ops import group_draw
from fairveil.encoders.heads import Noise, start_logit
from fairveil.objectives.distortion import Release, slot_weights

#: Largest product alphabet: its matrix has the square of this many entries a member.
MOST_CELLS = 2048


class Finite(Encoder):
    """An encoder that releases one of a few whole records, the same for all rows: `table` (cells, width)."""

    table: Tensor
    weights: Tensor

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int, table: Tensor) -> None:
        super().__init__(layout, spec, members)
        self.cells = len(table)
        self.register_buffer("table", self.consistent(table) if layout.links else table, persistent=False)
        self.register_buffer("weights", slot_weights(layout), persistent=False)

    @property
    def gumbel_width(self) -> int:
        """One for each cell that may be drawn."""
        return self.cells

    def cell_of(self, rows: Tensor) -> Tensor:
        """The cell to which each row belongs: (rows,)."""
        return self.distances(rows).argmin(dim=1)

    def distances(self, rows: Tensor) -> Tensor:
        """Distortion of each row if it were released as each cell: (rows, cells)."""
        return cell_distances(rows, self.table, self.weights)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """Draw a cell a row from logits (members, rows, cells); gradients by straight-through Gumbel."""
        chances = proposal.softmax(dim=-1)
        grouped, numbers = self.layout.grouped, self.layout.continuous

        def drawn() -> Tensor:
            perturbed = (proposal + noise.gumbel).transpose(-1, -2)
            return group_draw(perturbed, [self.cells]).transpose(-1, -2) @ self.table

        squares = None
        if self.layout.numbers:
            distances = cell_distances(rows[:, numbers], self.table[:, numbers], self.weights[numbers])
            squares = (chances * distances).sum(dim=-1)
        return Release(drawn, lambda: chances @ self.table[:, grouped], self.table, chances, squares)


class Matrix(Finite):
    """`logits` (members, [classes of S,] cells, cells): row x of its softmax is the distribution of X_r given x."""

    strides: Tensor

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        problem = _problem(layout, spec)
        if problem:
            raise InputError(f"architecture='matrix' {problem}")
        if spec.cells:
            super().__init__(layout, spec, members, torch.tensor(spec.cells, dtype=torch.float32))
            strides = torch.zeros(0)
        else:
            super().__init__(layout, spec, members, _table(layout, _combinations(layout)))
            strides = _strides(layout)
        self.register_buffer("strides", strides, persistent=False)
        self.logits = nn.Parameter(torch.zeros(members, max(spec.sensitive_width, 1), self.cells, self.cells))

    def transition(self) -> Tensor:
        """P(x_r | x[, s]) of each member: (members, classes, cells, cells)."""
        return self.logits.softmax(dim=-1)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The row of the matrix that belongs to each row's cell: logits (members, rows, cells)."""
        cell = self.cell_of(rows)
        given = torch.zeros_like(cell) if sensitive is None else sensitive.argmax(dim=-1)
        return self.logits[:, given, cell]

    def cell_of(self, rows: Tensor) -> Tensor:
        """The cell to which each row belongs: (rows,)."""
        return super().cell_of(rows) if self.spec.cells else (rows * self.strides).sum(dim=-1).round().long()

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Close to the identity."""
        with torch.no_grad():
            for logits, generator in zip(self.logits, generators, strict=True):
                logits.normal_(0.0, 0.1, generator=generator)
                logits += start_logit(self.cells) * torch.eye(self.cells, device=logits.device)


def _problem(layout: Layout, spec: EncoderSpec) -> str | None:
    """Why there can be no matrix for this table, and what to do."""
    product = "Use 'feedforward' for larger or mixed tables, or cells=K for a code of K cells."
    if layout.kept.any():
        return f"releases whole rows, so all columns must be encoded. {product}"
    if spec.sensitive_width and not spec.sensitive_discrete:
        return "can see S only if S is a class. Use 'feedforward' or sees_sensitive=False."
    if spec.release != "sampled":
        return "releases draws, so it needs release='sampled'."
    if spec.cells:
        return None
    if layout.numbers or not layout.groups:
        return f"needs categorical columns only. {product}"
    if _combinations(layout) > MOST_CELLS:
        return f"has {_combinations(layout)} combinations of categories to deal with, more than {MOST_CELLS}. {product}"
    return None


def _combinations(layout: Layout) -> int:
    return math.prod(group.width for group in layout.groups)


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
