"""The adversary's losses (Table `table:gaploss`): squared, zero-one, log and alpha.

Each takes the adversary's raw output, shape (..., classes) or (..., columns) for squared loss, and the true values:
class indices of shape (...) or numbers of shape (..., columns). Each returns one loss per row; log-losses are in nats.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from fairveil._utils.errors import InputError, must_be

#: Beyond exp(60) the alpha-loss continues along its tangent, so that values and gradients stay finite in float32.
_STEEPEST = 60.0
#: ... up to this point, and is constant from there.
_FARTHEST = 1e10


class Loss(Protocol):
    """The adversary's loss for its belief about S."""

    @property
    def discrete(self) -> bool:
        """Whether S is a class (True) or a number."""
        ...

    def rows(self, output: Tensor, target: Tensor) -> Tensor:
        """Differentiable loss of each row, as used in training."""
        ...

    def chance(self, target: Tensor, importance: Tensor | None = None) -> Tensor:
        """Mean loss of the best constant guess, which ignores the release: the level that a perfect release attains.

        importance: how much each row counts; equal if None.
        """
        ...


@dataclass(frozen=True)
class AlphaLoss:
    """The tunable alpha-loss (`eq:alpha_loss`), alpha/(alpha-1) (1 - P_h(s)^((alpha-1)/alpha)), for alpha in (0, inf].

    alpha = 1 is log-loss, alpha = inf is the probability of error 1 - P_h(s); both are exact. The best adversary raises
    the posterior to the power alpha, and its loss is a function of Arimoto's conditional entropy (`thm:alpha`).

    >>> logits = torch.log(torch.tensor([[0.8, 0.2]]))
    >>> round(AlphaLoss(2.0).rows(logits, torch.tensor([0])).item(), 4)  # 2 (1 - sqrt 0.8)
    0.2111
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, (int, float)) or not self.alpha > 0:
            raise InputError(must_be("AlphaLoss", "alpha", "a number above 0, or infinity", self.alpha))

    @property
    def discrete(self) -> bool:
        """S is a class."""
        return True

    @property
    def exponent(self) -> float:
        """(alpha - 1) / alpha: the power of P_h(s), 0 for log-loss and 1 for the probability of error."""
        return 1.0 if math.isinf(self.alpha) else (self.alpha - 1.0) / self.alpha

    def rows(self, output: Tensor, target: Tensor) -> Tensor:
        """Loss of each row from logits."""
        return self.of_log_probability(F.log_softmax(output, dim=-1).gather(-1, target.unsqueeze(-1)).squeeze(-1))

    def of_log_probability(self, log_p: Tensor) -> Tensor:
        """Loss as a function of log P_h(s)."""
        power = self.exponent
        if power == 0.0:
            return -log_p
        scaled = power * log_p
        steep = scaled.clamp(max=_STEEPEST)
        # Clamped from below, not `scaled - steep`: the gradients of that difference cancel only before rounding.
        beyond = scaled.clamp(_STEEPEST, _STEEPEST + _FARTHEST) - _STEEPEST
        return -(torch.expm1(steep) + beyond * math.exp(_STEEPEST)) / power

    def chance(self, target: Tensor, importance: Tensor | None = None) -> Tensor:
        """Loss of the tilted prior: the minimum over guesses that ignore the release."""
        prior = target.flatten().bincount(importance).double()
        prior = prior[prior > 0] / prior.sum()
        if math.isinf(self.alpha):
            return 1.0 - prior.max()
        guess = F.log_softmax(self.alpha * prior.log(), dim=0)
        return (prior * self.of_log_probability(guess)).sum()


@dataclass(frozen=True)
class LogLoss(AlphaLoss):
    """Log-loss in nats: the belief-refining adversary, whose game minimises the mutual information I(X_r; S)."""

    alpha: float = 1.0


@dataclass(frozen=True)
class ZeroOneLoss(AlphaLoss):
    """Zero-one loss (`eq:0-1loss`): the MAP adversary.

    Its hard decision has no gradient. Training uses alpha-loss at infinity, 1 - P_h(s): the expected zero-one loss of
    an adversary that draws its decision from P_h, minimised by the same MAP rule.
    """

    alpha: float = math.inf

    def decisions(self, output: Tensor, target: Tensor) -> Tensor:
        """The zero-one loss of the hard decision, the class with the largest logit."""
        return (output.argmax(dim=-1) != target).to(output.dtype)


@dataclass(frozen=True)
class Mistakes:
    """Whether the most likely class is wrong: for evaluation, not for training."""

    discrete: bool = True

    def rows(self, output: Tensor, target: Tensor) -> Tensor:
        """1 for a mistake, otherwise 0."""
        return (output.argmax(dim=-1) != target).to(output.dtype)

    def chance(self, target: Tensor, importance: Tensor | None = None) -> Tensor:
        """The error of always predicting the most frequent class."""
        return 1.0 - torch.bincount(target, importance).max() / len(target)


@dataclass(frozen=True)
class SquaredLoss:
    """Squared loss, summed over sensitive columns: the MMSE adversary for a continuous S."""

    @property
    def discrete(self) -> bool:
        """S is a number."""
        return False

    def rows(self, output: Tensor, target: Tensor) -> Tensor:
        """Sum of squared errors of each row."""
        return (output - target).square().sum(dim=-1)

    def chance(self, target: Tensor, importance: Tensor | None = None) -> Tensor:
        """The variance: the squared error of always guessing the mean."""
        weight = torch.ones(len(target)) if importance is None else importance
        weight = (weight.double() / weight.sum()).unsqueeze(1).to(target.device)
        values = target.double().reshape(len(target), -1)
        return (weight * (values - (weight * values).sum(dim=0)).square()).sum()


def make_loss(loss: "str | Loss", owner: str = "FairEncoder", parameter: str = "loss") -> Loss:
    """A loss by its name, or the loss itself; error messages name its owner."""
    names: dict[str, Loss] = {"log": LogLoss(), "squared": SquaredLoss(), "zero_one": ZeroOneLoss()}
    if isinstance(loss, str) and loss in names:
        return names[loss]
    if isinstance(loss, (AlphaLoss, SquaredLoss)):
        return loss
    raise InputError(must_be(owner, parameter, f"one of {', '.join(names)} or an AlphaLoss", loss))
