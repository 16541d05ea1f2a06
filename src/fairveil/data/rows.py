"""Rows as tensors, with their sensitive values, tasks and weights: the training data of encoders."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairveil._utils.weights import systematic_resample
from fairveil.data.images import rows_at_once, unpack


@dataclass(frozen=True)
class Rows:
    """Training rows as tensors.

    x: (rows, width); bytes for images. sensitive: (rows, K), the input of an encoder that sees S. secrets: the targets
    of adversaries, one tensor per target (the joint value first). tasks: the targets of predictors
    (`eq:generalopt-oneApp`), if any. importance: (rows,), mean 1: how much each row counts in the adversaries' losses;
    None for equal importance. weight: (rows,), how many rows of the population each one stands for; None for equal
    weights. given: (rows, values), one-hot: what adversaries know in addition to a release (Y, for equalized odds).
    """

    x: Tensor
    sensitive: Tensor | None
    secrets: tuple[Tensor, ...]
    tasks: tuple[Tensor, ...] = ()
    importance: Tensor | None = None
    weight: Tensor | None = None
    given: Tensor | None = None

    def __len__(self) -> int:
        return self.x.shape[0]

    def take(self, index: Tensor) -> "Rows":
        """Some of the rows."""
        return self._each(lambda values: values.index_select(0, index))

    def joined(self, other: "Rows") -> "Rows":
        """These rows, and the others after them."""

        def both(one: Tensor | None, two: Tensor | None) -> Tensor | None:
            return None if one is None or two is None else torch.cat([one, two])

        secrets, tasks = (
            tuple(torch.cat(pair) for pair in zip(*pairs, strict=True))
            for pairs in ((self.secrets, other.secrets), (self.tasks, other.tasks))
        )
        return Rows(torch.cat([self.x, other.x]), both(self.sensitive, other.sensitive), secrets, tasks,
                    both(self.importance, other.importance), both(self.weight, other.weight),
                    both(self.given, other.given))  # fmt: skip

    def draw(self, size: int, generator: torch.Generator, share: slice = slice(None)) -> "Rows":
        """A minibatch: rows drawn with probability proportional to their weight; the result is unweighted.

        share: the part of the minibatch that is returned.
        """
        if self.weight is None:
            index = torch.randint(len(self), (size,), generator=generator, device=self.x.device)
            return self.take(index[share]).unpacked()
        total = self.weight.double().cumsum(0)
        points = torch.rand(size, generator=generator, device=self.x.device, dtype=torch.float64) * total[-1]
        index = torch.searchsorted(total, points, right=True).clamp(max=len(self) - 1)
        return replace(self.take(index[share]), weight=None).unpacked()

    def repeated(self) -> Tensor:
        """As many row indices as there are rows, each repeated in proportion to its weight, up to rounding."""
        if self.weight is None:
            return torch.arange(len(self), device=self.x.device)
        return torch.from_numpy(systematic_resample(self.weight.cpu().numpy(), len(self))).to(self.x.device)

    def unweighted(self) -> "Rows":
        """As many rows of equal weight, those of large weight repeated: for evaluation."""
        return self if self.weight is None else replace(self.take(self.repeated()), weight=None)

    def unpacked(self) -> "Rows":
        """With x as floats: images are stored as bytes."""
        return replace(self, x=unpack(self.x))

    def pieces(self) -> Iterator["Rows"]:
        """The rows in chunks that fit through a network at once, as floats."""
        for rows in torch.split(torch.arange(len(self), device=self.x.device), rows_at_once(self.x.shape[1])):
            yield self.take(rows).unpacked()

    def to(self, device: torch.device) -> "Rows":
        """The rows on another device."""
        return self._each(lambda values: values.to(device))

    def tensors(self) -> list[Tensor]:
        """All tensors of the rows."""
        single = (self.x, self.sensitive, self.importance, self.weight, self.given)
        return [*(values for values in single if values is not None), *self.secrets, *self.tasks]

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Rows":
        def changed(values: Tensor | None) -> Tensor | None:
            return None if values is None else change(values)

        return Rows(change(self.x), changed(self.sensitive), tuple(map(change, self.secrets)),
                    tuple(map(change, self.tasks)), changed(self.importance), changed(self.weight),
                    changed(self.given))  # fmt: skip
