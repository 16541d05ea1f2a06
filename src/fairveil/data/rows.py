"""Rows as tensors, with what is known of each: what encoders train on."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fairveil.data.images import rows_at_once, unpack


@dataclass(frozen=True)
class Rows:
    """Training rows as tensors.

    x: (rows, width); of images, bytes. sensitive: (rows, K), what an encoder that sees S is shown. secrets: what
    adversaries guess, one tensor per target (the joint value first). tasks: what predictors guess
    (`eq:generalopt-oneApp`), if anything. importance: (rows,), mean 1: how much each row counts to adversaries; all
    alike if None.
    """

    x: Tensor
    sensitive: Tensor | None
    secrets: tuple[Tensor, ...]
    tasks: tuple[Tensor, ...] = ()
    importance: Tensor | None = None

    def __len__(self) -> int:
        return self.x.shape[0]

    def take(self, index: Tensor) -> "Rows":
        """Some of the rows."""
        return Rows(
            self.x.index_select(0, index),
            None if self.sensitive is None else self.sensitive.index_select(0, index),
            tuple(secret.index_select(0, index) for secret in self.secrets),
            tuple(task.index_select(0, index) for task in self.tasks),
            None if self.importance is None else self.importance.index_select(0, index),
        )

    def unpacked(self) -> "Rows":
        """With x as numbers: images are held as bytes."""
        return replace(self, x=unpack(self.x))

    def pieces(self) -> Iterator["Rows"]:
        """A few rows after another, as many as go through a network at once, as numbers."""
        for rows in torch.split(torch.arange(len(self), device=self.x.device), rows_at_once(self.x.shape[1])):
            yield self.take(rows).unpacked()

    def to(self, device: torch.device) -> "Rows":
        """The rows on another device."""
        return Rows(
            self.x.to(device),
            None if self.sensitive is None else self.sensitive.to(device),
            tuple(secret.to(device) for secret in self.secrets),
            tuple(task.to(device) for task in self.tasks),
            None if self.importance is None else self.importance.to(device),
        )
