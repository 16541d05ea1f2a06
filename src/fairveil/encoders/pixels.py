"""Encoders for images: a network proposes an image, and the release is drawn around it.

`TransposedConv` (TCNND) generates a mask from noise and adds it to the image. `NoisyAutoencoder` (NAED) compresses the
image to a code, mixes it with noise and decodes an image.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairveil._utils.errors import InputError, must_be
from fairveil.encoders.architecture import Architecture, Signature, check_sizes
from fairveil.encoders.base import Encoder, with_sensitive
from fairveil.encoders.heads import START_DEVIATION, Noise, Snap
from fairveil.encoders.layers import BatchedConv, BatchedLinear, BatchedNorm, activated, as_images, as_rows, initialise
from fairveil.encoders.reconstruction import learn_to_reconstruct
from fairveil.encoders.warm_start import WarmStart
from fairveil.objectives import Distortion
from fairveil.objectives.released import ReleasedBatch

#: Scale of the random weights of the autoencoder's dense layers, which are added to the identity.
_START_MIXING = 0.1
#: Minibatch size for pretraining the autoencoder: it needs many steps rather than many rows, and convolutions are slow.
_PRETRAINING_BATCH = 16
_NOT_IMAGES = "is for images: an array (rows, height, width[, channels]) or a folder. Use 'feedforward' for tables."


@dataclass(frozen=True)
class TransposedConv(Architecture):
    """TCNND: noise to a small feature map, two transposed convolutions, tanh: a mask that is added to the image.

    The mask does not depend on the image (though it may depend on S), so it is weaker than a dense network.

    Parameters
    ----------
    channels : tuple of two int
        Channels of the feature map and of the first transposed convolution.
    noise_dim : int
        Number of normal variables from which the mask is generated.
    normalise : bool
        Batch norm.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(3.0, architecture=fv.TransposedConv(channels=(128, 64)))
    """

    name: ClassVar[str] = "transposed_conv"
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 1500,
        "batch_size": 256,
        "learning_rate": 1e-3,
        "adversary_learning_rate": 1e-3,
        "adversary_hidden": (("conv32", "conv64", 256),),
    }

    channels: tuple[int, ...] = (256, 128)
    noise_dim: int = 100
    normalise: bool = False

    def __post_init__(self) -> None:
        check_sizes(self, channels=1, noise_dim=1)
        if len(self.channels) != 2:
            raise InputError(must_be("TransposedConv", "channels", "two whole numbers", self.channels))

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It needs images."""
        return _NOT_IMAGES if signature.layout.shape is None else None

    def build(self, signature: Signature, members: int) -> "TransposedConvEncoder":
        """The network."""
        return TransposedConvEncoder(self, signature, members)


@dataclass(frozen=True)
class NoisyAutoencoder(Architecture):
    """NAED: four convolutions with pooling to a code, two dense layers that mix it with noise, an up-sampling decoder.

    It must be pretrained to reconstruct images before the game.

    Parameters
    ----------
    channels : tuple of four int
        Channels of the convolutions; the decoder mirrors them.
    noise_dim : int
        Number of normal variables mixed with the code.

    Examples
    --------
    >>> import fairveil as fv
    >>> encoder = fv.FairEncoder(100.0, architecture=fv.NoisyAutoencoder(noise_dim=128))
    """

    name: ClassVar[str] = "noisy_autoencoder"
    training: ClassVar[Mapping[str, Any]] = {
        "steps": 1500,
        "batch_size": 64,
        "learning_rate": 3e-4,
        "adversary_learning_rate": 1e-3,
        "adversary_hidden": (("conv20", "conv40", 40),),
    }

    channels: tuple[int, ...] = (128, 64, 64, 64)
    noise_dim: int = 256

    def __post_init__(self) -> None:
        check_sizes(self, channels=1, noise_dim=0)
        if len(self.channels) != 4:
            raise InputError(must_be("NoisyAutoencoder", "channels", "four whole numbers", self.channels))

    def problem(self, signature: Signature, distortion: Distortion | None = None) -> str | None:
        """It needs images that can be halved three times."""
        shape = signature.layout.shape
        if shape is None:
            return _NOT_IMAGES
        if shape[1] % 8 or shape[2] % 8:
            return "needs images whose height and width are multiples of 8. Resize them, or use 'feedforward'."
        return None

    def build(self, signature: Signature, members: int) -> "NoisyAutoencoderEncoder":
        """The network."""
        return NoisyAutoencoderEncoder(self, signature, members)


class PixelEncoder(Encoder):
    """Common to both: the draw around a proposed image.

    Sampled: Gaussian noise with a small learned deviation, then rounding to multiples of 1/255 in [0, 1], so that
    nothing can hide in the last digits of a pixel. Probabilities: the network's real-valued output, as in the paper.
    """

    def __init__(self, architecture: Architecture, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        assert self.layout.shape is not None
        self.shape = self.layout.shape
        self.snap = Snap(self.layout)
        self.spread = nn.Parameter(torch.zeros(members, 1, 1)) if signature.sampled else None

    def draw(self, proposal: Tensor, rows: Tensor, noise: Noise) -> ReleasedBatch:
        """Draw around the proposed image."""
        if self.spread is None:
            return ReleasedBatch(proposal, proposal[..., :0])
        deviation = START_DEVIATION * torch.exp(self.spread.clamp(-6.0, 6.0))
        values = self.snap(proposal + deviation * noise.normal)
        return ReleasedBatch(values, values[..., :0])

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """Initialise all layers."""
        initialise(self, generators)
        if self.spread is not None:
            nn.init.zeros_(self.spread)


class TransposedConvEncoder(PixelEncoder):
    """A mask from noise, added to the image."""

    def __init__(self, architecture: TransposedConv, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        self.noise_dim = architecture.noise_dim
        colours, height, width = self.shape
        first, second = architecture.channels
        self.start = (first, math.ceil(height / 4), math.ceil(width / 4))
        self.project = BatchedLinear(members, self.noise_dim + signature.sensitive_width, math.prod(self.start))
        self.layers = nn.ModuleList(BatchedConv(members, a, b, up=True) for a, b in pairwise([first, second, colours]))
        self.norms = None
        if architecture.normalise:
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
        """A faint mask initially."""
        super().initialise(generators)
        with torch.no_grad():
            last = self.layers[-1]
            assert isinstance(last, BatchedConv)
            last.weight.mul_(0.1)


class NoisyAutoencoderEncoder(PixelEncoder):
    """Generates an image from the image's code and noise."""

    def __init__(self, architecture: NoisyAutoencoder, signature: Signature, members: int) -> None:
        super().__init__(architecture, signature, members)
        self.noise_dim = architecture.noise_dim
        colours, height, width = self.shape
        channels = architecture.channels
        self.inner = (channels[-1], height // 8, width // 8)
        code = math.prod(self.inner)
        self.encode = nn.ModuleList(BatchedConv(members, a, b) for a, b in pairwise([colours, *channels]))
        self.mix = nn.ModuleList([
            BatchedLinear(members, code + self.noise_dim + signature.sensitive_width, code),
            BatchedLinear(members, code, code),
        ])  # fmt: skip
        back = [channels[-1], *reversed(channels), colours]
        self.decode = nn.ModuleList(BatchedConv(members, a, b) for a, b in pairwise(back))

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """The decoder's output."""
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
        """Initially the code passes through with little noise: from a random mixture, training takes far longer."""
        super().initialise(generators)
        with torch.no_grad():
            for layer in self.mix:
                assert isinstance(layer, BatchedLinear)
                layer.weight.mul_(_START_MIXING)
                layer.weight[:, : layer.weight.shape[2]] += torch.eye(layer.weight.shape[2], device=layer.weight.device)

    def warm_start(self, start: WarmStart) -> None:
        """Learn to reconstruct."""
        learn_to_reconstruct(self, start, _PRETRAINING_BATCH)
