"""Layers whose weights carry a leading member dimension, so that many networks are a few batched matrix products."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


class BatchedLinear(nn.Module):
    """One affine map a member: (members, rows, inputs) or (rows, inputs) to (members, rows, outputs)."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each member's map; a shared input of two dimensions serves every member."""
        # Rows are neighbours in memory (see `ragged`); to the matrix product both orders are alike.
        if x.dim() == 2:
            # One input for all: one wide product instead of a copy of the input for each member.
            members, _, outputs = self.weight.shape
            bias, weight = self.bias.reshape(-1, 1), self.weight.transpose(1, 2).flatten(end_dim=1)
            return torch.addmm(bias, weight, x.t()).view(members, outputs, -1).transpose(-1, -2)
        transposed = [t.transpose(-1, -2) for t in (self.bias, self.weight, x)]
        return torch.baddbmm(*transposed).transpose(-1, -2)


class BatchedMLP(nn.Module):
    """A leaky-ReLU network a member."""

    def __init__(self, members: int, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        sizes = [inputs, *hidden, outputs]
        self.layers = nn.ModuleList(BatchedLinear(members, a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """Raw outputs (members, rows, outputs)."""
        for layer in self.layers[:-1]:
            x = torch.nn.functional.leaky_relu(layer(x), 0.01)
        out: Tensor = self.layers[-1](x)
        return out


def initialise(module: nn.Module, generators: Sequence[torch.Generator], last_scale: float = 1.0) -> None:
    """He-initialise every BatchedLinear; member i draws from generators[i], so a member does not depend on its company.

    `last_scale` shrinks the last layer of each BatchedMLP: a small start for networks whose output is a correction.
    """
    mlps = [m for m in module.modules() if isinstance(m, BatchedMLP)]
    for mlp in mlps:
        for layer in mlp.layers:
            assert isinstance(layer, BatchedLinear)
            spread = math.sqrt(2.0 / layer.weight.shape[1]) * (last_scale if layer is mlp.layers[-1] else 1.0)
            with torch.no_grad():
                for weight, generator in zip(layer.weight, generators, strict=True):
                    # Drawn where the generator is, then moved: the weights may be on another device.
                    weight.copy_(torch.empty(weight.shape).normal_(0.0, spread, generator=generator))
                layer.bias.zero_()
