"""Which encoder suits a table or images, where the caller leaves it open (`architecture="auto"`)."""

from collections.abc import Sequence

from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.pixels import NoisyAutoencoder
from fairveil.encoders.transport import Transport
from fairveil.objectives import Distortion

#: Rows that every group of S must have for `transport`: fewer do not teach its mover.
_FEWEST_MOVED = 500
#: Pixels up to which images go through a dense network.
_MOST_DENSE = 2048


def choose_architecture(signature: Signature, distortion: Distortion, group_sizes: Sequence[int]) -> Architecture:
    """`transport` where the encoder sees two large groups and can move them; for large images the autoencoder that fits
    them; else a dense network. group_sizes: rows of each class of S; empty if S is a number.
    """
    autoencoder, transport = NoisyAutoencoder(), Transport()
    large_images = signature.layout.shape is not None and signature.layout.width > _MOST_DENSE
    if large_images and autoencoder.problem(signature, distortion) is None:
        return autoencoder
    two_large = len(group_sizes) == 2 and min(group_sizes) >= _FEWEST_MOVED
    return transport if two_large and transport.problem(signature, distortion) is None else FeedForward()
