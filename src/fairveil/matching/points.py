"""Rows as points whose squared distances are the cost of exchanging their records."""

from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from fairveil.data.batch import Batch, codec_for
from fairveil.data.frames import missing_mask
from fairveil.data.images import Images
from fairveil.data.kinds import is_class
from fairveil.data.layout import Layout
from fairveil.data.schema import Schema
from fairveil.matching.pairs import Points
from fairveil.matching.shares import Floats, Ints
from fairveil.objectives.distortion import slot_weights
from fairveil.objectives.ranks import HALF, RankScale

#: Longer rows are reduced to this many principal components: distances hardly change, matchings become much faster.
_MOST_SLOTS = 512
_COMPONENTS = 128
#: Rows from which principal components are computed; folds of the models that predict a target.
_ROWS_OF_COMPONENTS, _FOLDS = 20_000, 5
#: The most frequent classes of a target whose scores are kept.
_CLASSES = 8
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


def target_points(target: pa.ChunkedArray, points: Points, groups: Ints, parts: Ints, seed: int) -> Points:
    """Ranks of the predicted target among the rows of the same group and part, in (0, 1): one column per class, or one.

    Predictions are cross-fitted: they come from models that have not seen the row's own label. Rows with a missing
    label are predicted by all of these models. An exchange between rows of equal rank keeps what the record says of the
    target, relative to its group.
    """
    known = np.flatnonzero(~missing_mask(target))
    features = np.column_stack([points, np.eye(int(groups.max()) + 1, dtype=np.float32)[groups]])
    scores = _cross_fitted(target, known, features, seed)
    ranks = np.empty_like(scores, dtype=np.float32)
    for part in np.unique(parts):
        for group in np.unique(groups):
            rows = np.flatnonzero((parts == part) & (groups == group))
            for column in range(scores.shape[1]):
                order = rows[np.argsort(scores[rows, column], kind="stable")]
                ranks[order, column] = (np.arange(len(order)) + 0.5) / max(len(order), 1)
    return ranks


def _cross_fitted(target: pa.ChunkedArray, known: Ints, features: Points, seed: int) -> Floats:
    import lightgbm
    from sklearn.model_selection import KFold

    values = target.take(pa.array(known)).to_numpy(zero_copy_only=False)
    settings: dict[str, Any] = {
        "n_estimators": 200,
        "learning_rate": 0.08,
        "verbose": -1,
        "n_jobs": 0,  # what OMP_NUM_THREADS says
        "random_state": seed % 2**31,
    }
    classes = is_class(target)
    if classes:
        labels, codes, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
        codes = np.where(counts[codes] >= _FOLDS, codes, counts.argmax())  # every fold must know every class
        shown = np.argsort(-counts, kind="stable")[: 1 if len(labels) == 2 else _CLASSES]
    scores = np.zeros((len(features), len(shown) if classes else 1))
    times = np.zeros(len(features))
    unknown = np.setdiff1d(np.arange(len(features)), known)
    for fitted, held in KFold(_FOLDS, shuffle=True, random_state=seed % 2**31).split(known):
        rows = np.concatenate([known[held], unknown])
        if classes:
            model = lightgbm.LGBMClassifier(**settings).fit(features[known[fitted]], codes[fitted])
            found = np.zeros((len(rows), len(labels)))
            found[:, model.classes_] = model.predict_proba(features[rows])
            scores[rows] += found[:, shown]
        else:
            model = lightgbm.LGBMRegressor(**settings).fit(features[known[fitted]], values[fitted].astype(np.float64))
            scores[rows, 0] += model.predict(features[rows])
        times[rows] += 1
    return np.asarray(scores / times[:, None])
