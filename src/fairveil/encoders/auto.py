"""The default encoder for a table or images (`architecture="auto"`), and why it was chosen."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.pixels import NoisyAutoencoder
from fairveil.encoders.transport import Transport
from fairveil.objectives import Distortion

#: Minimum rows per group of S for `transport`: with fewer, its mover does not learn enough.
_FEWEST_MOVED = 100
#: Maximum slots of the columns for `transport`: the cost of drawing column after column grows with their square.
_MOST_MOVED = 2048
#: Images of up to this many values use a dense network.
_MOST_DENSE = 2048


@dataclass(frozen=True)
class Choice:
    """An architecture, and the reason for it in one sentence."""

    architecture: Architecture
    reason: str


def choose_architecture(signature: Signature, distortion: Distortion, group_sizes: Sequence[int]) -> Choice:
    """`transport` if it applies and the encoder sees two groups that are not small; for large images the autoencoder,
    if it applies; else a dense network. group_sizes: rows of each class of S; empty if S is a number.
    """
    autoencoder, transport, dense = NoisyAutoencoder(), Transport(), FeedForward()
    if signature.layout.shape is not None:
        large = signature.layout.width > _MOST_DENSE
        if large and autoencoder.problem(signature, distortion) is None:
            return Choice(autoencoder, f"images of more than {_MOST_DENSE} values")
        return Choice(dense, "images of few values" if not large else "the autoencoder does not apply here")
    if not signature.sees_classes:
        why = "does not see S" if not signature.sensitive_width else "sees S as a number"
        return Choice(dense, f"the encoder {why}, so rows cannot be moved between groups")
    if len(group_sizes) != 2:
        return Choice(dense, f"S has {len(group_sizes)} groups; transport is chosen for two")
    if min(group_sizes) < _FEWEST_MOVED:
        return Choice(dense, f"a group of S has {min(group_sizes)} rows; transport needs {_FEWEST_MOVED}")
    if signature.layout.group_width > _MOST_MOVED:
        return Choice(dense, f"the columns have {signature.layout.group_width} categories and bins in all; transport "
                             f"is chosen up to {_MOST_MOVED}")  # fmt: skip
    if transport.problem(signature, distortion) is not None:
        return Choice(dense, "transport needs bins for all numbers and a distortion that adds up over columns")
    return Choice(transport, f"the encoder sees S, which has two groups of at least {_FEWEST_MOVED} rows")
