"""The bounds enforced in a game: on the distortion of a release, or on the loss of predictions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Limits:
    """What limits the distortion (or loss) of a row.

    largest: its largest value; infinite if there is none. single: the largest change of a single column; infinite if
    there is none. by_squares: the largest value is far beyond any that occurs, as of squared numbers and pixels, and a
    bound on a mean that has to allow for it would be useless (`confidence_bound.asymptotic_bound`).
    """

    largest: float
    single: float
    by_squares: bool = False


@dataclass(frozen=True)
class Bounds:
    """One bound on the total distortion, or one per kind of column; or one on the loss of predictions.

    values: (members, constraints). mixing: (parts, constraints): which parts (categorical and continuous for a
    distortion, the loss for a prediction) each bound sums. names: the name of each constraint. relative: violations are
    measured in units of the bound, for distortions in the hundreds, such as those of images.
    """

    values: Tensor
    mixing: Tensor
    names: tuple[str, ...]
    relative: bool = False

    @classmethod
    def of(cls, budgets: Sequence[float | dict[str, float]], *, relative: bool = False) -> "Bounds":
        """From one budget per member: all numbers, or all mappings with the same kinds."""
        first = budgets[0]
        if isinstance(first, dict):
            names = tuple(first)
            rows = [[budget[name] for name in names] for budget in budgets if isinstance(budget, dict)]
            mixing = torch.stack([_PART[name] for name in names], dim=1)
            return cls(torch.tensor(rows, dtype=torch.float32), mixing, names, relative)
        values = torch.tensor([[float(budget)] for budget in budgets if not isinstance(budget, dict)])
        return cls(values, torch.ones(2, 1), ("total",), relative)

    @classmethod
    def of_loss(cls, values: Sequence[float]) -> "Bounds":
        """One bound per member on the loss of its predictions."""
        return cls(torch.tensor([[value] for value in values]), torch.ones(1, 1), ("loss",))

    def violation(self, mean: Tensor, aim: Tensor) -> Tensor:
        """By how much mean distortions exceed the target `aim`: (members, constraints)."""
        return (mean - aim) / self.values.to(mean.device) if self.relative else mean - aim

    def inside(self, margin: Tensor) -> Tensor:
        """A target this far inside the bounds, but not below half of them: (members, constraints)."""
        bound = self.values.to(margin.device)
        return torch.maximum(bound - margin, _LOWEST_AIM * bound)

    def of_rows(self, distortion: Tensor) -> Tensor:
        """(..., rows, parts) to (..., rows, constraints)."""
        return distortion @ self.mixing.to(distortion.device)


#: Encoders never aim below this fraction of a bound, however few rows verify it.
_LOWEST_AIM = 0.5
_PART = {"categorical": torch.tensor([1.0, 0.0]), "continuous": torch.tensor([0.0, 1.0])}
