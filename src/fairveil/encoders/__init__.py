"""Randomized encoders, all with a leading member dimension, and how their output is released."""

from fairveil.encoders.base import Encoder, EncoderSpec
from fairveil.encoders.build import ARCHITECTURES, build_encoder, load_encoder
from fairveil.encoders.codebook import learn_cells
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.gaussian import Gaussian
from fairveil.encoders.heads import Noise, draw_noise
from fairveil.encoders.matrix import Finite, Matrix
from fairveil.encoders.partition import Partition
from fairveil.encoders.pixels import Autoencoder, Transposed
from fairveil.encoders.transport import Transport, why_no_transport

__all__ = [
    "ARCHITECTURES",
    "Autoencoder",
    "Encoder",
    "EncoderSpec",
    "FeedForward",
    "Finite",
    "Gaussian",
    "Matrix",
    "Noise",
    "Partition",
    "Transport",
    "Transposed",
    "build_encoder",
    "draw_noise",
    "learn_cells",
    "load_encoder",
    "why_no_transport",
]
