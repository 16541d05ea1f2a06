"""The paper's feed-forward decorrelator (FNND): the row, optionally S, and input noise through a dense network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fairveil.data.layout import Layout
from fairveil.encoders.architecture import Architecture, Signature, check_sizes
from fairveil.encoders.base import NetworkEncoder, with_sensitive
from fairveil.encoders.heads import Noise, head_width
from fairveil.encoders.layers import BatchedMLP, initialise
from fairveil.encoders.reconstruction import learn_to_reconstruct
from fairveil.encoders.warm_start import WarmStart

#: Tables with more slots than this are wide.
_WIDE = 1500
_OF_WIDE_TABLES = {"steps": 500, "batch_size": 256, "adversary_steps": 2, "adversary_hidden": ((128, 128),)}


@dataclass(frozen=True)
class FeedForward(Architecture):
    """A dense network on the row, S if it is seen, and noise.

    Parameters
    ----------
    hidden : tuple of int
        Units of each hidden layer.
    noise_dim : int
        Number of normal variables at the network's input.
    normalise : bool
        Batch norm on hidden layers: minibatch statistics in training, running statistics afterwards.
    residual : bool
        Whether the output corrects the original; otherwise it replaces it, as in the paper's image experiments.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(1.5, architecture=fv.FeedForward(hidden=(256, 256)))
    """

    name: ClassVar[str] = "feedforward"
    training: ClassVar[Mapping[str, Any]] = {}

    hidden: tuple[int, ...] = (128, 128)
    noise_dim: int = 16
    normalise: bool = False
    residual: bool = True

    def __post_init__(self) -> None:
        check_sizes(self, hidden=1, noise_dim=0)

    def defaults(self, layout: Layout) -> Mapping[str, Any]:
        """Fewer and smaller steps for wide tables, whose cost is that of the first and last layers."""
        wide = layout.shape is None and layout.width > _WIDE
        return {**self.training, **_OF_WIDE_TABLES} if wide else self.training

    def build(self, signature: Signature, members: int) -> "FeedForwardEncoder":
        """The network."""
        return FeedForwardEncoder(self, signature, members)


class FeedForwardEncoder(NetworkEncoder):
    """A dense network whose output corrects the identity (or replaces it); the head turns it into a release."""

    architecture: FeedForward

    def __init__(self, architecture: FeedForward, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members, residual=architecture.residual)
        self.noise_dim = architecture.noise_dim
        inputs = self.layout.width + signature.sensitive_width + self.noise_dim
        outputs = head_width(self.layout)
        self.network = BatchedMLP(members, inputs, architecture.hidden, outputs, normalise=architecture.normalise)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """Raw output of the network."""
        raw: Tensor = self.network(with_sensitive([rows, noise.inputs], sensitive))
        return raw

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Small last layer for a residual network, so that its first release is close to the original."""
        initialise(self, generators, last_scale=0.1 if self.architecture.residual else 1.0)

    def warm_start(self, start: WarmStart) -> None:
        """Learn to reconstruct the original, unless the network starts from it."""
        if not self.architecture.residual:
            learn_to_reconstruct(self, start, start.batch_size)
