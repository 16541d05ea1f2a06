"""ALFR: Edwards and Storkey, Censoring Representations with an Adversary (2016)."""

from typing import Any

import torch
from torch import Tensor, nn

from fairveil.baselines.common import Baseline, Batch, cross_entropy

_HIDDEN, _CODE = (100,), 60
#: Weight alpha of reconstruction, relative to prediction with weight 1.
_RECONSTRUCTION = 0.05


class ALFR(Baseline):
    """Minimise alpha C(X, Dec(R)) + beta D(S, Adv(R)) + gamma E(Y, Pred(R)) against the adversary, R = Enc(X).

    D is minus the adversary's log-loss; `weights` are values of beta, alpha is 0.05 and gamma 1. Encoder, decoder and
    adversary have one hidden layer of 100 units, the representation has 60; the predictor is logistic.
    """

    def build(self, width: int, groups: int, classes: int) -> tuple[nn.ModuleDict, nn.ModuleDict]:
        """All networks."""
        own = {"encode": self.mlp(width, _HIDDEN, _CODE), "decode": self.mlp(_CODE, _HIDDEN, width),
               "predict": self.mlp(_CODE, (), classes)}  # fmt: skip
        return nn.ModuleDict(own), nn.ModuleDict({"guess": self.mlp(_CODE, _HIDDEN, groups)})

    def own_losses(self, batch: Batch) -> Tensor:
        """Reconstruct, predict, and raise the adversary's loss."""
        code = self.own["encode"](batch.x)
        rebuilt = (self.own["decode"](code) - batch.x).square().sum(dim=-1).mean(dim=-1)
        task = cross_entropy(self.own["predict"](code), batch.y)
        guess = cross_entropy(self.adversary["guess"](code), batch.s)
        total: Tensor = _RECONSTRUCTION * rebuilt + task - self.weight * guess
        return total

    def adversary_losses(self, batch: Batch) -> Tensor:
        """Log-loss for S."""
        with torch.no_grad():
            code = self.own["encode"](batch.x)
        return cross_entropy(self.adversary["guess"](code), batch.s)

    def outputs(self, x: Tensor) -> tuple[Any, Any]:
        """The code, and the logistic predictor's logits."""
        code = self.own["encode"](x)
        return code, self.own["predict"](code)
