"""Affine Gaussian encoders for continuous rows: X + beta + Z with Z ~ N(0, P) (Section `sec:gmm`).

P is diagonal, as in the paper, or any covariance. If the encoder sees S, there is one shift per class (or per unit of a
continuous S).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.base import Encoder
from fairveil.encoders.heads import START_DEVIATION, Noise, Snap
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch


@dataclass(frozen=True)
class Gaussian(Architecture):
    """Adds a learned shift and Gaussian noise to numeric columns.

    Parameters
    ----------
    full : bool
        Whether the noise has a full covariance; otherwise it is independent across columns.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(16.0, architecture=fv.Gaussian(full=True), sees_sensitive=True)
    """

    name: ClassVar[str] = "gaussian"

    full: bool = False

    @property
    def uses_bins(self) -> bool:
        """Noise is added to the number itself."""
        return False

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It supports numbers only."""
        layout = signature.layout
        if layout.groups or not layout.numbers or layout.kept.any():
            return ("needs columns of numbers without missing values, all to be encoded. Use 'feedforward' for mixed "
                    "tables.")  # fmt: skip
        return None

    def build(self, signature: Signature, members: int) -> "GaussianEncoder":
        """Shift and noise."""
        return GaussianEncoder(self, signature, members)


class GaussianEncoder(Encoder):
    """Parameters: `shift` (members, d); if it sees S, `class_shift` (members, sensitive_width, d); `factor`.

    Diagonal: factor (members, d) holds the standard deviations. Full: factor (members, d, d) with P = factor factor'.
    """

    def __init__(self, architecture: Gaussian, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        self.full = architecture.full
        layout = self.layout
        dimension = len(layout.numbers)
        self.shift = nn.Parameter(torch.zeros(members, dimension))
        self.class_shift: nn.Parameter | None = None
        if signature.sensitive_width:
            self.class_shift = nn.Parameter(torch.zeros(members, signature.sensitive_width, dimension))
        shape = (members, dimension, dimension) if self.full else (members, dimension)
        self.factor = nn.Parameter(torch.zeros(shape))
        self.snap = Snap(layout)
        self.snaps = any(column.lower is not None or column.upper is not None or column.grid is not None
                         for column in layout.numbers)  # fmt: skip

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The shift of each row."""
        shift = self.shift.unsqueeze(1)
        if self.class_shift is not None and sensitive is not None:
            shift = shift + torch.matmul(sensitive, self.class_shift)
        return shift

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Shift, add noise, clip to the range and round to the grid."""
        shift = proposal
        moved = rows + shift
        if self.full:
            moved = moved + torch.matmul(noise.normal, self.factor.transpose(1, 2))
        else:
            moved = moved + noise.normal * self.factor.unsqueeze(1)
        if self.snaps:
            values = self.snap(moved)
            return ReleasedBatch(values, values[..., :0])
        # |beta|^2 + tr P (`thm:PDI`): exact, whereas the mean over a minibatch would be noisy.
        power = self.factor.flatten(start_dim=1).square().sum(dim=1, keepdim=True)
        squares = (shift.square().sum(dim=-1) + power).expand(moved.shape[:-1])
        return ReleasedBatch(moved, moved[..., :0], squares=squares)

    def covariance(self) -> Tensor:
        """The noise covariance P of each member, (members, d, d), on the schema's scale."""
        if self.full:
            return self.factor @ self.factor.transpose(1, 2)
        return torch.diag_embed(self.factor.square())

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Little noise, no shift."""
        with torch.no_grad():
            for factor, generator in zip(self.factor, generators, strict=True):
                # Random, because a factor of zero (or a multiple of one) is a saddle point of the game.
                factor.normal_(0.0, START_DEVIATION, generator=generator)
                if self.full:
                    factor.diagonal().add_(START_DEVIATION)
                else:
                    factor.abs_().add_(START_DEVIATION)
