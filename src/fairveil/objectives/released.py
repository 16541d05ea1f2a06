"""A batch of released rows, as drawn by an encoder."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor


@dataclass(frozen=True)
class ReleasedBatch:
    """The output of an encoder.

    drawn: (..., rows, width): exactly what is released, or a function that computes it; gradients pass straight through
        the draw. Read it as `values`.
    chances: (..., rows, group width): the distribution from which the slot of each group was drawn, or a function that
        computes it (adversaries do not need it). Read it as `probabilities`.
    possible, weights: if a release is one of a few complete rows, these rows (or a function that computes them; read
        them as `atoms`) and the probability of each, (..., rows, atoms): losses can then be averaged over the draw
        exactly. The atoms are the same for all rows, (atoms, width), or each row has its own, (atoms, rows, width).
    squares: if the encoder provides it, the expected squared change of a row's numbers without bins: (..., rows).
    code: if a release is a function of few numbers, these numbers: (..., rows, size). Read what adversaries see as
        `seen`.
    """

    drawn: Tensor | Callable[[], Tensor]
    chances: Tensor | Callable[[], Tensor]
    possible: Tensor | Callable[[], Tensor] | None = None
    weights: Tensor | None = None
    squares: Tensor | None = None
    code: Tensor | None = None

    @cached_property
    def values(self) -> Tensor:
        """What is released: (..., rows, width)."""
        return self.drawn if isinstance(self.drawn, Tensor) else self.drawn()

    @property
    def seen(self) -> Tensor:
        """What adversaries see: the code if there is one, which tells no less than the values; else the values."""
        return self.values if self.code is None else self.code

    @cached_property
    def probabilities(self) -> Tensor:
        """The distribution from which the slot of each group was drawn: (..., rows, group width)."""
        return self.chances if isinstance(self.chances, Tensor) else self.chances()

    @cached_property
    def atoms(self) -> Tensor | None:
        """The complete rows one of which is released; None if they are not few."""
        return self.possible() if callable(self.possible) else self.possible
