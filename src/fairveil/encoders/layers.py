"""Layers whose weights have a leading member dimension: many networks as a few batched matrix products.

Dense layers take (members, rows, features), or (rows, features) for all members. Convolutions take one tensor (rows,
channels, height, width) per member: on a CPU a loop over members is as fast as grouped convolutions for many channels,
and much faster for few (`benchmarks/image_speed.py`).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Part of the names of batch-norm statistics: stored with the weights, but not trained by gradient descent.
STATISTICS = "statistics"

Shape = tuple[int, int, int]
#: A layer of an image network: an integer (dense), or "conv20": a 3 x 3 convolution with 20 filters, then pooling.
Layer = int | str


class Layered(nn.Module):
    """A layer with `weight` (members, ...) and `bias`. inputs: the fan-in of a unit."""

    weight: nn.Parameter
    bias: nn.Parameter
    inputs: int

    def draw(self, generators: Sequence[torch.Generator], scale: float) -> None:
        """He initialisation; member i draws from generators[i], so it does not depend on the other members."""
        spread = scale * math.sqrt(2.0 / self.inputs)
        with torch.no_grad():
            for weight, generator in zip(self.weight, generators, strict=True):
                # Drawn on the generator's device, then moved: the weights may be on another device.
                weight.copy_(torch.empty(weight.shape).normal_(0.0, spread, generator=generator))
            self.bias.zero_()


class BatchedLinear(Layered):
    """One affine map per member: (members, rows, inputs) or (rows, inputs) to (members, rows, outputs)."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inputs = inputs
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Apply each member's map; a two-dimensional input is shared by all members."""
        if x.dim() == 3 and x.stride(2) == 1:
            # A row's features are contiguous, as for images: in this order the gradients of these large weights need no
            # transposed copy.
            return torch.baddbmm(self.bias, x, self.weight)
        # Rows are contiguous in memory (see `grouped_ops`); the matrix product handles both orders equally well.
        if x.dim() == 2:
            # Shared input: one wide product instead of a copy of the input for each member.
            members, _, outputs = self.weight.shape
            bias, weight = self.bias.reshape(-1, 1), self.weight.transpose(1, 2).flatten(end_dim=1)
            return torch.addmm(bias, weight, x.t()).view(members, outputs, -1).transpose(-1, -2)
        transposed = [t.transpose(-1, -2) for t in (self.bias, self.weight, x)]
        return torch.baddbmm(*transposed).transpose(-1, -2)


class BatchedConv(Layered):
    """One 3 x 3 convolution per member. up: transposed, with stride 2, which doubles height and width."""

    def __init__(self, members: int, inputs: int, outputs: int, *, up: bool = False) -> None:
        super().__init__()
        self.up = up
        self.inputs = 9 * inputs // (4 if up else 1)
        channels = (inputs, outputs) if up else (outputs, inputs)
        self.weight = nn.Parameter(torch.empty(members, *channels, 3, 3))
        self.bias = nn.Parameter(torch.zeros(members, outputs))

    def forward(self, images: Sequence[Tensor]) -> list[Tensor]:
        """Apply each member's filters to its images."""
        each = zip(images, self.weight, self.bias, strict=True)
        if self.up:
            return [F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1) for x, w, b in each]
        # With one channel both layouts look alike and torch picks the other, in which pooling is seven times slower.
        made = (F.conv2d(x, w, b, padding=1) for x, w, b in each)
        return [image.contiguous(memory_format=torch.channels_last) for image in made]


class BatchedNorm(nn.Module):
    """Batch norm per member, for dense features or channels.

    Uses the minibatch in training, which holds all groups; otherwise running statistics, so that no group is ever
    normalised separately.
    """

    def __init__(self, members: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, features))
        self.bias = nn.Parameter(torch.zeros(members, features))
        self.statistics_mean = nn.Parameter(torch.zeros(members, features), requires_grad=False)
        self.statistics_variance = nn.Parameter(torch.ones(members, features), requires_grad=False)

    def forward(self, images: Sequence[Tensor]) -> list[Tensor]:
        """Normalise each member's (rows, channels, height, width)."""
        each = zip(images, self.statistics_mean.data, self.statistics_variance.data, self.weight, self.bias,
                   strict=True)  # fmt: skip
        return [F.batch_norm(x, m, v, w, b, self.training) for x, m, v, w, b in each]

    def dense(self, x: Tensor) -> Tensor:
        """Normalise (members, rows, features), all members at once: each feature of a member is a separate channel."""
        # For tables, rows are contiguous in memory: transposing copies nothing.
        channels = x.transpose(1, 2)
        mean, variance = self.statistics_mean.data.view(-1), self.statistics_variance.data.view(-1)
        weight, bias = self.weight.flatten(), self.bias.flatten()
        made = F.batch_norm(channels.reshape(1, -1, x.shape[1]), mean, variance, weight, bias, self.training)
        return made.view(channels.shape).transpose(1, 2)

    def draw(self) -> None:
        """Reset."""
        with torch.no_grad():
            for ones in (self.weight, self.statistics_variance):
                ones.fill_(1.0)
            for zeros in (self.bias, self.statistics_mean):
                zeros.zero_()


class BatchedMLP(nn.Module):
    """One leaky-ReLU network per member; normalise: batch norm before each activation of the hidden layers."""

    def __init__(
        self, members: int, inputs: int, hidden: Sequence[int], outputs: int, *, normalise: bool = False
    ) -> None:
        super().__init__()
        sizes = [inputs, *hidden, outputs]
        self.layers = nn.ModuleList(BatchedLinear(members, a, b) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(BatchedNorm(members, size) for size in hidden) if normalise else None

    def forward(self, x: Tensor) -> Tensor:
        """Raw outputs (members, rows, outputs)."""
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            if self.norms is not None:
                norm = self.norms[i]
                assert isinstance(norm, BatchedNorm)
                x = norm.dense(x)
            x = F.leaky_relu(x, 0.01)
        out: Tensor = self.layers[-1](x)
        return out


class BatchedCNN(nn.Module):
    """Convolutions of images, each with ReLU and 2 x 2 max pooling, then dense layers."""

    def __init__(
        self, members: int, shape: Shape, layers: Sequence[Layer], outputs: int, *, normalise: bool = False
    ) -> None:
        super().__init__()
        self.shape, self.members = shape, members
        channels, height, width = shape
        filters = [int(layer.removeprefix("conv")) for layer in layers if isinstance(layer, str)]
        hidden = [layer for layer in layers if isinstance(layer, int)]
        self.convolutions = nn.ModuleList(BatchedConv(members, a, b) for a, b in pairwise([channels, *filters]))
        self.norms = nn.ModuleList(BatchedNorm(members, size) for size in filters) if normalise else None
        self.pools = []
        for _ in filters:  # a single pixel is not pooled further
            self.pools.append(min(height, width) >= 2)
            height, width = (height // 2, width // 2) if self.pools[-1] else (height, width)
        last = filters[-1] if filters else channels
        self.dense = BatchedMLP(members, last * height * width, hidden, outputs, normalise=normalise)

    def forward(self, x: Tensor) -> Tensor:
        """Raw outputs (members, rows, outputs) for flat images, (members, rows, pixels) or (rows, pixels) for all."""
        images = as_images(x, self.shape, self.members)
        for i, convolution in enumerate(self.convolutions):
            if self.norms is None:
                images = activated(convolution(images), pool=self.pools[i])
                continue
            images = self.norms[i](activated(convolution(images), pool=False))  # after the activation, as in the paper
            if self.pools[i]:
                images = [F.max_pool2d(image, 2) for image in images]
        out: Tensor = self.dense(as_rows(images))
        return out


def activated(images: Sequence[Tensor], *, pool: bool) -> list[Tensor]:
    """2 x 2 max pooling, then ReLU: the same values as in the reverse order, at a quarter of the cost."""
    return [F.relu(F.max_pool2d(image, 2) if pool else image) for image in images]


def as_images(x: Tensor, shape: Shape, members: int) -> list[Tensor]:
    """Flat images, (members, rows, pixels) or (rows, pixels) for all members, as one tensor per member."""
    each = x.expand(members, *x.shape[-2:]).unbind()
    if x.dim() == 2:
        shared = _image(x, shape)
        return [shared] * members
    return [_image(rows, shape) for rows in each]


def _image(rows: Tensor, shape: Shape) -> Tensor:
    return rows.reshape(-1, *shape).contiguous(memory_format=torch.channels_last)


def as_rows(images: Sequence[Tensor]) -> Tensor:
    """The inverse of `as_images`: (members, rows, values)."""
    return torch.stack([image.flatten(start_dim=1) for image in images])


def initialise(module: nn.Module, generators: Sequence[torch.Generator], last_scale: float = 1.0) -> None:
    """Draw the initial weights of every layer; member i draws from generators[i].

    `last_scale` scales the last layer of each BatchedMLP: small for networks whose output is a correction.
    """
    last = [m.layers[-1] for m in module.modules() if isinstance(m, BatchedMLP)]
    for layer in module.modules():
        if isinstance(layer, Layered):
            layer.draw(generators, last_scale if any(layer is end for end in last) else 1.0)
        elif isinstance(layer, BatchedNorm):
            layer.draw()
