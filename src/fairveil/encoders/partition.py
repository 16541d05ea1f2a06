"""A partition of the row space for each group of S: which rows are released as which of K records.

For K records that may be released, the channel P(z | x, s) that minimises I(S; Z) + lambda E d(x, z) is known up to K
numbers per group: the problem is convex, and by its first-order condition a row goes to the record that minimises
d(x, z) + log(P(z | s) / P(z)) / lambda. Every group thus has its own power diagram of the same records: the distance to
a record is the distortion minus a potential of the record and the group. Only the potentials are learned, whatever the
number of columns; with those of optimal transport all groups have the same release distribution. (This holds for one
bound on the total distortion; with one bound per kind of column it is a good channel, but not optimal.)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairveil._utils.progress import progress
from fairveil._utils.randomness import Seeds
from fairveil.data.images import ImageSchema, rows_at_once
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.encoders.architecture import Architecture, Signature, check_weights
from fairveil.encoders.codebook import check_cells, learn_cells, learn_codebook, plain_rows, squared_distances
from fairveil.encoders.heads import Noise
from fairveil.encoders.matrix import Finite
from fairveil.encoders.scores import Scores, centred, learn_scores, steps_width
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.objectives.distortion import slot_weights

#: Softness of the cell borders, in units of the distance between neighbouring records: sharp ones have no gradient.
_BORDER = 0.05
#: Warm start: Sinkhorn iterations, rows per group, and bisection steps between zero potentials and those of transport.
_SINKHORN_ROUNDS, _SINKHORN_ROWS, _HALVINGS = 200, 4000, 12
#: Newton iterations of a balanced partition at each softness, of which the last is its own and each other is twice the
#: next: from a soft partition to a sharp one they converge fast, and at once they would not.
_NEWTON_ROUNDS, _SOFTER = 30, 7
#: Iterations end when all shares are this close to those wanted.
_CLOSE = 1e-6


@dataclass(frozen=True)
class Partition(Architecture):
    """Each group of S has its own power diagram of the same K records: for many groups and many numbers.

    Parameters
    ----------
    n_cells : int
        Maximum number of records that can be released.
    codebook :
        Learned in `fit`; leave it empty.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(2.0, architecture=fv.Partition(n_cells=100), sees_sensitive=True)
    """

    name: ClassVar[str] = "partition"
    #: It starts from optimal transport, so little is left to learn; its adversaries are tables.
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 200,
        "batch_size": 2048,
        "adversary_steps": 1,
        "learning_rate": 3e-3,
        "adversary_learning_rate": 3e-2,
        "adversary_hidden": ((),),
        "adversary_dropout": 0.0,
        "adversary_decay": 0.0,
        "rounds": 10,
    }

    n_cells: int = 200
    codebook: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_cells("Partition", self.n_cells)

    @property
    def uses_bins(self) -> bool:
        """Records of a codebook hold numbers, not bins."""
        return False

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It releases complete records, nearest under the default distortion, and sees the groups."""
        if signature.layout.shape is not None:
            return "releases records of a codebook, which is for tables, not for images."
        if signature.layout.kept.any():
            return "releases complete rows, so all columns must be encoded. Use 'feedforward'."
        if not signature.sees_classes:
            return "has a separate partition for each group of S, so it needs sees_sensitive=True and a discrete S."
        if not signature.sampled:
            return "releases draws, so it needs release='sampled'."
        if distortion is not None and not distortion.is_weighted_square:
            return "partitions rows by changed categories and squared numbers: use 'auto', 'squared' or 'hamming'."
        return None

    def fitted(self, rows: Rows, schema: Schema | ImageSchema, seeds: Seeds) -> Self:
        """With a codebook."""
        return replace(self, codebook=learn_codebook(rows, schema, self.n_cells, seeds.number()))

    def build(self, signature: Signature, members: int) -> "PartitionEncoder":
        """The potentials."""
        return PartitionEncoder(self, signature, members)


@dataclass(frozen=True)
class BalancedPartition(Partition):
    """A partition that gives every group the same shares of its records, without a game: for certificates on demand.

    The number of cells is the only trade-off: the fewer there are, the tighter a bound from the same rows. They keep
    linear scores of the known tasks (`target_weight` of the estimator), or of what the columns have in common.

    Parameters
    ----------
    n_cells : int
        Maximum number of records.
    score_weight : float
        The weight of squared differences of scores, relative to the distance. 0: cells only keep rows close.
    codebook, directions, scores :
        Learned in `fit`; leave them empty.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(4.0, architecture=fv.BalancedPartition(n_cells=12), sees_sensitive=True)
    """

    name: ClassVar[str] = "balanced_partition"
    training: ClassVar[Mapping[str, Any]] = {
        **Partition.training,
        "steps": None,  # no game
        "validation": 0.02,
    }

    n_cells: int = 16
    score_weight: float = 30.0
    directions: tuple[tuple[float, ...], ...] = field(default=(), repr=False)
    scores: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_cells("BalancedPartition", self.n_cells)
        check_weights(self, "score_weight")

    def fitted(self, rows: Rows, schema: Schema | ImageSchema, seeds: Seeds) -> Self:
        """With a codebook, and scores that its cells keep."""
        if not self.score_weight:
            return super().fitted(rows, schema, seeds)
        assert isinstance(schema, Schema)
        found = learn_scores(rows, schema.layout, slot_weights(schema.layout), self.score_weight, self.n_cells)
        cells = learn_cells(rows.x, schema, self.n_cells, seeds.number(), weight=rows.weight,
                            scores=centred(found.of(rows.x, schema.layout), rows.sensitive))  # fmt: skip
        return replace(self, codebook=plain_rows(cells.records), directions=plain_rows(found.directions),
                       scores=plain_rows(torch.cat([found.heights[None], cells.scores])))  # fmt: skip

    def build(self, signature: Signature, members: int) -> "BalancedPartitionEncoder":
        """The potentials."""
        return BalancedPartitionEncoder(self, signature, members)


class PartitionEncoder(Finite):
    """`potentials` (members, classes of S, cells), in units of the distance between neighbouring records."""

    unit: Tensor
    #: Softness of the borders, in units of the distance between neighbouring records.
    border: ClassVar[float] = _BORDER

    def __init__(self, architecture: Partition, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members, torch.tensor(architecture.codebook, dtype=torch.float32))
        apart = self.distances(self.table).fill_diagonal_(float("inf")).amin(dim=1)
        self.register_buffer("unit", apart.mean(), persistent=False)
        self.potentials = nn.Parameter(torch.zeros(members, signature.sensitive_width, self.cells))

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The proximity of each record: logits (members, rows, cells)."""
        return self._logits(rows, sensitive)

    def _logits(self, rows: Tensor, sensitive: Tensor | None) -> Tensor:
        assert sensitive is not None
        near = self.proximity(rows) / self.unit
        return (self.potentials[:, sensitive.argmax(dim=-1)] - near) / self.border

    def proximity(self, rows: Tensor) -> Tensor:
        """The distance of each row from each cell: (rows, cells)."""
        return self.distances(rows)

    @torch.no_grad()
    def probabilities(self, rows: Tensor, sensitive: Tensor | None) -> NDArray[np.float64] | None:
        """The softmax of the proximities."""
        assert sensitive is not None
        pieces = torch.split(torch.arange(len(rows)), rows_at_once(self.cells))
        return np.concatenate([self._logits(rows[piece], sensitive[piece])[0].double().softmax(dim=-1).numpy()
                               for piece in pieces])  # fmt: skip

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """The nearest record, for every group."""
        nn.init.zeros_(self.potentials)

    @torch.no_grad()
    def potentials_of(self, rows: Tensor, wanted: Tensor, rounds: int) -> Tensor:
        """Potentials for which these rows fall into the cells in the given proportions: (cells,).

        Entropic optimal transport (Sinkhorn iterations) from equally weighted rows to records with these shares.
        """
        near = -(self.proximity(rows) / self.unit / self.border).cpu().double()  # not every device supports float64
        aim = wanted.cpu().double().log()
        found = torch.zeros_like(aim)
        for _ in range(rounds):
            found += aim - (near + found).log_softmax(dim=1).logsumexp(dim=0) + math.log(len(rows))
        return (self.border * (found - found.mean())).to(rows)

    @torch.no_grad()
    def warm_start(self, start: WarmStart) -> None:
        """Find potentials that give every group the same shares of the records; scale them per member as far as its
        budget allows on validation rows.
        """
        train = start.train.unweighted()
        assert train.sensitive is not None
        generator = start.seeds.torch(train.x.device)
        counts = [torch.bincount(self.cell_of(piece.x), minlength=self.cells) for piece in train.pieces()]
        shares = torch.stack(counts).sum(dim=0).clamp_min(1)
        group = train.sensitive.argmax(dim=1)
        alike = torch.zeros_like(self.potentials[0])
        with progress(len(alike), "Pretraining", start.show_progress) as report:
            for number in range(len(alike)):
                own = _some(train.x[group == number], generator)
                if len(own):
                    alike[number] = self.potentials_of(own, shares / shares.sum(), _SINKHORN_ROUNDS)
                report(number + 1, "")
        # Records are learned from the training rows, which are therefore closer to them than other rows are.
        rows = next(start.validation.unweighted().pieces())
        noise = self.noise(len(rows), generator)
        low, high = torch.zeros_like(self.potentials[:, :1, :1]), torch.ones_like(self.potentials[:, :1, :1])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            self.potentials.copy_(middle * alike)
            spent = start.bounds.of_rows(start.distortion.expected(self(rows.x, rows.sensitive, noise), rows.x))
            most = start.bounds.inside(start.margin(spent.std(dim=1).cpu())).to(spent.device)
            within = (spent.mean(dim=1) <= most).all(dim=1).view(-1, 1, 1)
            low, high = torch.where(within, middle, low), torch.where(within, high, middle)
        self.potentials.copy_(low * alike)


class BalancedPartitionEncoder(PartitionEncoder):
    """Potentials with which every group of the training rows has exactly the same shares of the records.

    Many rows of a table are equal, so borders remain slightly soft: rows on a border are split at random.
    """

    border: ClassVar[float] = 0.02

    directions: Tensor
    scores: Tensor
    heights: Tensor

    def __init__(self, architecture: BalancedPartition, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        directions, scores = (torch.tensor(each, dtype=torch.float32) for each in
                              (architecture.directions, architecture.scores))  # fmt: skip
        shapes = (tuple(directions.shape), tuple(scores.shape))
        if shapes not in (
            ((0,), (0,)),
            ((len(directions), steps_width(self.layout) + 1), (self.cells + 1, len(directions))),
        ):
            raise ValueError("the scores of its cells do not match its columns")  # read from a crafted file
        self.register_buffer("directions", directions, persistent=False)
        self.register_buffer("scores", scores[1:], persistent=False)
        self.register_buffer("heights", scores[:1], persistent=False)
        if len(directions):
            apart = self.distances(self.table) + squared_distances(self.scores, self.scores)
            self.unit = apart.fill_diagonal_(float("inf")).amin(dim=1).median()

    def proximity(self, rows: Tensor) -> Tensor:
        """The distance of each row from each cell, by distortion and by scores: (rows, cells).

        Scores are not centred here: for all rows of a group, that changes the distances by the same amounts, which are
        part of the group's potentials.
        """
        return self.distances(rows) + (
            squared_distances(self.scores_of(rows), self.scores) if len(self.scores) else 0.0
        )

    def scores_of(self, rows: Tensor) -> Tensor:
        """The scores that the cells keep: (rows, scores)."""
        return Scores(self.directions, self.heights[0]).of(rows, self.layout)

    def probabilities(self, rows: Tensor, sensitive: Tensor | None) -> None:
        """Nearly all are 0 or 1: for draws there is a tighter bound."""

    @torch.no_grad()
    def warm_start(self, start: WarmStart) -> None:
        """Balance the groups on all training rows, whatever the budget."""
        train = start.train.unweighted()
        assert train.sensitive is not None
        apart = self.distances(train.x)
        if len(self.scores):
            apart += squared_distances(centred(self.scores_of(train.x), train.sensitive), self.scores)
        shares = torch.bincount(apart.argmin(dim=1), minlength=self.cells).clamp_min(1)
        group = train.sensitive.argmax(dim=1)
        with progress(self.potentials.shape[1], "Balancing", start.show_progress) as report:
            for number in range(self.potentials.shape[1]):
                own = train.x[group == number]
                if len(own):
                    self.potentials[:, number] = balanced_potentials(
                        self.proximity(own) / self.unit, shares / shares.sum(), self.border
                    ).to(own)
                report(number + 1, "")


@torch.no_grad()
def balanced_potentials(near: Tensor, wanted: Tensor, border: float) -> Tensor:
    """Potentials for which rows fall into cells in exactly the wanted proportions: (cells,).

    near: the distance of each row from each cell. The dual of entropic optimal transport, maximised by Newton's method:
    its gradient is the difference of the shares.
    """
    near, wanted = near.cpu().double(), wanted.cpu().double()  # not every device supports float64
    found = torch.zeros_like(wanted)
    for softness in (border * 2.0**i for i in reversed(range(_SOFTER))):
        for _ in range(_NEWTON_ROUNDS):
            chances = ((found - near) / softness).softmax(dim=1)
            shares = chances.mean(dim=0)
            gap = wanted - shares
            if gap.abs().max() < _CLOSE:
                break
            curvature = (torch.diag(shares) - chances.T @ chances / len(near)) / softness
            # Potentials matter only up to a constant, and a cell may have lost all of its rows.
            curvature += 1e-3 * torch.diag(torch.maximum(shares, wanted)) / softness
            found = found + _step_within(near, wanted, softness, found, torch.linalg.solve(curvature, gap))
    return found - found.mean()


def _step_within(near: Tensor, wanted: Tensor, softness: float, found: Tensor, step: Tensor) -> Tensor:
    """A step, halved until it increases the dual objective."""

    def objective(potentials: Tensor) -> float:
        return float(wanted @ potentials - softness * ((potentials - near) / softness).logsumexp(dim=1).mean())

    start = objective(found)
    for _ in range(_HALVINGS):
        if objective(found + step) > start:
            return step
        step = step / 2
    return step


def _some(rows: Tensor, generator: torch.Generator) -> Tensor:
    """A random sample, of a size suitable for Sinkhorn iterations."""
    order = torch.randperm(len(rows), generator=generator, device=rows.device)
    return rows[order[:_SINKHORN_ROWS]]
