"""How a distortion will be verified on held-out rows, as training has to allow for it."""

import math
from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from fairveil.objectives.bounds import Limits
from fairveil.training.confidence_bound import unseen_share


@dataclass(frozen=True)
class Verification:
    """How means over held-out rows will be bounded, so that training can aim inside the budget by as much.

    rows: their (effective) number. confidence: of each bound. limits: of each bound.
    """

    rows: float
    confidence: float
    limits: tuple[Limits, ...]

    def margin(self, mean: Tensor, spread: Tensor, more: float = 0.0) -> Tensor:
        """By about how much a bound will exceed the mean, plus `more` standard errors: (members, constraints).

        mean, spread: mean and standard deviation of the rows, (members, constraints).
        """
        z = float(stats.norm.ppf(self.confidence))
        unseen = unseen_share(self.rows, self.confidence)
        exact = [math.isfinite(limits.largest) and not limits.by_squares for limits in self.limits]
        most = mean.new_tensor([limits.largest if own else 0.0
                                for limits, own in zip(self.limits, exact, strict=True)])  # fmt: skip
        guard = mean.new_tensor([0.0 if own or not math.isfinite(limits.single) else unseen * limits.single
                                 for limits, own in zip(self.limits, exact, strict=True)])  # fmt: skip
        # Gaffke's bound adds one row of the largest value.
        beyond = (most - mean).clamp_min(0.0) / self.rows
        error = spread / math.sqrt(self.rows)
        return beyond + guard + z * torch.hypot(error, beyond) + more * error
