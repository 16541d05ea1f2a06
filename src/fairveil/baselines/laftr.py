"""LAFTR: Madras, Creager, Pitassi and Zemel, Learning Adversarially Fair and Transferable Representations (2018)."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fairveil._utils.errors import InputError, must_be
from fairveil.baselines.common import Baseline, Batch, cross_entropy

_HIDDEN, _CODE = (8,), 8
Fairness = Literal["demographic_parity", "equalized_odds", "equal_opportunity"]


class LAFTR(Baseline):
    """Minimise the classifier's loss plus gamma times the adversary's gain, Z = f(X).

    The adversary's gain is averaged over rows within each group of S and then over the groups (LAFTR-DP). For equalized
    odds it sees Y, and groups are pairs of S and Y; for equal opportunity only rows of the last class of Y count.
    `weights` are values of gamma. Networks have one hidden layer of 8 units, Z has 8, as in the paper for Adult.

    gain: "absolute", as in the paper, is one minus the absolute error, with which the optimal adversary bounds ΔDemP of
    any classifier on Z. Its gradient vanishes where the adversary is confident, so an adversary that gives one answer
    for all rows stays there. "log", the default here, is minus log-loss, balanced in the same way.
    """

    def __init__(
        self,
        weights: Sequence[float],
        fairness: Fairness = "demographic_parity",
        *,
        gain: Literal["log", "absolute"] = "log",
        **settings: Any,
    ) -> None:
        super().__init__(weights, **settings)
        if gain not in ("log", "absolute"):
            raise InputError(must_be("LAFTR", "gain", "'log' or 'absolute'", gain))
        self.gain = gain
        kinds = ("demographic_parity", "equalized_odds", "equal_opportunity")
        if fairness not in kinds:
            raise InputError(must_be("LAFTR", "fairness", f"one of {', '.join(map(repr, kinds))}", fairness))
        self.fairness = fairness

    def build(self, width: int, groups: int, classes: int) -> tuple[nn.ModuleDict, nn.ModuleDict]:
        """Encoder and classifier; and the adversary, which also sees Y for equalized odds."""
        own = {"encode": self.mlp(width, _HIDDEN, _CODE), "predict": self.mlp(_CODE, _HIDDEN, classes)}
        seen = _CODE + (classes if self.fairness == "equalized_odds" else 0)
        return nn.ModuleDict(own), nn.ModuleDict({"guess": self.mlp(seen, _HIDDEN, groups)})

    def own_losses(self, batch: Batch) -> Tensor:
        """Prediction loss plus gamma times the adversary's gain."""
        code = self.own["encode"](batch.x)
        return cross_entropy(self.own["predict"](code), batch.y) + self.weight * self.gains(code, batch)

    def adversary_losses(self, batch: Batch) -> Tensor:
        """Minus the gain."""
        with torch.no_grad():
            code = self.own["encode"](batch.x)
        return -self.gains(code, batch)

    def gains(self, code: Tensor, batch: Batch) -> Tensor:
        """The adversary's gain, averaged within each group, then over groups: (members,)."""
        if self.fairness == "equalized_odds":
            code = torch.cat([code, batch.y.expand(len(code), -1, -1)], dim=-1)
        right = (self.adversary["guess"](code).log_softmax(dim=-1) * batch.s).sum(dim=-1)
        if self.gain == "absolute":
            right = right.exp()
        group = {
            "demographic_parity": batch.s,
            "equalized_odds": (batch.s.unsqueeze(2) * batch.y.unsqueeze(1)).flatten(1),
            "equal_opportunity": batch.s * batch.y[:, -1:],
        }[self.fairness]
        present = group.sum(dim=0) > 0
        means = (right @ group)[:, present] / group.sum(dim=0)[present]
        total: Tensor = means.mean(dim=-1)
        return total

    def outputs(self, x: Tensor) -> tuple[Any, Any]:
        """Z, and the classifier's logits."""
        code = self.own["encode"](x)
        return code, self.own["predict"](code)
