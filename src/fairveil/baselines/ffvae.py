"""FFVAE: Creager and others, Flexibly Fair Representation Learning by Disentanglement (2019)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil._utils.errors import InputError
from fairveil.baselines.common import Baseline, Batch, cross_entropy
from fairveil.data.frames import read_table
from fairveil.data.sensitive import describe_sensitive

_HIDDEN, _CODE = (100,), 16
#: Precision of the decoder: one over its output variance.
_PRECISION = 10.0


class FFVAE(Baseline):
    """A variational autoencoder with a latent b_j for each sensitive column, and z for everything else.

    Maximises E[log p(x | z, b) + alpha log p(a | b)] - KL(q(z, b | x) || p) - gamma TC, where TC measures the
    dependence between z and all b_j, estimated by a discriminator between real codes and codes with every b_j shuffled
    among the rows. A later user names the columns to hide, whose b_j are then left out (`represent(..., hide=...)`).
    `weights` are values of gamma; alpha is a setting. b_j has as many units as its column has values.
    """

    def __init__(self, weights: Sequence[float], *, alpha: float = 30.0, **settings: Any) -> None:
        super().__init__(weights, **settings)
        self.alpha = alpha

    def read_secret(self, secret: Any) -> Tensor:
        """Each column one-hot, concatenated."""
        described = describe_sensitive(secret, discrete=True)
        self.columns = tuple(column.name for column in described.columns)
        self.sizes = list(described.classes)
        codes = described.codes(secret)
        parts = [F.one_hot(codes[:, i], size).float() for i, size in enumerate(self.sizes)]
        return torch.cat(parts, dim=1)

    def build(self, width: int, groups: int, classes: int) -> tuple[nn.ModuleDict, nn.ModuleDict]:
        """Encoder (means and log-variances of z and b), decoder, discriminator."""
        code = _CODE + groups
        own = {"encode": self.mlp(width, _HIDDEN, 2 * code), "decode": self.mlp(code, _HIDDEN, width)}
        return nn.ModuleDict(own), nn.ModuleDict({"tell": self.mlp(code, (100, 100), 2)})

    def own_losses(self, batch: Batch) -> Tensor:
        """Minus the objective."""
        mean, log_variance, code = self.code(batch.x)
        rebuilt = 0.5 * _PRECISION * (self.own["decode"](code) - batch.x).square().sum(dim=-1).mean(dim=-1)
        prior = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=-1).mean(dim=-1)
        told = zip(torch.split(code[..., _CODE:], self.sizes, dim=-1), torch.split(batch.s, self.sizes, dim=-1),
                   strict=True)  # fmt: skip
        naming = torch.stack([cross_entropy(logits, truth) for logits, truth in told]).sum(dim=0)
        logits = self.adversary["tell"](code)
        together = (logits[..., 0] - logits[..., 1]).mean(dim=-1)
        total: Tensor = rebuilt + prior + self.alpha * naming + self.weight * together
        return total

    def adversary_losses(self, batch: Batch) -> Tensor:
        """The discriminator: real codes are class 0, shuffled ones class 1."""
        with torch.no_grad():
            code = self.code(batch.x)[2]
            parts = [code[..., :_CODE]]
            for part in torch.split(code[..., _CODE:], self.sizes, dim=-1):
                parts.append(part[:, torch.randperm(part.shape[1], generator=self.generator)])
            shuffled = torch.cat(parts, dim=-1)
        real, fake = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        halves = (cross_entropy(self.adversary["tell"](c), t.expand(len(batch.x), 2))
                  for c, t in ((code, real), (shuffled, fake)))  # fmt: skip
        return torch.stack(list(halves)).mean(dim=0)

    def code(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, log-variance and one draw of (z, b)."""
        mean, log_variance = self.own["encode"](x).chunk(2, dim=-1)
        log_variance = log_variance.clamp(-8.0, 4.0)
        noise = torch.randn(mean.shape, generator=self.generator)
        return mean, log_variance, mean + (0.5 * log_variance).exp() * noise

    def outputs(self, x: Tensor) -> tuple[Any, Any]:
        """One draw of z, without the latents of any sensitive column; there is no predictor."""
        return self.code(x)[2][..., :_CODE], None

    def represent(self, X: Any, weight: float, seed: int = 0, hide: Sequence[str] | None = None) -> pd.DataFrame:
        """(z, b) without the latents of the columns to hide: all of them if none are named."""
        hidden = self.columns if hide is None else tuple(hide)
        if set(hidden) - set(self.columns):
            raise InputError(f"There is no sensitive column {sorted(set(hidden) - set(self.columns))}.")
        with torch.no_grad():
            drawn = self.code(self.codec.encode(read_table(X).arrow))[2]
        code = drawn[self.weights.index(float(weight)) * self.seeds + seed].numpy()
        owners = np.repeat(self.columns, self.sizes)
        kept = [*range(_CODE), *(_CODE + i for i, name in enumerate(owners) if name not in hidden)]
        names = [f"z{i}" for i in range(_CODE)] + [f"b{i}" for i in kept[_CODE:]]
        return pd.DataFrame(code[:, kept], columns=names)
