"""Predictions as a release: which soft predictions there are to choose from, and what each costs given the truth.

A classifier whose scores are any numbers hides nothing: their last digits tell one row from another, and with it S.
Ours draws one of a few soft predictions for each row. What an adversary sees is then finite, its best answer is known,
and losses and constraints are averaged over the draw exactly.
"""

import math
from itertools import combinations

import torch
from torch import Tensor

from fairveil.objectives.losses import AlphaLoss
from fairveil.objectives.released import ReleasedBatch

#: Steps of the grid of soft predictions, by the number of classes; with more classes, `_CONFIDENCES` of each.
_STEPS = {2: 32, 3: 9, 4: 4}
_CONFIDENCES = (0.3, 0.6, 0.8, 0.93, 1.0)
#: The most a sure prediction leaves to all other classes together: if it is wrong, it must not cost without limit.
_LEFT = 0.01


def score_grid(classes: int, loss: AlphaLoss) -> Tensor:
    """The soft predictions to choose from, (scores, classes), each summing to 1.

    Under the probability of error a soft prediction costs as much as drawing a label from it, and says more: labels
    alone are best. Under other losses, up to four classes: all that go in equal steps from sure to sure. Beyond:
    uniform, and each class with a few confidences.
    """
    if math.isinf(loss.alpha):
        return torch.eye(classes)
    if classes in _STEPS:
        steps = _STEPS[classes]
        bars = torch.tensor(list(combinations(range(steps + classes - 1), classes - 1)))
        ends = torch.full((len(bars), 1), steps + classes - 1)
        grid = (torch.cat([bars, ends], dim=1) - torch.cat([torch.full_like(ends, -1), bars], dim=1) - 1) / steps
    else:
        uniform = torch.full((classes,), 1.0 / classes)
        sure = torch.eye(classes)
        grid = torch.cat([uniform.unsqueeze(0), *(uniform.lerp(sure, weight) for weight in _CONFIDENCES)])
    grid = grid.clamp_min(_LEFT / (classes - 1))
    return grid / grid.sum(dim=1, keepdim=True)


class PredictionLoss:
    """Mean loss of the soft predictions that are drawn: what `max_loss` bounds, as distortion in other games.

    The rows of such a game end in the truth, one-hot.
    """

    def __init__(self, scores: Tensor, loss: AlphaLoss) -> None:
        self.table = loss.of_log_probability(scores.log())
        self.name = f"{loss!r} of {len(scores)} scores"

    def expected(self, release: ReleasedBatch, original: Tensor) -> Tensor:
        """Of each row, averaged over the draw exactly: (members, rows, 1)."""
        return (release.probabilities * self.costs(original)).sum(dim=-1, keepdim=True)

    def costs(self, original: Tensor) -> Tensor:
        """Of each row, what every soft prediction would cost: (rows, scores)."""
        table = self.table.to(original.device)
        return original[:, -table.shape[1] :] @ table.T

    @property
    def least(self) -> float:
        """The loss of the best prediction."""
        return float(self.table.min())

    @property
    def largest(self) -> float:
        """The loss of the worst prediction."""
        return float(self.table.max())
