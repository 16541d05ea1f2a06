"""What every encoder is: a module from rows, perhaps S, and noise to a release."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fairveil._utils.randomness import RandomSource
from fairveil.data.schema import Layout
from fairveil.encoders.consistent import Consistent
from fairveil.encoders.heads import Noise, draw_noise, make_head
from fairveil.encoders.layers import STATISTICS
from fairveil.objectives.distortion import Release

#: Limits of an encoder that is read from a file.
_MOST_LAYERS, _MOST_UNITS = 64, 2**16

ModuleFactory = nn.Module | Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class EncoderSpec:
    """All that is needed to build an encoder anew, beside the layout and its weights.

    architecture: a name, a torch module, or a factory `f(inputs, outputs)` that makes one.
    sensitive_width: columns of S that the encoder sees; 0 when it sees X only. sensitive_discrete: they are one-hot.
    hidden, noise_dim: of the network (for images see `pixels`).
    normalise: with batch norm. residual: the network's numbers are added to the original, otherwise they replace it.
    levels: of the transport encoder, how many nested sets of columns can be moved; the last is all of them.
    cells: for the matrix and the partition, the representative rows (K, width); empty for the product
        alphabet.
    scores: for a classifier, the soft predictions (K, classes) it draws from. given_truth: its adversaries know Y.
    """

    architecture: str | ModuleFactory = "feedforward"
    release: str = "sampled"
    sensitive_width: int = 0
    sensitive_discrete: bool = True
    hidden: tuple[int, ...] = (128, 128)
    noise_dim: int = 16
    normalise: bool = False
    residual: bool = True
    levels: int = 3
    cells: tuple[tuple[float, ...], ...] = ()
    scores: tuple[tuple[float, ...], ...] = ()
    given_truth: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a manifest."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "EncoderSpec":
        """Read what `to_dict` wrote; refuses values of other types or sizes, as the file may have been crafted."""
        spec = cls(**{**values, **{name: _tuples(values.get(name, ())) for name in ("hidden", "cells", "scores")}})
        texts = isinstance(spec.architecture, str) and isinstance(spec.release, str)
        flags = (spec.sensitive_discrete, spec.normalise, spec.residual, spec.given_truth)
        sizes = (spec.sensitive_width, spec.noise_dim, spec.levels, *spec.hidden)
        if not texts or not all(isinstance(flag, bool) for flag in flags) or len(spec.hidden) > _MOST_LAYERS:
            raise ValueError("an encoder's description holds values of the wrong type")
        if not all(type(size) is int and 0 <= size <= _MOST_UNITS for size in sizes):
            raise ValueError("an encoder's description holds sizes out of range")
        for table in (spec.cells, spec.scores):
            numbers = [number for row in table for number in row]
            if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
                raise ValueError("an encoder's description holds a table of other than finite numbers")
            if len({len(row) for row in table}) > 1:
                raise ValueError("an encoder's description holds a ragged table")
        return spec


def _tuples(values: Any) -> Any:
    return tuple(map(_tuples, values)) if isinstance(values, (list, tuple)) else values


class Encoder(nn.Module):
    """A randomized map from a row (and S, if it may see it) to a release, one for each member.

    Every parameter has a leading member dimension and is learned in the game, but for the statistics of batch norm and
    for those whose names begin with `shared`: these are one for all members, and fixed before the game begins.
    """

    shared: str | None = None
    #: Whether the game only teaches how likely each record is that can be released of a row, and not the records: then
    #: a step of the encoder needs no gradient of its adversaries.
    learns_chances = False
    #: Whether a release is a row of the layout, and so has to keep to what its columns determine.
    releases_rows = True

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__()
        self.layout = layout
        self.spec = spec
        self.members = members
        self.consistent = Consistent(layout)

    @property
    def released_width(self) -> int:
        """Slots of what adversaries look at."""
        return self.layout.width

    @property
    def gumbel_width(self) -> int:
        """How many Gumbel variables a row takes."""
        return self.layout.group_width

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """Fresh noise for a batch."""
        numbers = len(self.layout.numbers)
        return draw_noise(rows, self.spec.noise_dim, self.gumbel_width, numbers, numbers, source)

    @property
    def redraws(self) -> bool:
        """Whether one proposal can be released again and again, each time with other values."""
        return self.spec.release == "sampled"

    def forward(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Release:
        """Rows (n, width), S (n, sensitive_width) and noise to a release (members, n, width)."""
        return self.release(self.propose(rows, sensitive, noise), rows, noise)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """All that is computed before the draw: what may be released of each row, with which chances."""
        raise NotImplementedError  # abstract

    def release(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """Draw one release from a proposal. Columns that others determine follow them."""
        drawn = self.draw(proposal, rows, noise)
        return self.consistent.release(drawn) if self.layout.links and self.releases_rows else drawn

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """Draw one release from a proposal, column by column."""
        raise NotImplementedError  # abstract

    def played(self) -> list[nn.Parameter]:
        """The parameters that are learned in the game."""
        return [p for name, p in self.named_parameters() if not self.is_shared(name) and STATISTICS not in name]

    def carried(self) -> list[nn.Parameter]:
        """All that sets an iterate apart from another: what is played, and the statistics of batch norm."""
        return [p for name, p in self.named_parameters() if not self.is_shared(name)]

    def is_shared(self, name: str) -> bool:
        """Whether a parameter is one for all members."""
        return self.shared is not None and name.startswith(self.shared)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Draw the starting weights of member i from generators[i]; every encoder starts close to the identity."""
        raise NotImplementedError  # abstract


class NetworkEncoder(Encoder):
    """An encoder whose proposal is the raw output of a network; a head draws from it."""

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        self.head = make_head(spec.release, layout, residual=spec.residual)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """By the head."""
        released: Release = self.head(proposal, rows, noise)
        return released


def with_sensitive(parts: list[Tensor], sensitive: Tensor | None) -> Tensor:
    """Join the inputs of a network along the last dimension."""
    return torch.cat([*parts, sensitive] if sensitive is not None else parts, dim=-1)
