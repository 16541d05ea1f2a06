"""Randomized encoders, all with a leading member dimension, and how their output is released."""

from fairveil.encoders.affine_transport import AffineTransport
from fairveil.encoders.architecture import (
    ARCHITECTURES,
    Architecture,
    Signature,
    build_encoder,
    check_architecture,
    load_encoder,
    make_architecture,
    read_architecture,
)
from fairveil.encoders.auto import choose_architecture, uses_bins
from fairveil.encoders.base import Encoder
from fairveil.encoders.classifier_head import ClassifierHead
from fairveil.encoders.custom import Custom, ModuleFactory
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.gaussian import Gaussian
from fairveil.encoders.heads import Noise, draw_noise
from fairveil.encoders.latent_code import LatentCode
from fairveil.encoders.matrix import Matrix
from fairveil.encoders.partition import BalancedPartition, Partition
from fairveil.encoders.pixels import NoisyAutoencoder, TransposedConv
from fairveil.encoders.transport import Transport
from fairveil.encoders.warm_start import WarmStart

__all__ = [
    "ARCHITECTURES",
    "AffineTransport",
    "Architecture",
    "BalancedPartition",
    "ClassifierHead",
    "Custom",
    "Encoder",
    "FeedForward",
    "Gaussian",
    "LatentCode",
    "Matrix",
    "ModuleFactory",
    "Noise",
    "NoisyAutoencoder",
    "Partition",
    "Signature",
    "Transport",
    "TransposedConv",
    "WarmStart",
    "build_encoder",
    "check_architecture",
    "choose_architecture",
    "draw_noise",
    "load_encoder",
    "make_architecture",
    "read_architecture",
    "uses_bins",
]
