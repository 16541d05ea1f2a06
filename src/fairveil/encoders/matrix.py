"""The probability matrix (PMM): one learned transition matrix over a finite alphabet.

The alphabet is the product of a few categorical columns, so that all of them change jointly; or, for any table, a
codebook of K records (`fairveil.encoders.codebook`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil._utils.randomness import Seeds
from fairveil.data.images import ImageSchema
from fairveil.data.layout import Layout
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.base import Encoder
from fairveil.encoders.codebook import MOST_CELLS, cell_distances, check_cells, learn_codebook
from fairveil.encoders.exact import solve
from fairveil.encoders.grouped_ops import group_draw
from fairveil.encoders.heads import Noise, start_logit
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.objectives.distortion import slot_weights
from fairveil.objectives.released import ReleasedBatch

#: The largest alphabet and the most classes of S for which the channel is solved: seconds.
MOST_SOLVED, MOST_SOLVED_CLASSES = 32, 8


@dataclass(frozen=True)
class Matrix(Architecture):
    """The probability matrix (PMM): a learned channel over a finite alphabet, which can be certified.

    Parameters
    ----------
    n_cells : int, optional
        Maximum size of a codebook; each row is released as one of its records. Without it, the alphabet consists of all
        combinations of categories, for a few categorical columns.
    exact : bool
        Solve for the channel of least I(R; S) instead of learning it, for an alphabet of at most 32 records and at most
        8 classes of S, and for the log-loss, without a known task or equalized odds.
    codebook :
        Learned in `fit`; leave it empty.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(3.3, architecture=fv.Matrix(n_cells=64), sees_sensitive=True)
    """

    name: ClassVar[str] = "matrix"

    n_cells: int | None = None
    exact: bool = False
    codebook: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.n_cells is not None:
            check_cells("Matrix", self.n_cells)

    def defaults(self, layout: Layout) -> Mapping[str, Any]:
        """An exact channel needs no game."""
        return {**self.training, "steps": None} if self.exact else self.training

    @property
    def solves(self) -> bool:
        """An exact channel is not learned in a game."""
        return self.exact

    @property
    def uses_bins(self) -> bool:
        """Records of a codebook hold numbers, not bins."""
        return self.n_cells is None

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It releases complete records from a small alphabet."""
        layout = signature.layout
        remedy = "Use 'feedforward' for larger or mixed tables, or fairveil.Matrix(n_cells=K) for a codebook."
        if layout.shape is not None:
            return "releases records of a codebook, which is for tables, not for images."
        if layout.kept.any():
            return f"releases complete rows, so all columns must be encoded. {remedy}"
        if signature.sensitive_width and not signature.sensitive_discrete:
            return "can see S only if S is a class. Use 'feedforward' or sees_sensitive=False."
        if not signature.sampled:
            return "releases draws, so it needs release='sampled'."
        if self.exact and (self.n_cells is not None or len(signature.groups) not in range(2, MOST_SOLVED_CLASSES + 1)):
            return f"is solved exactly for at most {MOST_SOLVED_CLASSES} classes of S, and without a codebook."
        if self.n_cells is not None:
            return None
        if layout.numbers or not layout.groups:
            return f"needs categorical columns only. {remedy}"
        if _combinations(layout) > MOST_CELLS:
            return f"would need {_combinations(layout)} combinations of categories, more than {MOST_CELLS}. {remedy}"
        if self.exact and _combinations(layout) > MOST_SOLVED:
            return (
                f"is solved exactly for at most {MOST_SOLVED} combinations of categories, not {_combinations(layout)}."
            )
        return None

    def fitted(self, rows: Rows, schema: Schema | ImageSchema, seeds: Seeds) -> Self:
        """With a codebook, if one is needed."""
        return replace(self, codebook=learn_codebook(rows, schema, self.n_cells, seeds.number()))

    def build(self, signature: Signature, members: int) -> "MatrixEncoder":
        """The channel."""
        return MatrixEncoder(self, signature, members)


class Finite(Encoder):
    """An encoder that releases one of a few complete records, the same for all rows: `table` (cells, width)."""

    table: Tensor
    weights: Tensor

    def __init__(self, architecture: Architecture, signature: Signature, members: int, table: Tensor) -> None:
        super().__init__(architecture, signature, members)
        if table.dim() != 2 or table.shape[1] != self.layout.width:  # read from a crafted file
            raise ValueError("the records of its codebook do not match its columns")
        self.cells = len(table)
        self.register_buffer("table", self.consistent(table) if self.layout.links else table, persistent=False)
        self.register_buffer("weights", slot_weights(self.layout), persistent=False)

    @property
    def alphabet(self) -> int | None:
        """The number of records that can be released."""
        return self.cells

    @property
    def gumbel_width(self) -> int:
        """One per cell."""
        return self.cells

    def cell_of(self, rows: Tensor) -> Tensor:
        """The cell of each row: (rows,)."""
        return self.distances(rows).argmin(dim=1)

    def distances(self, rows: Tensor) -> Tensor:
        """Distortion of each row if it were released as each cell: (rows, cells)."""
        return cell_distances(rows, self.table, self.weights)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Draw one cell per row from logits (members, rows, cells), with straight-through Gumbel gradients."""
        chances = proposal.softmax(dim=-1)
        grouped, numbers = self.layout.grouped, self.layout.continuous

        def drawn() -> Tensor:
            perturbed = (proposal + noise.gumbel).transpose(-1, -2)
            return group_draw(perturbed, [self.cells]).transpose(-1, -2) @ self.table

        squares = None
        if self.layout.numbers:
            distances = cell_distances(rows[:, numbers], self.table[:, numbers], self.weights[numbers])
            squares = (chances * distances).sum(dim=-1)
        return ReleasedBatch(drawn, lambda: chances @ self.table[:, grouped], self.table, chances, squares)


class MatrixEncoder(Finite):
    """`logits` (members, [classes of S,] cells, cells): row x of its softmax is the distribution of X_r given x."""

    strides: Tensor

    architecture: Matrix

    def __init__(self, architecture: Matrix, signature: Signature, members: int) -> None:
        layout = signature.layout
        if architecture.codebook:
            table, strides = torch.tensor(architecture.codebook, dtype=torch.float32), torch.zeros(0)
        else:
            table, strides = _table(layout, _combinations(layout)), _strides(layout)
        super().__init__(architecture, signature, members, table)
        self.register_buffer("strides", strides, persistent=False)
        self.logits = nn.Parameter(torch.zeros(members, max(signature.sensitive_width, 1), self.cells, self.cells))

    def channel(self) -> Tensor:
        """P(x_r | x[, s]) of each member: (members, classes, cells, cells)."""
        return self.logits.softmax(dim=-1)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The matrix row for each row's cell: logits (members, rows, cells)."""
        cell = self.cell_of(rows)
        given = torch.zeros_like(cell) if sensitive is None else sensitive.argmax(dim=-1)
        return self.logits[:, given, cell]

    def cell_of(self, rows: Tensor) -> Tensor:
        """The cell of each row: (rows,)."""
        return super().cell_of(rows) if self.architecture.codebook else (rows * self.strides).sum(dim=-1).round().long()

    def warm_start(self, start: WarmStart) -> None:
        """Solve for the channel, if it is to be exact."""
        if self.architecture.exact:
            solve(self, start)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Close to the identity."""
        with torch.no_grad():
            for logits, generator in zip(self.logits, generators, strict=True):
                logits.normal_(0.0, 0.1, generator=generator)
                logits += start_logit(self.cells) * torch.eye(self.cells, device=logits.device)


def _combinations(layout: Layout) -> int:
    return math.prod(group.width for group in layout.groups)


def _strides(layout: Layout) -> Tensor:
    """Weights that convert the one-hot groups of a row to the index of its cell."""
    weights, stride = [], 1
    for group in reversed(layout.groups):
        weights.append(torch.arange(group.width, dtype=torch.float32) * stride)
        stride *= group.width
    return torch.cat(weights[::-1])


def _table(layout: Layout, cells: int) -> Tensor:
    """The row that each cell represents: (cells, width)."""
    grids = torch.cartesian_prod(*[torch.arange(group.width) for group in layout.groups]).reshape(cells, -1)
    parts = [F.one_hot(grids[:, i], group.width) for i, group in enumerate(layout.groups)]
    return torch.cat(parts, dim=-1).to(torch.float32)
