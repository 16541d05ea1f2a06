"""Rows as points whose squared distances are the cost of exchanging their records."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil.data.batch import Batch, codec_for
from fairveil.data.frames import missing_mask
from fairveil.data.images import Images
from fairveil.data.kinds import is_class
from fairveil.data.layout import Layout
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.encoders.standing import ranks_within, score_standing, shared_scores, task_scores
from fairveil.matching.pairs import Points
from fairveil.matching.shares import Floats, Ints
from fairveil.objectives.distortion import slot_weights
from fairveil.objectives.ranks import HALF, RankScale

#: Longer rows are reduced to this many principal components: distances hardly change, matchings become much faster.
_MOST_SLOTS = 512
_COMPONENTS = 128
#: Rows from which principal components and shared scores are computed.
_ROWS_OF_COMPONENTS = 20_000
#: Rows that are encoded at once to score them.
_PIECE = 65_536
#: Default weights of ranks by known targets and by shared scores.
TARGET_WEIGHT, SHARED_WEIGHT = 1000.0, 4.0
#: Points of a grid of ranks, and coordinates that represent a rank.
_RANK_GRID, _RANK_COORDINATES = 65, 10


def record_points(batch: Batch) -> Points:
    """Squared distances are the default distortion: changed categories plus squared changes of the numbers; for images,
    squared changes of the pixels.
    """
    if isinstance(batch, Images):
        return _reduced(np.asarray(batch.array, dtype=np.float32).reshape(len(batch), -1))
    schema = Schema.infer(batch).without_bins()
    encoded = codec_for(schema, "most_frequent").encode_rows(batch.content).x
    return _reduced((encoded * slot_weights(schema.layout).sqrt()).numpy())


def rank_points(layout: Layout, x: Tensor) -> tuple[Points, Points]:
    """Points of encoded and of kept columns, for rows of a schema whose encoded numbers have bins.

    Squared distances are the distortion by ranks. Its distance of numbers is unit (1 - k(Δ)) with the kernel
    k(Δ) = HALF² / (Δ² + HALF²), which is positive definite: it is half the squared distance of a few coordinates.
    """
    scale, weights = RankScale.of(layout), slot_weights(layout)
    grouped = (x * weights.sqrt())[:, : layout.group_width].numpy()
    used, kept = (weights[: layout.group_width] > 0).numpy(), layout.kept
    of_ranks: list[Points] = []
    if len(scale.unit):
        ranks = scale.ranks(x[:, layout.continuous]).numpy()
        of_ranks = [np.sqrt(unit / 2) * _rank_coordinates(ranks[:, i]) for i, unit in enumerate(scale.unit.tolist())]
    numbers = x[:, layout.continuous].numpy()[:, kept[layout.group_width :]]
    inside = kept[: layout.group_width]
    encoded = np.hstack([grouped[:, used & ~inside], *of_ranks], dtype=np.float32)
    return _reduced(encoded), np.hstack([grouped[:, used & inside], numbers], dtype=np.float32)


def _rank_coordinates(ranks: Points) -> Points:
    """Coordinates whose squared distances are 2 (1 - k(Δ)), interpolated between the points of a grid."""
    grid = np.linspace(0.0, 1.0, _RANK_GRID)
    values, vectors = np.linalg.eigh(HALF**2 / (np.square(grid[:, None] - grid[None, :]) + HALF**2))
    coordinates = vectors[:, -_RANK_COORDINATES:] * np.sqrt(values[-_RANK_COORDINATES:])
    return np.stack([np.interp(ranks, grid, column) for column in coordinates.T], axis=1).astype(np.float32)


def _reduced(points: Points) -> Points:
    if points.shape[1] <= _MOST_SLOTS:
        return points
    some = points[:: max(1, len(points) // _ROWS_OF_COMPONENTS)]
    middle = some.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov((some - middle).T))
    return np.asarray((points - middle) @ vectors[:, -_COMPONENTS:], dtype=np.float32)


def shared_scores_of(batch: Batch, groups: Ints) -> Floats:
    """Scores of what the columns have in common within groups, (rows, scores); none for images."""
    if isinstance(batch, Images):
        return np.zeros((len(batch), 0))
    schema = Schema.infer(batch)
    codec = codec_for(schema, "most_frequent")
    some = np.arange(0, len(batch), -(-len(batch) // _ROWS_OF_COMPONENTS))
    directions = shared_scores(_rows(codec.encode_rows(batch.take(some).content).x, groups[some]), schema.layout)
    pieces = np.array_split(np.arange(len(batch)), -(-len(batch) // _PIECE))
    return np.concatenate([(codec.encode_rows(batch.take(piece).content).x @ directions.T).double().numpy()
                           for piece in pieces])  # fmt: skip


def shared_scores_in(layout: Layout, x: Tensor, groups: Ints) -> Floats:
    """The same for encoded rows."""
    return np.asarray((x @ shared_scores(_rows(x, groups), layout).T).double().numpy())


def _rows(x: Tensor, groups: Ints) -> Rows:
    codes = torch.from_numpy(np.unique(groups, return_inverse=True)[1])
    return Rows(x, torch.nn.functional.one_hot(codes), (codes,))


def target_points(target: pa.ChunkedArray, points: Points, groups: Ints, parts: Ints, seed: int) -> Points:
    """Ranks of the predicted target among the rows of the same group and part, in (0, 1): one column per class, or one.

    Predictions are cross-fitted. Rows with a missing label are predicted by the models of all folds.
    """
    known = np.flatnonzero(~missing_mask(target))
    values = target.take(pa.array(known)).to_numpy(zero_copy_only=False)
    if is_class(target):
        values = np.unique(values.astype(str), return_inverse=True)[1]
    features = np.column_stack([points, np.eye(int(groups.max()) + 1, dtype=np.float32)[groups]])
    scores = task_scores(values.astype(np.int64 if is_class(target) else np.float64), features, seed, known=known)
    return np.asarray(ranks_within(scores, _combined(groups, parts)), dtype=np.float32)


@dataclass(frozen=True)
class Kept:
    """What matchings keep besides closeness: each row's rank, within its group and part, by known targets or, if there
    are none, by what the columns have in common.

    target_weight: what the whole range of a rank costs, in units of the distortion. shared_weight: relative to
    closeness.
    """

    targets: Mapping[str, pa.ChunkedArray] = field(default_factory=dict)
    target_weight: float = TARGET_WEIGHT
    shared_weight: float = SHARED_WEIGHT
    seed: int = 0

    def coordinates(
        self, points: Points, groups: Ints, parts: Ints, shared: Callable[[], Floats], chosen: Ints | None = None
    ) -> Points:
        """Coordinates to be added to points: (rows, coordinates). shared: scores of what the columns have in common.
        chosen: which of the targets' rows these are.
        """
        found: list[NDArray[Any]] = []
        for column in self.targets.values():
            values = column if chosen is None else column.take(pa.array(chosen))
            found.append(math.sqrt(self.target_weight) * target_points(values, points, groups, parts, self.seed))
        if not self.targets and self.shared_weight:
            found.append(score_standing(shared(), _combined(groups, parts), self.shared_weight))
        return np.column_stack([np.zeros((len(points), 0)), *found]).astype(np.float32)


def _combined(groups: Ints, parts: Ints) -> Ints:
    """A number for each combination of group and part."""
    return np.asarray(parts * (int(groups.max()) + 1) + groups)
