"""The standing of rows within their group of S: the ranks that matchings keep.

Rows of different groups that exchange values differ little in single columns, but what the columns say together may
change. Partners therefore should have a similar rank, each within its own group, by a few scores: predictions of known
tasks, or, if none is known, what the columns have in common (`fairveil.encoders.scores`). An exchange between rows of
equal rank keeps what a record says of the score, relative to the group.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil.data.layout import Layout
from fairveil.data.rows import Rows
from fairveil.encoders.scores import centred, column_predictions

Array = NDArray[Any]
Floats = NDArray[np.float64]

#: Folds of the models that predict a task.
_FOLDS = 5
#: The number of shared scores.
_SHARED = 3
#: The most frequent classes of a task whose probabilities are kept.
_CLASSES = 8
#: With more slots than this, numbers are scored by value.
_WIDE = 1000
#: Of a uniform distribution on (0, 1).
_VARIANCE_OF_RANKS = 1.0 / 12.0
#: n_jobs=0: as many threads as OMP_NUM_THREADS says.
_MODEL: dict[str, Any] = {"n_estimators": 200, "learning_rate": 0.08, "n_jobs": 0, "verbose": -1}


def ranks_within(scores: Floats, groups: Array, weight: Array | None = None) -> Floats:
    """The rank of each row among the rows of its group, in (0, 1), by each score: (rows, scores).

    Rows of equal score have equal ranks. weight: how many rows each one stands for.
    """
    ranks = np.empty(scores.shape)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        for score in range(scores.shape[1]):
            _, place = np.unique(scores[rows, score], return_inverse=True)
            counted = np.bincount(place, None if weight is None else weight[rows])
            ranks[rows, score] = ((np.cumsum(counted) - 0.5 * counted) / counted.sum())[place]
    return ranks


def task_standing(rows: Rows, weight: float, seed: int, mass: Array | None = None) -> Floats:
    """Coordinates of rows by their known tasks, (rows, coordinates): squared distances are `weight` times the squared
    difference of ranks, summed over the tasks and their classes. mass: how much each row counts in its group.
    """
    groups = rows.secrets[0].numpy()
    counted = None if rows.weight is None else rows.weight.numpy()
    features = np.column_stack([rows.x.numpy(), np.eye(int(groups.max()) + 1, dtype=np.float32)[groups]])
    scores = [task_scores(task.numpy(), features, seed, weight=counted) for task in rows.tasks]
    return math.sqrt(weight) * np.hstack(
        [ranks_within(score, groups, counted if mass is None else mass) for score in scores]
    )


def shared_standing(rows: Rows, layout: Layout, weight: float, mass: Array | None = None) -> Floats:
    """Coordinates of rows by what their columns have in common: see `score_standing`. mass: how much each row counts in
    its group.
    """
    scores = (rows.x @ shared_scores(rows, layout).T).double().numpy()
    counted = None if rows.weight is None else rows.weight.numpy()
    return score_standing(scores, rows.secrets[0].numpy(), weight, counted if mass is None else mass)


def score_standing(scores: Floats, groups: Array, weight: float, counted: Array | None = None) -> Floats:
    """Coordinates of rows, (rows, scores): ranks within groups, scaled such that they vary as much as the scores do
    within groups, times the root of the weight. A score that hardly varies then hardly counts.

    Scores are in the unit of the distance, so `weight` is relative to it.
    """
    member = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(member)
    variance = np.array([np.mean((s - (np.bincount(member, s) / sizes)[member]) ** 2) for s in scores.T])
    coordinates: Floats = np.sqrt(weight * variance / _VARIANCE_OF_RANKS) * ranks_within(scores, groups, counted)
    return coordinates


def shared_scores(rows: Rows, layout: Layout) -> Tensor:
    """Directions of what the columns have in common within groups, (scores, width): the main directions of the columns'
    predictions from each other.

    Scores are in the unit of the distance: where columns have nothing in common, the scores hardly vary.
    """
    weights = _scored(layout)
    used = weights.nonzero()[:, 0]
    root = weights[used].double().sqrt()
    x = centred(rows.x[:, used].double() * root, rows.sensitive)
    second = x.T @ x / len(x)
    coefficients = column_predictions(second, _columns_of(layout, used.tolist()), len(used))
    _, directions = torch.linalg.eigh(coefficients.T @ second @ coefficients)
    found = torch.zeros(min(_SHARED, len(used)), len(weights))
    found[:, used] = ((coefficients @ directions[:, -_SHARED:]).T * root).float()
    return found


def _columns_of(layout: Layout, used: list[int]) -> list[tuple[list[int], list[int]]]:
    """The slots of each column, as positions among those used; nothing else is left out of its prediction."""
    place = {slot: position for position, slot in enumerate(used)}
    slots = [list(range(group.start, group.stop)) for group in layout.groups]
    slots += [[slot] for slot in range(layout.group_width, layout.width)]
    found = ([place[slot] for slot in column if slot in place] for column in slots)
    return [(column, []) for column in found if column]


def _scored(layout: Layout) -> Tensor:
    """Weights of slots: categories and bins, and numbers without bins.

    What columns have in common is seldom linear in a number, and its bins are not to be predicted by the number itself.
    The time grows with the cube of the slots: in a wide table, numbers count by their value only.
    """
    weights = torch.cat([torch.full((layout.group_width,), 0.5), torch.zeros(len(layout.numbers))])
    weights[layout.group_width + torch.tensor(layout.free, dtype=torch.long)] = 1.0
    if layout.group_width > _WIDE:
        for group in layout.groups:
            if group.number is not None:
                weights[group.start : group.stop] = 0.0
                weights[layout.group_width + group.number] = 1.0
    return weights


def task_scores(
    values: Array, features: Array, seed: int, *, known: Array | None = None, weight: Array | None = None
) -> Floats:
    """Predictions of a task for all rows: the probability of a class, of two, of several, or the number itself.

    Predictions are cross-fitted: they come from models that have not seen the row's own value. values: of the `known`
    rows (of all by default); integers are codes of classes, floats are numbers. Rows that are not known are predicted
    by all models.
    """
    from sklearn.model_selection import KFold

    known = np.arange(len(features)) if known is None else known
    values, shown = _shown(values) if values.dtype.kind != "f" else (values.reshape(-1), np.zeros(1, np.int64))
    scores, times = np.zeros((len(features), len(shown))), np.zeros(len(features))
    if len(np.unique(values)) < 2:
        return scores
    unknown = np.setdiff1d(np.arange(len(features)), known)
    for fitted, held in KFold(_FOLDS, shuffle=True, random_state=seed % 2**31).split(known):
        rows = np.concatenate([known[held], unknown])
        counted = None if weight is None else weight[known[fitted]]
        scores[rows] += _predicted(features[known[fitted]], values[fitted], features[rows], shown, counted, seed)
        times[rows] += 1
    return np.asarray(scores / times[:, None])


def _shown(codes: Array) -> tuple[Array, Array]:
    """Codes, in which classes of too few rows for all folds are the most frequent one, and the classes whose
    probabilities are scores: of two, one says everything.
    """
    counts = np.bincount(codes)
    codes = np.where(counts[codes] >= _FOLDS, codes, counts.argmax())
    present = len(np.unique(codes))
    return codes, np.argsort(-np.bincount(codes), kind="stable")[: 1 if present <= 2 else min(_CLASSES, present)]


def _predicted(x: Array, y: Array, x_new: Array, shown: Array, weight: Array | None, seed: int) -> Floats:
    """Predictions of one model: the probabilities of the shown classes, or the number."""
    import lightgbm

    settings = {**_MODEL, "random_state": seed % 2**31}
    if y.dtype.kind == "f":
        number = lightgbm.LGBMRegressor(**settings).fit(x, y, sample_weight=weight)
        return np.asarray(number.predict(x_new), dtype=np.float64)[:, None]
    model = lightgbm.LGBMClassifier(**settings).fit(x, y, sample_weight=weight)
    found = np.zeros((len(x_new), int(max(y.max(), shown.max())) + 1))
    found[:, model.classes_] = model.predict_proba(x_new)
    return found[:, shown]
