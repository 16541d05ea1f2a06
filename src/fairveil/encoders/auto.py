"""The default encoder for a table or images (`architecture="auto"`)."""

from collections.abc import Sequence

from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.pixels import NoisyAutoencoder
from fairveil.encoders.transport import Transport
from fairveil.objectives import Distortion

#: Minimum rows per group of S for `transport`: with fewer, its mover does not learn enough.
_FEWEST_MOVED = 500
#: Images of up to this many values use a dense network.
_MOST_DENSE = 2048


def choose_architecture(signature: Signature, distortion: Distortion, group_sizes: Sequence[int]) -> Architecture:
    """`transport` if it applies and the encoder sees two large groups; for large images the autoencoder, if it applies;
    else a dense network. group_sizes: rows of each class of S; empty if S is a number.
    """
    autoencoder, transport = NoisyAutoencoder(), Transport()
    large_images = signature.layout.shape is not None and signature.layout.width > _MOST_DENSE
    if large_images and autoencoder.problem(signature, distortion) is None:
        return autoencoder
    two_large = len(group_sizes) == 2 and min(group_sizes) >= _FEWEST_MOVED
    return transport if two_large and transport.problem(signature, distortion) is None else FeedForward()
