"""The paper's feed-forward decorrelator (FNND): the row, perhaps S, and input noise through a dense network."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fairveil.data.schema import Layout
from fairveil.encoders.base import EncoderSpec, NetworkEncoder, with_sensitive
from fairveil.encoders.heads import Noise, head_width
from fairveil.encoders.layers import BatchedMLP, initialise


class FeedForward(NetworkEncoder):
    """A dense network whose output corrects the identity (or replaces it); the head turns it into a release."""

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        inputs = layout.width + spec.sensitive_width + spec.noise_dim
        self.network = BatchedMLP(members, inputs, spec.hidden, head_width(layout), normalise=spec.normalise)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """Raw output of the network."""
        raw: Tensor = self.network(with_sensitive([rows, noise.inputs], sensitive))
        return raw

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Small last layer where it corrects the original: the first release is close to it."""
        initialise(self, generators, last_scale=0.1 if self.spec.residual else 1.0)
