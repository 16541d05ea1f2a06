"""The encoder's opponents: networks that predict S from a release, several at once for every member."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairveil._utils.errors import InputError
from fairveil._utils.randomness import seen_slots
from fairveil.encoders.layers import STATISTICS, BatchedCNN, BatchedMLP, Layer, Shape, initialise


@dataclass(frozen=True)
class Opponent:
    """One network: its hidden layers (see `layers.Layer`), its number of outputs, and the index of its target."""

    hidden: tuple[Layer, ...]
    outputs: int
    target: int = 0


class Panel(nn.Module):
    """Several networks that see the same release, of `width` slots.

    dropout: the probability that a slot is hidden from a network in training. Without it an adversary memorises the
    training rows (its advantage there is several times that on new rows), and the encoder then adapts to this memory.
    shape: for images, channels, height and width, used by convolutions. normalise: use batch norm.
    """

    def __init__(
        self,
        width: int,
        opponents: Sequence[Opponent],
        members: int,
        dropout: float = 0.0,
        shape: Shape | None = None,
        *,
        normalise: bool = False,
    ) -> None:
        super().__init__()
        self.opponents = tuple(opponents)
        self.dropout = dropout
        self.networks = nn.ModuleList(_network(o, width, shape, members, normalise=normalise) for o in opponents)

    def learned(self) -> list[nn.Parameter]:
        """The trained parameters: all except batch-norm statistics."""
        return [p for name, p in self.named_parameters() if STATISTICS not in name]

    def forward(self, released: Tensor, generator: torch.Generator | None = None) -> list[Tensor]:
        """Raw outputs (members, rows, outputs) of every network; dropout is applied if there is a generator."""
        if generator is not None and self.dropout > 0:
            rows, width = released.shape[-2:]
            if released.stride(-1) == 1:
                seen = seen_slots(rows, width, self.dropout, generator, released.dtype)
            else:  # rows are contiguous in memory: use the same layout for the factors
                seen = seen_slots(width, rows, self.dropout, generator, released.dtype).transpose(-1, -2)
            released = released * seen
        return [network(released) for network in self.networks]

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the initial weights of member i from generators[i]."""
        initialise(self, generators)

    def restart(self, index: int, generators: Sequence[torch.Generator]) -> list[nn.Parameter]:
        """Re-initialise one network, so that the encoder cannot adapt to it permanently; returns its parameters."""
        initialise(self.networks[index], generators)
        return [p for name, p in self.networks[index].named_parameters() if STATISTICS not in name]


def _network(opponent: Opponent, width: int, shape: Shape | None, members: int, *, normalise: bool) -> nn.Module:
    dense = tuple(layer for layer in opponent.hidden if isinstance(layer, int))
    if len(dense) == len(opponent.hidden):
        return BatchedMLP(members, width, dense, opponent.outputs, normalise=normalise)
    if shape is None:
        raise InputError("Adversaries with convolutions are for images: give whole numbers in adversary_hidden.")
    return BatchedCNN(members, shape, opponent.hidden, opponent.outputs, normalise=normalise)
