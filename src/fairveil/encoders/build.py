"""An encoder by its specification."""

import torch
from torch import Tensor

from fairveil._utils.errors import InputError, must_be
from fairveil.data.schema import Layout
from fairveil.encoders.base import Encoder, EncoderSpec
from fairveil.encoders.classifier_head import Labels
from fairveil.encoders.custom import Custom
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.gaussian import Gaussian
from fairveil.encoders.matrix import Matrix
from fairveil.encoders.partition import Partition
from fairveil.encoders.pixels import Autoencoder, Transposed
from fairveil.encoders.transport import Transport

#: Constants of a network (where bins begin, and the like) beside its weights, when it is read from a file.
_MOST_CONSTANTS, _CONSTANTS_PER_WEIGHT = 2**24, 32

ARCHITECTURES: dict[str, type[Encoder]] = {
    "autoencoder": Autoencoder,
    "feedforward": FeedForward,
    "gaussian": Gaussian,
    "gaussian_full": Gaussian,
    "matrix": Matrix,
    "partition": Partition,
    "transport": Transport,
    "transposed": Transposed,
}


def build_encoder(layout: Layout, spec: EncoderSpec, members: int = 1) -> Encoder:
    """Build the network; its weights are drawn by `initialise` or loaded."""
    if spec.release not in ("sampled", "probabilities"):
        raise InputError(must_be("FairEncoder", "release", "'sampled' or 'probabilities'", spec.release))
    if spec.scores:  # not an architecture by name: no one can ask a FairEncoder for it
        return Labels(layout, spec, members)
    if isinstance(spec.architecture, str) and spec.architecture in ARCHITECTURES:
        return ARCHITECTURES[spec.architecture](layout, spec, members)
    if callable(spec.architecture):
        return Custom(layout, spec, members)
    expected = (
        f"one of {', '.join(map(repr, ARCHITECTURES))}, a torch module, or a callable f(inputs, outputs) that makes one"
    )
    raise InputError(must_be("FairEncoder", "architecture", expected, spec.architecture))


def load_encoder(layout: Layout, spec: EncoderSpec, weights: dict[str, Tensor]) -> Encoder:
    """Build an encoder of one member from weights that were read from a file.

    A few bytes can describe a network of any size, so it is built without memory first, and compared with the weights
    that are there. Raises ValueError where they do not fit.
    """
    with torch.device("meta"):
        outline = build_encoder(layout, spec, 1)
    shapes = {name: tuple(parameter.shape) for name, parameter in outline.named_parameters()}
    if shapes != {name: tuple(weight.shape) for name, weight in weights.items()}:
        raise ValueError("the weights do not have the shapes of the network")
    if not all(weight.dtype == torch.float32 and bool(torch.isfinite(weight).all()) for weight in weights.values()):
        raise ValueError("the weights are not finite numbers in single precision")
    own = sum(weight.numel() for weight in weights.values())
    if sum(buffer.numel() for buffer in outline.buffers()) > _MOST_CONSTANTS + _CONSTANTS_PER_WEIGHT * own:
        raise ValueError("the network needs far more memory than its weights")
    encoder = build_encoder(layout, spec, 1)
    encoder.load_state_dict(weights)
    return encoder
