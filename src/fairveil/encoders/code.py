"""Rows as codes: principal components, moved and noised, and decoded again.

A release is a function of its code, so that adversaries who see the code see all of it; they are small dense networks,
and the rows are decoded only to be released. Components are orthonormal: the squared distance of a release is that of
the codes plus what the components leave out.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fairveil._utils.components import MOST_ROWS, Components
from fairveil._utils.randomness import RandomSource, Seeds
from fairveil.data.rows import Rows
from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.base import Encoder
from fairveil.encoders.heads import Noise, Snap, draw_noise
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch


def code_problem(signature: Signature, distortion: Distortion | None) -> str | None:
    """Why rows cannot be released as codes; None if they can."""
    layout = signature.layout
    if layout.groups or not layout.numbers or layout.kept.any():
        return ("needs columns of numbers without missing values, all to be encoded, or images. Use 'feedforward' for "
                "mixed tables.")  # fmt: skip
    if not signature.sampled:
        return "releases draws, so it needs release='sampled'."
    if distortion is not None and not distortion.is_weighted_square:
        return "measures squared distances: use distortion='auto' or 'squared'."
    return None


def most_components(wanted: int, rows: Rows) -> int:
    """The number of components that these rows can have."""
    return max(1, min(wanted, len(rows) - 1, rows.x.shape[1]))


class CodeEncoder(Encoder):
    """Releases decoded codes. `shared_center` (width,), `shared_axes` (width, m), `shared_scale` (m,): the components,
    and the standard deviation of each; a code is measured in these units.

    Subclasses propose the mean of each row's code, and draw around it.
    """

    shared = "shared"

    def __init__(self, architecture: Architecture, signature: Signature, members: int, components: int) -> None:
        super().__init__(architecture, signature, members)
        width = self.layout.width
        self.components = components
        self.shared_center = nn.Parameter(torch.zeros(width))
        self.shared_axes = nn.Parameter(torch.zeros(width, components))
        self.shared_scale = nn.Parameter(torch.ones(components))
        self.snap = Snap(self.layout)

    @property
    def released_width(self) -> int:
        """Adversaries see the code."""
        return self.components

    def noise(self, rows: int, source: RandomSource) -> Noise:
        """One normal variable per component."""
        return draw_noise(rows, self.noise_dim, 0, self.components, 0, source)

    def encode(self, rows: Tensor) -> Tensor:
        """The codes of rows: (rows, m)."""
        return (rows - self.shared_center) @ self.shared_axes / self.shared_scale

    def decode(self, codes: Tensor) -> Tensor:
        """Valid rows with these codes: clipped to their range and rounded to their grid."""
        rows: Tensor = self.snap(self.shared_center + (codes * self.shared_scale) @ self.shared_axes.T)
        return rows

    def left_out(self, rows: Tensor) -> Tensor:
        """The squared distance of each row from what its code can express, and of rounding: (rows,)."""
        apart = rows - self.shared_center
        rest = apart.square().sum(dim=-1) - (apart @ self.shared_axes).square().sum(dim=-1)
        return rest.clamp_min(0.0) + self.snap.step.square().sum() / 12

    def released(self, drawn: Tensor, mean: Tensor, power: Tensor, rows: Tensor) -> ReleasedBatch:
        """A release from drawn codes. mean, power: the expected code of each row, and the variances around it."""
        moved = (mean - self.encode(rows)) * self.shared_scale
        squares = moved.square().sum(dim=-1) + (power * self.shared_scale.square()).sum(dim=-1) + self.left_out(rows)
        return ReleasedBatch(lambda: self.decode(drawn), drawn[..., :0], squares=squares, code=drawn)

    @torch.no_grad()
    def learn_components(self, train: Rows, seeds: Seeds) -> None:
        """Learn the components from training rows, without S."""
        some = torch.randperm(len(train), generator=seeds.torch())[:MOST_ROWS].to(train.x.device)
        found = Components.of(train.take(some).unpacked().x.cpu().numpy(), self.components, seeds.number())
        self.shared_center.copy_(torch.from_numpy(found.center))
        self.shared_axes.copy_(torch.from_numpy(found.axes))
        self.shared_scale.fill_(1.0)
        codes = self.codes(train)
        self.shared_scale.copy_(codes.std(dim=0).clamp_min(1e-6 * float(codes.std()) + 1e-12))

    @torch.no_grad()
    def codes(self, rows: Rows) -> Tensor:
        """The codes of all rows, in chunks: (rows, m)."""
        return self._each(rows, self.encode)

    @torch.no_grad()
    def costs(self, rows: Rows) -> Tensor:
        """What is left out of all rows: (rows,)."""
        return self._each(rows, self.left_out)

    @torch.no_grad()
    def distances(self, rows: Rows, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Squared distances of all rows from one release, and their expectation over draws: (members, rows) each.

        The expectation is exact but for clipping and rounding, which one draw measures.
        """
        drawn, expected = [], []
        for piece in rows.pieces():
            release = self(piece.x, piece.sensitive, self.noise(len(piece), generator))
            assert release.squares is not None
            real = (release.values - piece.x).square().sum(dim=-1)
            moved = ((release.seen - self.encode(piece.x)) * self.shared_scale).square().sum(dim=-1)
            clipped = real - moved - self.left_out(piece.x)
            drawn.append(real.cpu().double())
            expected.append((release.squares + clipped).cpu().double())
        return torch.cat(drawn, dim=1), torch.cat(expected, dim=1)

    def _each(self, rows: Rows, function: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.cat([function(piece.x) for piece in rows.pieces()])
