"""Linear scores of known tasks: directions in the space of encoded rows that a code for these tasks should keep.

Rows whose scores differ are further apart by the square of the difference. Optimal transport of the groups to the same
cells then moves rows along a score by their rank within the own group, as one-dimensional transport does.
"""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from fairveil.data.rows import Rows

_ROUNDS = 300


def task_directions(rows: Rows, weights: Tensor, task_weight: float) -> Tensor:
    """Directions of all tasks of these rows, (scores, width); the scores of a row are its products with them.

    weights: of the columns in the distance. task_weight: the variance of all scores, relative to that of all columns in
    this distance; tasks share it equally. Tasks are predicted from the row and S, so that a score does not stand for S.
    """
    x = rows.x.double().numpy()
    inputs = x if rows.sensitive is None else np.concatenate([x, rows.sensitive.double().numpy()], axis=1)
    importance = None if rows.weight is None else rows.weight.numpy()
    total = float((rows.x.var(dim=0) * weights).sum())
    found = []
    for task in rows.tasks:
        direction = _coefficients(inputs, task.numpy(), importance)[:, : x.shape[1]]
        spread = float((x @ direction.T).var(axis=0).sum())
        scale = np.sqrt(task_weight * total / len(rows.tasks) / spread) if spread > 0 else 0.0
        found.append(torch.from_numpy(scale * direction).float())
    return torch.cat(found)


def _coefficients(
    x: NDArray[np.float64], y: NDArray[np.generic], weight: NDArray[np.generic] | None
) -> NDArray[np.float64]:
    if y.dtype.kind == "f":
        return np.asarray(Ridge(1.0).fit(x, y.reshape(-1), sample_weight=weight).coef_).reshape(1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any direction that predicts well will do
        return np.asarray(LogisticRegression(max_iter=_ROUNDS).fit(x, y, sample_weight=weight).coef_)
