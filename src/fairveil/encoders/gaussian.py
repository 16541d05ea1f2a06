"""Affine Gaussian encoders for continuous rows: X + beta + Z with Z ~ N(0, P) (Section `sec:gmm`).

P is diagonal, as in the paper (`gaussian`), or any covariance (`gaussian_full`). If the encoder sees S, each class (or
each unit of a continuous S) has a shift of its own.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fairveil._utils.errors import InputError
from fairveil.data.schema import Layout
from fairveil.encoders.base import Encoder, EncoderSpec
from fairveil.encoders.heads import START_DEVIATION, Noise, Snap
from fairveil.objectives.distortion import Release


class Gaussian(Encoder):
    """Parameters: `shift` (members, d); if it sees S, `class_shift` (members, sensitive_width, d); `factor`.

    Diagonal: factor (members, d) holds the deviations. Full: factor (members, d, d) with P = factor factor'.
    """

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        if layout.groups or not layout.numbers or layout.kept.any():
            raise InputError("architecture='gaussian' needs columns of numbers without missing values, all to be "
                             "encoded. Use 'feedforward' for mixed tables.")  # fmt: skip
        self.full = spec.architecture == "gaussian_full"
        dimension = len(layout.numbers)
        self.shift = nn.Parameter(torch.zeros(members, dimension))
        self.class_shift: nn.Parameter | None = None
        if spec.sensitive_width:
            self.class_shift = nn.Parameter(torch.zeros(members, spec.sensitive_width, dimension))
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

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """Shift, add noise, clip to the range and round to the grid."""
        shift = proposal
        moved = rows + shift
        if self.full:
            moved = moved + torch.matmul(noise.normal, self.factor.transpose(1, 2))
        else:
            moved = moved + noise.normal * self.factor.unsqueeze(1)
        if self.snaps:
            values = self.snap(moved)
            return Release(values, values[..., :0])
        # |beta|^2 + tr P (`thm:PDI`): exact, where the mean over a minibatch would be noisy.
        power = self.factor.flatten(start_dim=1).square().sum(dim=1, keepdim=True)
        squares = (shift.square().sum(dim=-1) + power).expand(moved.shape[:-1])
        return Release(moved, moved[..., :0], squares=squares)

    def covariance(self) -> Tensor:
        """The noise covariance P of each member, (members, d, d), on the schema's scale."""
        if self.full:
            return self.factor @ self.factor.transpose(1, 2)
        return torch.diag_embed(self.factor.square())

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """A little noise, no shift."""
        with torch.no_grad():
            for factor, generator in zip(self.factor, generators, strict=True):
                # Random, because a factor of zero (or a multiple of one) is a saddle point of the game.
                factor.normal_(0.0, START_DEVIATION, generator=generator)
                if self.full:
                    factor.diagonal().add_(START_DEVIATION)
                else:
                    factor.abs_().add_(START_DEVIATION)
