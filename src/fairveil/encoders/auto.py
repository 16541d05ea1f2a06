"""The default encoder for a table or images (`architecture="auto"`), and why it was chosen."""

from collections.abc import Sequence
from dataclasses import dataclass

from fairveil.data.layout import Layout
from fairveil.encoders.affine_transport import AffineTransport
from fairveil.encoders.architecture import Architecture, Signature
from fairveil.encoders.feedforward import FeedForward
from fairveil.encoders.matrix import Matrix
from fairveil.encoders.pixels import NoisyAutoencoder
from fairveil.encoders.transport import Transport
from fairveil.objectives import Distortion

#: Minimum rows of each of two groups of S for `transport`: with fewer, its mover does not learn enough.
_FEWEST_MOVED = 100
#: Maximum slots of the columns for `transport`: the cost of drawing column after column grows with their square.
_MOST_MOVED = 2048
#: Images of up to this many values use a dense network.
_MOST_DENSE = 2048
#: Tables of at least this many numbers, and nothing else, are released as codes if the encoder sees S.
_MANY_NUMBERS = 64


def uses_bins(layout: Layout, *, sees_classes: bool) -> bool:
    """Whether the default encoder draws numbers from bins. layout: of the columns without bins."""
    return not (sees_classes and layout.all_free and len(layout.numbers) >= _MANY_NUMBERS)


@dataclass(frozen=True)
class Choice:
    """An architecture, and the reason for it in one sentence."""

    architecture: Architecture
    reason: str


def choose_architecture(
    signature: Signature, distortion: Distortion, group_sizes: Sequence[int], *, solvable: bool = False
) -> Choice:
    """For a table of few combinations of categories the exact channel. For large images and tables of many numbers,
    `affine_transport` if the encoder sees classes; for other large images the autoencoder, if it applies. For other
    tables `transport`, if it applies and S has two classes that are not small; else a dense network.

    group_sizes: rows of each class of S; empty if S is a number. solvable: whether the aim is the least I(R; S),
    without a task and without Y. The evidence for the rule is in docs/method.md.
    """
    affine, autoencoder, transport, dense = AffineTransport(), NoisyAutoencoder(), Transport(), FeedForward()
    layout = signature.layout
    exact = Matrix(exact=True)
    if solvable and distortion.custom is None and exact.problem(signature, distortion) is None:
        return Choice(exact, "the table has few combinations of categories, so that the best channel can be solved")
    if layout.shape is not None:
        if layout.width <= _MOST_DENSE:
            return Choice(dense, "images of few values")
        if affine.problem(signature, distortion) is None:
            return Choice(affine, f"images of more than {_MOST_DENSE} values, and the encoder sees S")
        if autoencoder.problem(signature, distortion) is None:
            return Choice(autoencoder, f"images of more than {_MOST_DENSE} values")
        return Choice(dense, "the autoencoder does not apply here")
    if layout.all_free and layout.width >= _MANY_NUMBERS and affine.problem(signature, distortion) is None:
        return Choice(affine, f"a table of at least {_MANY_NUMBERS} numbers, and the encoder sees S")
    why_not = _why_not_transport(signature, group_sizes)
    if why_not is None and layout.group_width > _MOST_MOVED:
        why_not = (f"the columns have {layout.group_width} categories and bins in all; transport is chosen up to "
                   f"{_MOST_MOVED}")  # fmt: skip
    if why_not is None and transport.problem(signature, distortion) is not None:
        why_not = "transport needs bins for all numbers and a distortion that adds up over columns"
    if why_not is not None:
        return Choice(dense, why_not)
    seen = "sees S, which" if signature.sensitive_width else "scores rows by S, which"
    return Choice(transport, f"the encoder {seen} has two groups of at least {_FEWEST_MOVED} rows")


def _why_not_transport(signature: Signature, group_sizes: Sequence[int]) -> str | None:
    """Why transport is not chosen for this S; None if it is."""
    if not group_sizes:
        return "S is a number; transport is chosen for two groups"
    small = [size for size in group_sizes if size < _FEWEST_MOVED]
    few = (f"; {len(small)} of them with fewer than {_FEWEST_MOVED} rows (the least: {min(small)}), which an audit "
           "can hardly judge") if small else ""  # fmt: skip
    if len(group_sizes) > 2:
        return f"S has {len(group_sizes)} groups; transport is chosen for two{few}"
    return f"a group of S has {min(small)} rows; transport needs {_FEWEST_MOVED}" if small else None
