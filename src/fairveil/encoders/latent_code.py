"""A game in a code: principal components are moved and noised by a network, and decoded again.

The decoder is linear and fixed before the game; all budgets share it. The game starts from affine transport if the
encoder sees S, and from the best noise for the groups (`theory.transport.group_noise`) if it does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from fairveil._utils.randomness import Seeds
from fairveil.data.images import ImageSchema
from fairveil.data.rows import Rows
from fairveil.data.schema import Schema
from fairveil.encoders.affine_transport import AffineTransportEncoder
from fairveil.encoders.architecture import Architecture, Signature, check_sizes
from fairveil.encoders.base import with_sensitive
from fairveil.encoders.code import code_problem, most_components
from fairveil.encoders.heads import Noise
from fairveil.encoders.layers import BatchedLinear, BatchedMLP, initialise
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch

#: Scale of the network's last layer at the start: the game begins at the closed form.
_START = 0.01


@dataclass(frozen=True)
class LatentCode(Architecture):
    """Moves and noises principal components by a network, in a game whose adversaries see the code.

    For images, sensors, embeddings and tables of many numbers; S may be seen or not.

    Parameters
    ----------
    n_components : int
        Maximum number of principal components that are released. What they leave out counts against the budget: a small
        budget needs more components.
    hidden : tuple of int
        Hidden layers of the network that moves the codes.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(3.0, architecture=fv.LatentCode(n_components=64))
    """

    name: ClassVar[str] = "latent_code"
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 1000,
        "batch_size": 512,
        "learning_rate": 1e-3,
        "adversary_learning_rate": 2e-3,
        "adversary_hidden": ((256, 256), (256, 128), (128,)),
        "adversary_dropout": 0.2,
        "restarts": 3,
        "warm_up": 0.1,
        "rounds": 10,
    }

    n_components: int = 128
    hidden: tuple[int, ...] = (256, 256)

    def __post_init__(self) -> None:
        check_sizes(self, n_components=1, hidden=1)

    @property
    def uses_bins(self) -> bool:
        """Numbers are moved as they are."""
        return False

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It needs numbers and squared distances."""
        return code_problem(signature, distortion)

    def fitted(self, rows: Rows, schema: Schema | ImageSchema, seeds: Seeds) -> Self:
        """With no more components than the rows have."""
        return replace(self, n_components=most_components(self.n_components, rows))

    def build(self, signature: Signature, members: int) -> "LatentCodeEncoder":
        """The network."""
        return LatentCodeEncoder(self, signature, members)


class LatentCodeEncoder(AffineTransportEncoder):
    """A code u is released as offset_s + matrix_s u + shift + deviation * (factor e), with e standard normal.

    The network maps the code, and S if it is seen, to the shift and the logarithm of the deviation of each component.
    """

    def __init__(self, architecture: LatentCode, signature: Signature, members: int) -> None:
        size = architecture.n_components
        super().__init__(architecture, signature, members, size)
        self.network = BatchedMLP(members, size + signature.sensitive_width, architecture.hidden, 2 * size)

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """The closed form, hardly changed by the network."""
        initialise(self.network, generators)
        super().initialise(generators)
        last = self.network.layers[-1]
        assert isinstance(last, BatchedLinear)
        with torch.no_grad():
            last.weight.mul_(_START)

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The expected code of each row, and the logarithm of its deviations: (members, rows, 2 m)."""
        codes = self.encode(rows)
        inputs = with_sensitive([codes], sensitive)
        shift, deviation = self.network(inputs.expand(self.members, *inputs.shape)).chunk(2, dim=-1)
        return torch.cat([self.affine(codes, sensitive) + shift, deviation], dim=-1)

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Add the noise and decode."""
        mean, deviation = proposal.chunk(2, dim=-1)
        deviation = torch.exp(deviation.clamp(-3.0, 3.0))
        drawn = mean + deviation * (noise.normal @ self.factor.transpose(-1, -2))
        power = deviation.square() * self.factor.square().sum(dim=-1).unsqueeze(1)
        return self.released(drawn, mean, power, rows)
