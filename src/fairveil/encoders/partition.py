"""A partition of the space of rows for each group of S: who is released as which of K records.

For K records that may be released, the channel P(z | x, s) that minimises I(S; Z) + lambda E d(x, z) is known but for K
numbers a group: the problem is convex, and its first-order condition says that a row goes where
d(x, z) + log(P(z | s) / P(z)) / lambda is least. So every group has its own power diagram of the same records: each
record is near or far by the distortion, less a potential of the record and the group. The potentials are all that there
is to learn, whatever the number of columns; with those of optimal transport all groups are released alike. (This is for
one bound on the whole distortion; with one for each kind of column it is a good channel, not the best.)
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fairveil._utils.errors import InputError
from fairveil.data.schema import Layout
from fairveil.encoders.base import EncoderSpec
from fairveil.encoders.heads import Noise
from fairveil.encoders.matrix import Finite

#: How soft the borders are, in units of the distance between neighbouring records: sharp ones have no gradient.
_BORDER = 0.05


class Partition(Finite):
    """`potentials` (members, classes of S, cells), in units of the distance between neighbouring records."""

    unit: Tensor

    def __init__(self, layout: Layout, spec: EncoderSpec, members: int) -> None:
        problem = _problem(layout, spec)
        if problem:
            raise InputError(f"architecture='partition' {problem}")
        super().__init__(layout, spec, members, torch.tensor(spec.cells, dtype=torch.float32))
        apart = self.distances(self.table).fill_diagonal_(float("inf")).amin(dim=1)
        self.register_buffer("unit", apart.mean(), persistent=False)
        self.potentials = nn.Parameter(torch.zeros(members, spec.sensitive_width, self.cells))

    def propose(self, rows: Tensor, sensitive: Tensor | None, noise: Noise) -> Tensor:
        """How near each record is: logits (members, rows, cells)."""
        assert sensitive is not None
        near = self.distances(rows) / self.unit
        return (self.potentials[:, sensitive.argmax(dim=-1)] - near) / _BORDER

    def initialise(self, generators: Sequence[torch.Generator]) -> None:
        """The nearest record, whatever the group."""
        nn.init.zeros_(self.potentials)

    @torch.no_grad()
    def potentials_of(self, rows: Tensor, wanted: Tensor, rounds: int) -> Tensor:
        """Potentials with which these rows fall into the cells with the wanted shares: (cells,).

        Entropic optimal transport (Sinkhorn's rounds) of the rows, all alike, to the records with these shares.
        """
        near = -(self.distances(rows) / self.unit / _BORDER).cpu().double()  # not every device has doubles
        aim = wanted.cpu().double().log()
        found = torch.zeros_like(aim)
        for _ in range(rounds):
            found += aim - (near + found).log_softmax(dim=1).logsumexp(dim=0) + math.log(len(rows))
        return (_BORDER * (found - found.mean())).to(rows)


def _problem(layout: Layout, spec: EncoderSpec) -> str | None:
    """Why these rows cannot be divided, and what to do."""
    if not spec.cells:
        return "needs to know how many records there are to be: cells=K."
    if layout.kept.any():
        return "releases whole rows, so all columns must be encoded. Use 'feedforward'."
    if spec.sensitive_width == 0 or not spec.sensitive_discrete:
        return "divides each group of S in its own way, so it needs sees_sensitive=True and an S of classes."
    if spec.release != "sampled":
        return "releases draws, so it needs release='sampled'."
    return None
