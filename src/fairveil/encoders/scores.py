"""Scores of rows, nearly linear: what a code of few cells should keep.

A code of few cells that only keeps rows close spends its cells on whatever varies most. Scores direct it: of known
tasks, or, if none is known, of what the columns have in common: a task that nobody named is likely to depend on it.

Scores are centred within each group of S. Optimal transport of the groups to the same cells then moves rows along a
score by their rank within their group, as one-dimensional transport does.
"""

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from fairveil.data.layout import Layout
from fairveil.data.rows import Rows

#: Maximum number of iterations of a logistic regression.
_ROUNDS = 300
#: Ridge penalty of a column's prediction from the others, per row.
_PENALTY = 1.5e-3
#: The number of shared scores.
_SHARED = 3
#: Scores level off at this many standard deviations: a few extreme rows must not have most of the cells.
_FLAT = 2.0


def task_directions(rows: Rows, weights: Tensor) -> Tensor:
    """Directions of all tasks of these rows, (scores, width), in which they are predicted from the row and S (so that
    a score does not stand for S).

    weights: of the slots in the distance. Within groups, the products of rows with all directions together vary as much
    as all columns do in the distance; tasks have equal shares.
    """
    x = rows.x.double().numpy()
    inputs = x if rows.sensitive is None else np.concatenate([x, rows.sensitive.double().numpy()], axis=1)
    weight = None if rows.weight is None else rows.weight.numpy()
    total = float((centred(rows.x, rows.sensitive).var(dim=0) * weights).sum())
    found = []
    for task in rows.tasks:
        own = torch.from_numpy(_coefficients(inputs, task.numpy(), weight)[:, : x.shape[1]]).float()
        spread = float(centred(rows.x @ own.T, rows.sensitive).var(dim=0).sum())
        found.append(own * (total / len(rows.tasks) / spread) ** 0.5 if spread > 0 else 0.0 * own)
    return torch.cat(found)


def shared_directions(rows: Rows, layout: Layout, weights: Tensor) -> Tensor:
    """The main directions of the columns' predictions from each other within groups, (scores, width).

    weights: of the slots in the distance. Scores are in the unit of the distance: where columns have nothing in common,
    the scores hardly vary.
    """
    used = weights.nonzero()[:, 0]
    root = weights[used].double().sqrt()
    x = centred(rows.x[:, used].double() * root, rows.sensitive)
    second = x.T @ x
    inverse = torch.linalg.inv(second + _PENALTY * len(x) * torch.eye(len(second), dtype=x.dtype))
    coefficients = torch.zeros_like(second)
    for column in _columns_of(layout, used.tolist()):
        # Ridge regression of a column on all others, by the inverse of a block matrix.
        own = torch.linalg.solve(inverse[column][:, column], -inverse[:, column].T).T
        own[column] = 0.0
        coefficients[:, column] = own
    _, directions = torch.linalg.eigh(coefficients.T @ second @ coefficients)
    found = torch.zeros(min(_SHARED, len(used)), len(weights))
    found[:, used] = ((coefficients @ directions[:, -_SHARED:]).T * root).float()
    return found


def level_off(directions: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Directions with a constant as last number, (scores, width + 1), and the height of each score, (scores,)."""
    products = rows.x @ directions.T
    middle, height = products.mean(dim=0), _FLAT * products.std(dim=0).clamp_min(1e-6)
    return torch.cat([directions, -middle[:, None]], dim=1) / height[:, None], height


def scores_of(rows: Tensor, directions: Tensor, heights: Tensor) -> Tensor:
    """Scores that level off at both ends: (rows, scores)."""
    return heights * torch.tanh(rows @ directions[:, :-1].T + directions[:, -1])


def centred(scores: Tensor, sensitive: Tensor | None) -> Tensor:
    """Scores minus the mean of the row's group. sensitive: one-hot."""
    if sensitive is None:
        return scores - scores.mean(dim=0)
    member = sensitive.to(scores)
    means = member.T @ scores / member.sum(dim=0).clamp_min(1.0)[:, None]
    return scores - member @ means


def _columns_of(layout: Layout, used: list[int]) -> list[list[int]]:
    """The slots of each column, as positions among those used."""
    place = {slot: position for position, slot in enumerate(used)}
    slots = [list(range(group.start, group.stop)) for group in layout.groups]
    slots += [[slot] for slot in range(layout.group_width, layout.width)]
    found = ([place[slot] for slot in column if slot in place] for column in slots)
    return [column for column in found if column]


def _coefficients(
    x: NDArray[np.float64], y: NDArray[np.generic], weight: NDArray[np.generic] | None
) -> NDArray[np.float64]:
    from sklearn.linear_model import LogisticRegression, Ridge

    if y.dtype.kind == "f":
        return np.asarray(Ridge(1.0).fit(x, y.reshape(-1), sample_weight=weight).coef_).reshape(1, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any direction that predicts well will do
        return np.asarray(LogisticRegression(max_iter=_ROUNDS).fit(x, y, sample_weight=weight).coef_)
