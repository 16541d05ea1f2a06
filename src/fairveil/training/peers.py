"""Processes that play one game together, each on its share of every minibatch (data-parallel training).

Every process has the same rows and draws the same minibatches and noise, from the same seed; it computes the networks
on its share. Gradients are averaged, and so are the means over the minibatch from which the objective is formed, which
is not a sum over rows. The game is that of one process up to rounding, except for the dropout of adversaries, which
each process draws for its own rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed
from torch import Tensor


class Peers(Protocol):
    """The processes of a game. rank: the number of this one; size: how many there are."""

    @property
    def rank(self) -> int:
        """The number of this process."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a value over all processes. Its gradient is that of this process's own value."""
        ...

    def variance(self, values: Tensor) -> Tensor:
        """The unbiased variance over the rows of all processes: (members, rows, ...) to (members, ...)."""
        ...

    def deviation(self, values: Tensor) -> Tensor:
        """The square root of the variance."""
        ...

    def averaged(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """The mean of gradients over all processes."""
        ...

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the first process."""
        ...


class Alone:
    """One process."""

    rank, size = 0, 1

    def mean(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value

    def variance(self, values: Tensor) -> Tensor:
        """The variance over rows."""
        return values.var(dim=1)

    def deviation(self, values: Tensor) -> Tensor:
        """The standard deviation over rows."""
        return values.std(dim=1)

    def averaged(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """The gradients themselves."""
        return gradients

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Do nothing."""


ALONE: Peers = Alone()


@dataclass(frozen=True)
class Group:
    """The default process group of `torch.distributed`. All shares of a minibatch have the same number of rows."""

    rank: int
    size: int

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all processes; averaging the gradients of all of them completes its gradient."""
        return value + (self._reduced(value.detach()) - value.detach())

    def variance(self, values: Tensor) -> Tensor:
        """The variance over the rows of all processes, around their common mean."""
        center = self._reduced(values.mean(dim=1))
        rows = values.shape[1] * self.size
        return self._reduced((values - center.unsqueeze(1)).square().mean(dim=1)) * (rows / (rows - 1))

    def deviation(self, values: Tensor) -> Tensor:
        """The standard deviation over the rows of all processes."""
        return self.variance(values).sqrt()

    def averaged(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        """All gradients in one message."""
        flat = self._reduced(torch.cat([gradient.flatten() for gradient in gradients]))
        pieces = torch.split(flat, [gradient.numel() for gradient in gradients])
        return [piece.view(gradient.shape) for piece, gradient in zip(pieces, gradients, strict=True)]

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Send each tensor."""
        for tensor in tensors:
            sent = tensor.detach().contiguous()
            torch.distributed.broadcast(sent, src=0)
            tensor.detach().copy_(sent)

    def _reduced(self, value: Tensor) -> Tensor:
        total = value.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total)
        return total / self.size
