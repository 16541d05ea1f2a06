"""An encoder by its specification."""

from fairveil.encoders.base import Encoder, EncoderSpec
from fairveil.encoders.custom import Custom
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.gaussian import Gaussian
from fairveil.encoders.labels import Labels
from fairveil.encoders.matrix import Matrix
from fairveil.encoders.partition import Partition
from fairveil.encoders.pixels import Autoencoder, Transposed
from fairveil.encoders.transport import Transport
from fairveil.errors import InputError, must_be
from fairveil.schema import Layout

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
