"""An iterative nonlinear eraser: Iskander et al., Shielded representations (iterative gradient-based projection, 2023).

Several times: a network is trained to predict S, and every row is moved along the gradient of its logit to the surface
on which the network is undecided: x - f(x) / |∇f(x)|² ∇f(x).
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from field.coding import Vectors
from field.protocol import Fitted, Method, Rows, vectors

_HIDDEN, _STEPS, _BATCH = 64, 300, 256


class GradientProjection:
    """Networks for two groups, in the order in which they were trained; `rounds` is the trade-off."""

    def __init__(self, x: np.ndarray, s: np.ndarray, rounds: int, seed: int) -> None:
        self.networks: list[nn.Module] = []
        rows, truth = torch.from_numpy(x).float(), torch.from_numpy(s.astype(np.float32))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for _ in range(rounds):
                self.networks.append(_trained(rows, truth))
                rows = _projected(self.networks[-1], rows)

    def __call__(self, x: np.ndarray, rounds: int) -> np.ndarray:
        """The rows after the first projections."""
        rows = torch.from_numpy(x).float()
        for network in self.networks[:rounds]:
            rows = _projected(network, rows)
        return rows.numpy()


def _trained(x: Tensor, s: Tensor) -> nn.Module:
    network = nn.Sequential(nn.Linear(x.shape[1], _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))
    optimiser = torch.optim.AdamW(network.parameters(), 3e-3)
    # Groups of different size have equal weight: the surface is where either group is equally likely.
    weight = torch.where(s > 0, 0.5 / s.mean(), 0.5 / (1.0 - s.mean()))
    for _ in range(_STEPS):
        at = torch.randint(len(x), (_BATCH,))
        loss = nn.functional.binary_cross_entropy_with_logits(network(x[at])[:, 0], s[at], weight[at])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network


def _projected(network: nn.Module, x: Tensor) -> Tensor:
    rows = x.clone().requires_grad_(True)
    logit = network(rows)[:, 0]
    [slope] = torch.autograd.grad(logit.sum(), rows)
    step = logit / slope.square().sum(dim=1).clamp_min(1e-6)
    return (x - step[:, None] * slope).detach()


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    coder = Vectors(train.X)
    eraser = GradientProjection(coder(train.X), train.group == np.unique(train.group)[1], 12, seed)
    for rounds in (2, 5, 12):
        yield Fitted(f"{rounds} rounds", lambda rows, rounds=rounds: vectors(eraser(coder(rows.X), rounds)))


METHODS = [Method("gradient projection", fit, "Iskander et al. 2023, written from the paper", two=True)]
