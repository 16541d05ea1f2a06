"""Scores of rows: what a code of few cells should keep.

A code of few cells that only keeps rows close spends its cells on whatever varies most. Scores direct it: of known
tasks, or, if none is known, of what the columns have in common: a task that nobody named is likely to depend on it.

A score is linear in a row and in steps of its numbers, and levels off at both ends. Scores are centred within each
group of S. Optimal transport of the groups to the same cells then moves rows along a score by their rank within their
group, as one-dimensional transport does.
"""

import warnings
from collections.abc import Sequence
from typing import NamedTuple, Self

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
#: Each shared score can take at least this many steps: one score for fewer cells than the square of it, and so on.
_CELLS_PER_SCORE, _MOST_SHARED = 5, 3
#: Shared scores, and scores of numbers, level off at this many standard deviations: a few extreme rows must not have
#: most of the cells.
_FLAT = 2.0
#: Numbers take part as they are and as steps at these values, in standard deviations, unless there are more numbers.
_STEPS = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5)
_MOST_STEPPED = 50
#: Scores are learned from at most this many rows.
_MOST_ROWS = 100_000
#: Added to the variance of a prediction before it is standardised: noise must not be enlarged.
_LEAST = 1e-4


class Scores(NamedTuple):
    """Scores heights * tanh(directions of the row with steps, plus a constant).

    directions: (scores, slots with steps + 1), the constant last. heights: (scores,).
    """

    directions: Tensor
    heights: Tensor

    def of(self, rows: Tensor, layout: Layout) -> Tensor:
        """The scores of these rows: (rows, scores)."""
        if not len(self.directions):
            return rows.new_zeros(len(rows), 0)
        return self.heights * torch.tanh(with_steps(rows, layout) @ self.directions[:, :-1].T + self.directions[:, -1])

    def scaled(self, rows: Rows, layout: Layout, variance: Tensor | float) -> Self:
        """With these variances within groups, or this one altogether."""
        spread = centred(self.of(rows.x, layout), rows.sensitive).var(dim=0)
        spread = spread if isinstance(variance, Tensor) else spread.sum()
        factor = torch.where(spread > 0, variance / spread.clamp_min(1e-12), 0.0)
        return self._replace(heights=self.heights * factor.sqrt())


def learn_scores(rows: Rows, layout: Layout, weights: Tensor, strength: float, cells: int) -> Scores:
    """Scores of the tasks of these rows; without tasks, of what the columns have in common.

    weights: of the slots in the distance. strength: how much scores of tasks vary within groups, relative to the
    distance; shared scores in proportion to the share of it that columns predict of each other. cells: how many cells
    keep these scores.
    """
    if len(rows) > _MOST_ROWS:
        rows = rows.take(torch.arange(0, len(rows), -(-len(rows) // _MOST_ROWS)))
    total = float((centred(rows.x, rows.sensitive).var(dim=0) * weights).sum())
    if not rows.tasks:
        number = sum(cells >= _CELLS_PER_SCORE**count for count in range(2, _MOST_SHARED + 1)) + 1
        scores, share = shared_scores(rows, layout, weights, number)
        return scores.scaled(rows, layout, strength * share * total)
    parts = [task_scores(rows, task, layout) for task in rows.tasks]
    parts = [part.scaled(rows, layout, strength * total / len(parts)) for part in parts]
    return Scores(torch.cat([part.directions for part in parts]), torch.cat([part.heights for part in parts]))


def task_scores(rows: Rows, task: Tensor, layout: Layout) -> Scores:
    """Scores in which a task is predicted from the row and S, so that a score does not stand for S: (1 or classes).

    Of two classes, the score is a probability: it varies where the more probable class is in doubt.
    """
    x = with_steps(rows.x, layout).double().numpy()
    shown = np.zeros((len(x), 0)) if rows.sensitive is None else rows.sensitive.double().numpy()
    weight = None if rows.weight is None else rows.weight.numpy()
    found, constant = _coefficients(np.concatenate([x, shown], axis=1), task.numpy(), weight)
    own = torch.from_numpy(found[:, : x.shape[1]]).float()
    if task.is_floating_point() or len(own) > 1:
        return _levelled(own, with_steps(rows.x, layout))
    constant += float(np.average(shown @ found[0, x.shape[1] :], weights=weight))
    return Scores(torch.cat([own, torch.full((1, 1), constant)], dim=1) / 2.0, torch.ones(1))  # tanh(z / 2)


def shared_scores(rows: Rows, layout: Layout, weights: Tensor, number: int) -> tuple[Scores, float]:
    """The main directions of the columns' predictions from each other within groups, and the share of the distance that
    these predictions explain in other rows.

    Every slot's prediction has the same variance: what explains a little of many columns says more about a further one
    than what explains much of two columns that nearly say the same.
    """
    first, second = (_second_moment(rows.take(torch.arange(start, len(rows), 2)), layout, weights) for start in (0, 1))
    width = layout.width
    columns = _columns_of(layout)
    half = column_predictions(first, columns, width)
    explained = (half * second[:, :width]).sum(dim=0).clamp_min(0.0).sum() / second.diagonal()[:width].sum()
    together = (first + second) / 2
    found = column_predictions(together, columns, width)
    covariance = found.T @ together @ found
    scale = (covariance.diagonal() + _LEAST).rsqrt()
    _, main = torch.linalg.eigh(scale[:, None] * covariance * scale)
    directions = (found @ (scale[:, None] * main[:, -number:])).T * _roots(layout, weights)
    return _levelled(directions.float(), with_steps(rows.x, layout)), float(explained)


def with_steps(rows: Tensor, layout: Layout) -> Tensor:
    """Rows, and whether each number exceeds each step: (rows, slots with steps)."""
    numbers = rows[:, layout.group_width :]
    steps = numbers[:, :, None] > torch.tensor(_steps(layout), device=rows.device)
    return torch.cat([rows, steps.flatten(1).to(rows)], dim=1)


def steps_width(layout: Layout) -> int:
    """The number of slots with steps."""
    return layout.width + (layout.width - layout.group_width) * len(_steps(layout))


def centred(scores: Tensor, sensitive: Tensor | None) -> Tensor:
    """Scores minus the mean of the row's group. sensitive: one-hot."""
    if sensitive is None:
        return scores - scores.mean(dim=0)
    member = sensitive.to(scores)
    means = member.T @ scores / member.sum(dim=0).clamp_min(1.0)[:, None]
    return scores - member @ means


def _steps(layout: Layout) -> tuple[float, ...]:
    return _STEPS if layout.width - layout.group_width <= _MOST_STEPPED else ()


def _roots(layout: Layout, weights: Tensor) -> Tensor:
    """Roots of the weights of slots; steps have that of their number."""
    root = weights.double().sqrt()
    return torch.cat([root, root[layout.group_width :].repeat_interleave(len(_steps(layout)))])


def _second_moment(rows: Rows, layout: Layout, weights: Tensor) -> Tensor:
    x = centred(with_steps(rows.x, layout).double(), rows.sensitive) * _roots(layout, weights)
    return x.T @ x / len(x)


def column_predictions(second: Tensor, columns: Sequence[tuple[list[int], list[int]]], width: int) -> Tensor:
    """Ridge regressions of every column on all others, from the second moments of all slots: (slots, width).

    columns: the slots of each column, below `width`, and further slots that it is not predicted from.
    """
    inverse = torch.linalg.inv(second + _PENALTY * torch.eye(len(second), dtype=second.dtype))
    coefficients = torch.zeros(len(second), width, dtype=second.dtype)
    for column, others in columns:
        block = column + others
        # By the inverse of a block matrix.
        own = torch.linalg.solve(inverse[block][:, block], -inverse[:, block].T).T[:, : len(column)]
        own[block] = 0.0
        coefficients[:, column] = own
    return coefficients


def _columns_of(layout: Layout) -> list[tuple[list[int], list[int]]]:
    """The slots of each column, and of its steps."""
    each, numbers = len(_steps(layout)), range(layout.group_width, layout.width)
    return [
        *((list(range(group.start, group.stop)), []) for group in layout.groups),
        *(([slot], list(range(layout.width + each * place, layout.width + each * (place + 1))))
          for place, slot in enumerate(numbers)),
    ]  # fmt: skip


def _levelled(directions: Tensor, x: Tensor) -> Scores:
    """Scores that level off some standard deviations from their mean."""
    products = x @ directions.T
    middle, height = products.mean(dim=0), _FLAT * products.std(dim=0).clamp_min(1e-6)
    return Scores(torch.cat([directions, -middle[:, None]], dim=1) / height[:, None], height)


def _coefficients(
    x: NDArray[np.float64], y: NDArray[np.generic], weight: NDArray[np.generic] | None
) -> tuple[NDArray[np.float64], float]:
    """Coefficients, (1 or classes, width), and the first constant."""
    from sklearn.linear_model import LogisticRegression, Ridge

    if y.dtype.kind == "f":
        return np.asarray(Ridge(1.0).fit(x, y.reshape(-1), sample_weight=weight).coef_).reshape(1, -1), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any direction that predicts well will do
        model = LogisticRegression(max_iter=_ROUNDS).fit(x, y, sample_weight=weight)
    return np.asarray(model.coef_), float(model.intercept_[0])
