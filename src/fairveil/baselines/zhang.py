"""Zhang, Lemoine and Mitchell, Mitigating Unwanted Biases with Adversarial Learning (2018)."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fairveil._utils.errors import InputError, must_be
from fairveil.baselines.common import Baseline, Batch, cross_entropy


class Zhang(Baseline):
    """A logistic predictor whose gradient is projected so that it does not help an adversary that sees its prediction.

    The predictor follows g - proj_h g - alpha h, with g the gradient of its own loss and h that of the adversary's: the
    projection removes what would help the adversary, the last term works against it. The adversary sees the softmax of
    the prediction's logits, scaled by a learned factor; for equalized odds also its products with Y. alpha grows with
    the square root of the step, as in the paper; `weights` are its factor.
    """

    def __init__(
        self, weights: Sequence[float], fairness: Literal["demographic_parity", "equalized_odds"], **settings: Any
    ) -> None:
        super().__init__(weights, **settings)
        if fairness not in ("demographic_parity", "equalized_odds"):
            expected = "'demographic_parity' or 'equalized_odds'"
            raise InputError(must_be("Zhang", "fairness", expected, fairness))
        self.fairness = fairness

    def build(self, width: int, groups: int, classes: int) -> tuple[nn.ModuleDict, nn.ModuleDict]:
        """A logistic regression, and one on its output."""
        seen = classes * (1 + classes if self.fairness == "equalized_odds" else 1)
        return (
            nn.ModuleDict({"predict": self.mlp(width, (), classes)}),
            nn.ModuleDict({"guess": self.mlp(seen, (), groups), "stretch": _Stretch(self.members)}),
        )

    def own_losses(self, batch: Batch) -> Tensor:
        """Log-loss of the prediction only: the adversary enters through `gradients`."""
        return cross_entropy(self.own["predict"](batch.x), batch.y)

    def adversary_losses(self, batch: Batch) -> Tensor:
        """Log-loss for S, given the prediction."""
        soft = self.adversary["stretch"](self.own["predict"](batch.x))
        seen = soft
        if self.fairness == "equalized_odds":
            seen = torch.cat([soft, (soft.unsqueeze(-1) * batch.y.unsqueeze(-2)).flatten(-2)], dim=-1)
        return cross_entropy(self.adversary["guess"](seen), batch.s)

    def gradients(self, batch: Batch, step: int) -> Iterable[tuple[nn.Parameter, Tensor]]:
        """The predictor's gradient by projection, the adversary's unchanged."""
        own, others = list(self.own.parameters()), list(self.adversary.parameters())
        guess = self.adversary_losses(batch).sum()
        helped = torch.autograd.grad(guess, [*own, *others])
        wanted = torch.autograd.grad(self.own_losses(batch).sum(), own)
        alpha = self.weight * math.sqrt(step)
        yield from zip(own, projected(wanted, helped[: len(own)], alpha), strict=True)
        yield from zip(others, helped[len(own) :], strict=True)

    def outputs(self, x: Tensor) -> tuple[Any, Any]:
        """No representation; the predictor's logits."""
        return None, self.own["predict"](x)


class _Stretch(nn.Module):
    """Sharpens a prediction by a factor of at least 1, one per member, so that it is closer to the hard decision."""

    def __init__(self, members: int) -> None:
        super().__init__()
        # Not 0: there the absolute value has no gradient, and the factor would not change.
        self.factor = nn.Parameter(torch.ones(members, 1, 1))

    def forward(self, logits: Tensor) -> Tensor:
        return ((1.0 + self.factor.abs()) * logits.log_softmax(dim=-1)).softmax(dim=-1)


def projected(wanted: Sequence[Tensor], helped: Sequence[Tensor], alpha: Tensor) -> list[Tensor]:
    """g - proj_h g - alpha h of each member, over all its parameters; the first dimension of each tensor is members."""
    pairs = list(zip(wanted, helped, strict=True))
    inner = torch.stack([(g * h).flatten(1).sum(dim=1) for g, h in pairs]).sum(dim=0)
    length = torch.stack([h.flatten(1).square().sum(dim=1) for h in helped]).sum(dim=0)
    factor = inner / length.clamp_min(1e-20) + alpha
    return [g - factor.view(-1, *[1] * (g.dim() - 1)) * h for g, h in pairs]
