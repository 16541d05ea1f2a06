"""Encoders of images: a network proposes an image, and the release is drawn around it.

`transposed` (TCNND) makes a mask from noise and adds it to the image. `autoencoder` (NAED) squeezes the image to a
code, mixes it with noise and draws an image from that.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairveil._utils.errors import InputError
from fairveil.data.schema import Layout
from fairveil.encoders.base import Encoder, EncoderSpec, with_sensitive
from fairveil.encoders.heads import START_DEVIATION, Noise, Snap
from fairveil.encoders.layers import BatchedConv, BatchedLinear, BatchedNorm, activated, as_images, as_rows, initialise
from fairveil.objectives.distortion import Release

#: How much of a random mixture the dense layers of the autoencoder start with, beside the code as it is.
_START_MIXING = 0.1


class PixelEncoder(Encoder):
    """What both share: the draw around a proposed image.

    Sampled: a little Gaussian noise of a learned deviation, then whole multiples of 1/255 in [0, 1], so that nothing
    can hide in the last digits of a pixel. Probabilities: the network's real numbers, as in the paper.
    """

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        if layout.shape is None:
            raise InputError(f"architecture={spec.architecture!r} is for images: an array (rows, height, width"
                             "[, channels]) or a folder. Use 'feedforward' for tables.")  # fmt: skip
        self.shape = layout.shape
        self.snap = Snap(layout)
        self.spread = nn.Parameter(torch.zeros(members, 1, 1)) if spec.release == "sampled" else None

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> Release:
        """Draw around the proposed image."""
        if self.spread is None:
            return Release(proposal, proposal[..., :0])
        deviation = START_DEVIATION * torch.exp(self.spread.clamp(-6.0, 6.0))
        values = self.snap(proposal + deviation * noise.normal)
        return Release(values, values[..., :0])

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Draw all layers."""
        initialise(self, generators)
        if self.spread is not None:
            nn.init.zeros_(self.spread)


class Transposed(PixelEncoder):
    """TCNND: noise to a small feature map, two transposed convolutions, tanh: a mask that is added to the image.

    The mask does not know the image (though it may know S), which is what makes it weaker than a dense network.
    spec.hidden: channels of the feature map and of the first transposed convolution, (256, 128) in the paper.
    """

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        channels, height, width = self.shape
        if len(spec.hidden) != 2 or not spec.noise_dim:
            raise InputError("architecture='transposed' needs Training(hidden=(a, b), noise_dim=n): channels of its "
                             "feature map and of its first layer, and noise to start from.")  # fmt: skip
        first, second = spec.hidden
        self.start = (first, math.ceil(height / 4), math.ceil(width / 4))
        self.project = BatchedLinear(members, spec.noise_dim + spec.sensitive_width, math.prod(self.start))
        self.layers = nn.ModuleList(BatchedConv(members, a, b, up=True) for a, b in pairwise([*spec.hidden, channels]))
        self.norms = None
        if spec.normalise:
            self.norms = nn.ModuleList(BatchedNorm(members, size) for size in (first, second))

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The image with its mask."""
        maps = as_images(self.project(with_sensitive([noise.inputs], sensitive)), self.start, self.members)
        for i, layer in enumerate(self.layers):
            if self.norms is not None:
                maps = self.norms[i](maps)
            maps = layer([F.relu(x) for x in maps])
        _, height, width = self.shape
        mask = torch.tanh(as_rows([x[..., :height, :width] for x in maps]))
        return rows + mask

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """A faint mask at first."""
        super().initialise(generators)
        with torch.no_grad():
            last = self.layers[-1]
            assert isinstance(last, BatchedConv)
            last.weight.mul_(0.1)


class Autoencoder(PixelEncoder):
    """NAED: four convolutions with pooling to a code, two dense layers that mix it with noise, and back by up-sampling.

    spec.hidden: channels of the four convolutions, (128, 64, 64, 64) in the paper; the way back is their mirror. It
    has to learn to draw at all before it can play: see `fairveil.training.teaching`.
    """

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        super().__init__(layout, spec, members)
        channels, height, width = self.shape
        if len(spec.hidden) != 4 or height % 8 or width % 8:
            raise InputError("architecture='autoencoder' needs images whose height and width are multiples of 8, and "
                             "Training(hidden=...) of four numbers: the channels of its convolutions.")  # fmt: skip
        self.inner = (spec.hidden[-1], height // 8, width // 8)
        code = math.prod(self.inner)
        self.encode = nn.ModuleList(BatchedConv(members, a, b) for a, b in pairwise([channels, *spec.hidden]))
        self.mix = nn.ModuleList([
            BatchedLinear(members, code + spec.noise_dim + spec.sensitive_width, code),
            BatchedLinear(members, code, code),
        ])  # fmt: skip
        back = [spec.hidden[-1], *reversed(spec.hidden), channels]
        self.decode = nn.ModuleList(BatchedConv(members, a, b) for a, b in pairwise(back))

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The image that the decoder draws."""
        maps = as_images(rows, self.shape, self.members)
        for i, layer in enumerate(self.encode):
            maps = activated(layer(maps), pool=i < 3)
        beside = with_sensitive([noise.inputs], sensitive)
        code = torch.cat([as_rows(maps), beside.expand(self.members, *beside.shape)], dim=-1)
        for mixing in self.mix:
            code = F.relu(mixing(code))
        maps = as_images(code, self.inner, self.members)
        for i, layer in enumerate(self.decode):
            maps = layer(maps)
            if i < len(self.decode) - 1:
                maps = activated(maps, pool=False)
            if i < 3:
                maps = [F.interpolate(x, scale_factor=2, mode="nearest") for x in maps]
        return torch.sigmoid(as_rows(maps))

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """The code passes at first, with little noise: from a random mixture it takes far longer to learn to draw."""
        super().initialise(generators)
        with torch.no_grad():
            for layer in self.mix:
                assert isinstance(layer, BatchedLinear)
                layer.weight.mul_(_START_MIXING)
                layer.weight[:, : layer.weight.shape[2]] += torch.eye(layer.weight.shape[2], device=layer.weight.device)
