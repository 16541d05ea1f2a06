"""VGG16 without its last layers, with weights that the caller provides: nothing is downloaded."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fairveil._utils.errors import InputError

#: The environment variable that names a file of weights, as torchvision saves them (a state dict).
WEIGHTS = "FAIRVEIL_VGG16"
_CHANNELS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_AT_ONCE = 256


def convolutions() -> nn.Sequential:
    """The thirteen convolutions with their five pooling layers (0 above), numbered as in torchvision."""
    layers: list[nn.Module] = []
    channels = 3
    for size in _CHANNELS:
        layers += [nn.Conv2d(channels, size, 3, padding=1), nn.ReLU()] if size else [nn.MaxPool2d(2)]
        channels = size or channels
    return nn.Sequential(*layers)


def vgg_features(images: NDArray[Any], weights: Path) -> NDArray[np.float32]:
    """The convolutional features of images (rows, height, width, 3): (rows, values)."""
    model = convolutions()
    try:
        # Only tensors are read, never code.
        state = torch.load(weights, map_location="cpu", weights_only=True)
        model.load_state_dict({name.removeprefix("features."): value for name, value in state.items()
                               if name.startswith("features.")})  # fmt: skip
    except Exception as error:
        raise InputError(f"{weights.name} holds no weights of VGG16 ('features.0.weight', ...).") from error
    scale = 255.0 if images.dtype == np.uint8 else 1.0
    rows = torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, 3, 1)))
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (_MEAN, _DEVIATION))
    found = []
    with torch.no_grad():
        for part in torch.split(rows, _AT_ONCE):
            found.append(model((part.float() / scale - mean) / deviation).flatten(start_dim=1))
    return np.asarray(torch.cat(found).numpy())
