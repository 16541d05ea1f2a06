"""The base class of encoders: a module from rows, optionally S, and noise to a release."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairveil._utils.randomness import RandomSource
from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.consistent import Consistent
from fairveil.encoders.heads import Noise, draw_noise, make_head
from fairveil.encoders.layers import STATISTICS
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives.released import ReleasedBatch


class Encoder(nn.Module):
    """A randomized map from a row (and S, if it may see it) to a release, one per member.

    Every parameter has a leading member dimension and is trained in the game, except batch-norm statistics and
    parameters whose names begin with `shared`: these are common to all members and fixed before the game starts.
    """

    shared: str | None = None
    #: Whether the game trains only the probability of each record that can be released for a row, not the records
    #: themselves: the encoder's step then needs no gradient through its adversaries.
    learns_chances = False
    #: Whether a release is a row of the layout, and so must respect the dependencies between its columns.
    releases_rows = True
    #: Number of normal variables at the network's input.
    noise_dim = 0

    def __init__(self, architecture: Architecture, signature: Signature, members: int) -> None:
        super().__init__()
        self.architecture = architecture
        self.signature = signature
        self.layout = signature.layout
        self.members = members
        self.consistent = Consistent(signature.layout)

    @property
    def released_width(self) -> int:
        """Width of what adversaries see."""
        return self.layout.width

    @property
    def gumbel_width(self) -> int:
        """Number of Gumbel variables per row."""
        return self.layout.group_width

    @property
    def alphabet(self) -> int | None:
        """How many different records can be released, if they are few and the same for all rows; else None."""
        return None

    def cell_of(self, rows: Tensor) -> Tensor:
        """For an encoder with an alphabet: the index of each row's record, (rows,)."""
        raise NotImplementedError(f"{type(self).__name__} has no alphabet")

    def probabilities(self, rows: Tensor, sensitive: Tensor | None) -> NDArray[np.float64] | None:
        """For an encoder with an alphabet: the exact probability of each record for each row, (rows, alphabet).

        None where they are unknown, or so close to 0 and 1 that a draw says as much.
        """
        return None

    def channel(self) -> Tensor | None:
        """P(record | record of the row[, class of S]) if it is known exactly: (members, classes or 1, K, K)."""
        return None

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """Fresh noise for a batch."""
        numbers = len(self.layout.numbers)
        return draw_noise(rows, self.noise_dim, self.gumbel_width, numbers, numbers, source)

    @property
    def redraws(self) -> bool:
        """Whether one proposal can be released several times with different draws."""
        return self.signature.sampled

    def forward(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> ReleasedBatch:
        """Rows (n, width), S (n, sensitive_width) and noise to a release (members, n, width)."""
        return self.release(self.propose(rows, sensitive, noise), rows, noise)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """Everything computed before the draw: which values can be released for each row, with which probabilities."""
        raise NotImplementedError  # abstract

    def release(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Draw one release from a proposal. Determined columns follow the columns that determine them."""
        drawn = self.draw(proposal, rows, noise)
        return self.consistent.release(drawn) if self.layout.links and self.releases_rows else drawn

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Draw one release from a proposal, column by column."""
        raise NotImplementedError  # abstract

    def warm_start(self, start: WarmStart) -> None:
        """Pretrain without adversaries, before the game; by default, do nothing."""

    def played(self) -> list[nn.Parameter]:
        """The parameters trained in the game."""
        return [p for name, p in self.named_parameters() if not self.is_shared(name) and STATISTICS not in name]

    def carried(self) -> list[nn.Parameter]:
        """The parameters that define an iterate: the trained ones and batch-norm statistics."""
        return [p for name, p in self.named_parameters() if not self.is_shared(name)]

    def is_shared(self, name: str) -> bool:
        """Whether a parameter is shared by all members."""
        return self.shared is not None and name.startswith(self.shared)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the starting weights of member i from generators[i]; every encoder starts close to the identity."""
        raise NotImplementedError  # abstract


class NetworkEncoder(Encoder):
    """An encoder whose proposal is the raw output of a network, from which a head draws."""

    def __init__(self, architecture: Architecture, signature: Signature, members: int, *, residual: bool) -> None:
        super().__init__(architecture, signature, members)
        self.head = make_head(signature.release, signature.layout, residual=residual)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Draw with the head."""
        released: ReleasedBatch = self.head(proposal, rows, noise)
        return released


def with_sensitive(parts: list[Tensor], sensitive: Tensor | None) -> Tensor:
    """Concatenate the inputs of a network along the last dimension."""
    return torch.cat([*parts, sensitive] if sensitive is not None else parts, dim=-1)
