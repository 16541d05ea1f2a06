"""Predictions as a release: the available soft predictions, and the cost of each given the true label.

A classifier with arbitrary real-valued scores hides nothing: their last digits identify a row, and with it S. Here,
one of a few soft predictions is drawn for each row. What an adversary sees is then finite, its best response is known,
and losses and constraints are averaged over the draw exactly.
"""

import math
from itertools import combinations

import torch
from torch import Tensor

from fairveil.objectives.bounds import Limits
from fairveil.objectives.losses import AlphaLoss
from fairveil.objectives.released import ReleasedBatch

#: Grid steps of soft predictions, by the number of classes; with more classes, `_CONFIDENCES` per class.
_STEPS = {2: 32, 3: 9, 4: 4}
_CONFIDENCES = (0.3, 0.6, 0.8, 0.93, 1.0)
#: Minimum probability left to all other classes together, so that a wrong confident prediction has a bounded loss.
_LEFT = 0.01


def score_grid(classes: int, loss: AlphaLoss) -> Tensor:
    """The available soft predictions, (scores, classes), each summing to 1.

    Under the probability of error a soft prediction costs as much as drawing a label from it, but reveals more: labels
    alone are optimal. Under other losses: for up to four classes, a regular grid on the simplex; for more, the uniform
    prediction, and each class with a few confidence levels.
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
    """Mean loss of the drawn soft predictions: what `max_loss` bounds, like distortion in other games.

    In such a game, each row ends with its true label, one-hot.
    """

    def __init__(self, scores: Tensor, loss: AlphaLoss) -> None:
        self.table = loss.of_log_probability(scores.log())
        self.name = f"{loss!r} of {len(scores)} scores"

    def expected(self, release: ReleasedBatch, original: Tensor) -> Tensor:
        """The loss of each row, averaged over the draw exactly: (members, rows, 1)."""
        return (release.probabilities * self.costs(original)).sum(dim=-1, keepdim=True)

    def costs(self, original: Tensor) -> Tensor:
        """The loss of every soft prediction for each row: (rows, scores)."""
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

    def limits(self) -> dict[str, Limits]:
        """What limits the loss of one prediction."""
        return {"loss": Limits(self.largest, self.largest)}
