"""Common to the baselines: tables as features, members for every weight and seed, and the training loop."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from fairveil._utils.errors import InputError
from fairveil._utils.progress import progress
from fairveil.data.frames import read_columns, read_table
from fairveil.data.schema import Schema
from fairveil.data.sensitive import describe_sensitive
from fairveil.data.table_codec import Codec
from fairveil.encoders.layers import BatchedMLP, initialise


@dataclass(frozen=True)
class Batch:
    """Some rows: features (rows, width), S one-hot (rows, groups), Y one-hot (rows, classes)."""

    x: Tensor
    s: Tensor
    y: Tensor


class Baseline(ABC):
    """An encoder, possibly a predictor, and an adversary for each weight and seed; members are weights x seeds.

    weights: the trade-off values, one result each. seeds: number of different initial weights for each of them.
    steps, batch_size, learning_rate: for both players, which are updated simultaneously (Adam).
    """

    def __init__(
        self,
        weights: Sequence[float],
        *,
        seeds: int = 1,
        steps: int = 4000,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        show_progress: bool = False,
        random_state: int = 0,
    ) -> None:
        self.weights = tuple(float(weight) for weight in weights)
        self.seeds = seeds
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.show_progress = show_progress
        self.random_state = random_state

    @abstractmethod
    def build(self, width: int, groups: int, classes: int) -> tuple[nn.ModuleDict, nn.ModuleDict]:
        """The encoder-side networks, and the adversary's."""

    @abstractmethod
    def own_losses(self, batch: Batch) -> Tensor:
        """The losses minimised by the encoder side, one number per member."""

    @abstractmethod
    def adversary_losses(self, batch: Batch) -> Tensor:
        """The losses minimised by the adversary for a fixed encoder, one number per member."""

    @abstractmethod
    def outputs(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Representations (members, rows, width) and class logits (members, rows, classes), if there are any."""

    @property
    def members(self) -> int:
        """Number of networks trained at once."""
        return len(self.weights) * self.seeds

    @property
    def weight(self) -> Tensor:
        """The trade-off value of each member."""
        return torch.tensor(self.weights).repeat_interleave(self.seeds)

    def mlp(self, inputs: int, hidden: Sequence[int], outputs: int) -> BatchedMLP:
        """One network per member."""
        return BatchedMLP(self.members, inputs, hidden, outputs)

    def fit(self, X: Any, y: Any, *, sensitive_features: Any) -> Self:
        """Train. S consists of classes; several columns are hidden jointly unless the method says otherwise."""
        table, secret = read_table(X), read_columns(sensitive_features, "sensitive")
        self.codec = Codec(Schema.infer(table, fewest=1).without_bins(), "most_frequent")
        x = self.codec.encode(table.arrow)
        labels = np.asarray(y)
        if len(labels) != len(x) or secret.num_rows != len(x):
            raise InputError(f"X has {len(x)} rows, y {len(labels)}, sensitive_features {secret.num_rows}.")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        rows = Batch(x, self.read_secret(secret), _one_hot(torch.from_numpy(codes)))
        self.own, self.adversary = self.build(x.shape[1], rows.s.shape[1], len(self.classes_))
        # Member (weight, seed) is initialised from its seed, whatever the weight.
        starts = [torch.Generator().manual_seed(self.random_state + 7919 * i) for i in range(self.seeds)]
        starts = [torch.Generator().set_state(g.get_state()) for _ in self.weights for g in starts]
        for side in (self.own, self.adversary):
            initialise(side, starts)
        self._train(rows)
        return self

    def read_secret(self, secret: Any) -> Tensor:
        """S as targets of the adversary: joint classes, one-hot."""
        described = describe_sensitive(secret, discrete=True)
        return _one_hot(described.classes_of(secret))

    def _train(self, rows: Batch) -> None:
        self.generator = torch.Generator().manual_seed(self.random_state)
        optimisers = [
            torch.optim.Adam(side.parameters(), self.learning_rate, fused=True) for side in (self.own, self.adversary)
        ]
        with progress(self.steps, type(self).__name__, self.show_progress) as report:
            for step in range(1, self.steps + 1):
                index = torch.randint(len(rows.x), (self.batch_size,), generator=self.generator)
                batch = Batch(rows.x[index], rows.s[index], rows.y[index])
                for parameter, gradient in self.gradients(batch, step):
                    parameter.grad = gradient.contiguous()  # the fused optimiser ignores strides
                for optimiser in optimisers:
                    # Learning rates decay to zero over the last half, so that the players converge.
                    optimiser.param_groups[0]["lr"] = self.learning_rate * min(1.0, 2.0 * (1.0 - step / self.steps))
                    optimiser.step()
                report(step, "")

    def gradients(self, batch: Batch, step: int) -> Iterable[tuple[nn.Parameter, Tensor]]:
        """For every parameter: the encoder side minimises its own losses, the adversary its own."""
        for side, losses in ((self.own, self.own_losses), (self.adversary, self.adversary_losses)):
            parameters = list(side.parameters())
            yield from zip(parameters, torch.autograd.grad(losses(batch).sum(), parameters), strict=True)

    @torch.no_grad()
    def apply(self, X: Any) -> "Applied":
        """The output of every member for these rows, in one pass."""
        codes, logits = self.outputs(self.codec.encode(read_table(X).arrow))
        return Applied(self.weights, self.seeds, self.classes_, codes, logits)

    def represent(self, X: Any, weight: float, seed: int = 0) -> pd.DataFrame:
        """The representation of each row."""
        return self.apply(X).represent(weight, seed)

    def predict(self, X: Any, weight: float, seed: int = 0) -> NDArray[Any]:
        """The label predicted by the method itself."""
        return self.apply(X).predict(weight, seed)


@dataclass(frozen=True)
class Applied:
    """Representations (members, rows, width) and logits (members, rows, classes) of some rows, if there are any."""

    weights: Sequence[float]
    seeds: int
    classes: NDArray[Any]
    codes: Tensor | None
    logits: Tensor | None

    def _of(self, values: Tensor | None, weight: float, seed: int) -> Tensor:
        assert values is not None
        return values[self.weights.index(float(weight)) * self.seeds + seed]

    def represent(self, weight: float, seed: int = 0) -> pd.DataFrame:
        """The representation of each row by one member."""
        z = self._of(self.codes, weight, seed).numpy()
        return pd.DataFrame(z, columns=[f"z{i}" for i in range(z.shape[1])])

    def predict(self, weight: float, seed: int = 0) -> NDArray[Any]:
        """The label predicted by one member."""
        return np.asarray(self.classes[self._of(self.logits, weight, seed).argmax(dim=1).numpy()])


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean log-loss of each member: logits (members, rows, classes), target one-hot (rows, classes)."""
    return -(F.log_softmax(logits, dim=-1) * target).sum(dim=-1).mean(dim=-1)


def _one_hot(codes: Tensor) -> Tensor:
    return F.one_hot(codes).float()
