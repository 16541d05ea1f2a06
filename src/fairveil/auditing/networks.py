"""Small networks for attacks and tasks: fully connected ones for tables, convolutional ones for images."""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[np.float64]

#: Filters of the convolutions in the paper's adversary for images.
FILTERS = (32, 64)
#: Minimum number of steps per epoch: small tables get smaller batches.
_FEWEST_STEPS = 20


class Network:
    """Trains with AdamW and dropout; keeps the weights with the lowest validation loss.

    classes: number of classes, or None to predict a number. hidden: widths of the layers before the output. filters: of
    the 3 x 3 convolutions, each with pooling, for images of shape (rows, channels, height, width). input_dropout: of
    the first dense layer, if other than `dropout`. one_scale: features keep their relative sizes, so that the few
    largest count most; otherwise each has variance 1.
    """

    def __init__(
        self,
        hidden: Sequence[int] = (128,),
        *,
        classes: int | None,
        filters: Sequence[int] = (),
        epochs: int = 20,
        patience: int = 4,
        batch: int = 512,
        rate: float = 2e-3,
        dropout: float = 0.2,
        input_dropout: float | None = None,
        decay: float = 1e-4,
        one_scale: bool = False,
        seed: int = 0,
    ) -> None:
        self.input_dropout = dropout if input_dropout is None else input_dropout
        self.one_scale = one_scale
        self.hidden, self.classes, self.filters = tuple(hidden), classes, tuple(filters)
        self.epochs, self.patience, self.batch = epochs, patience, batch
        self.rate, self.dropout, self.decay, self.seed = rate, dropout, decay, seed

    def fit(self, x: NDArray[np.float32], y: Array, x_val: NDArray[np.float32], y_val: Array, draws: int = 1) -> Self:
        """Learn y (codes or numbers) from x."""
        with torch.random.fork_rng(devices=[]):  # weights and dropout use torch's global generator
            torch.manual_seed(self.seed)
            self._scale(x, y)
            self.body, self.head = self._layers(x.shape[1:])
            self._train(self._rows(x), self._truth(y), self._rows(x_val), self._truth(y_val))
        return self

    def predict(self, x: NDArray[np.float32]) -> Array:
        """Probabilities (rows, classes), or numbers (rows,)."""
        output = self._forward(x, embed=False)
        if self.classes is None:
            return np.asarray(output.squeeze(1).double().numpy() * self.spread + self.center)
        return np.asarray(output.double().softmax(dim=1).numpy())

    def embed(self, x: NDArray[np.float32]) -> Array:
        """The layer before the output: (rows, hidden[-1])."""
        return np.asarray(self._forward(x, embed=True).double().numpy())

    def _scale(self, x: NDArray[np.float32], y: Array) -> None:
        axes = (0, 2, 3) if self.filters else (0,)
        flat, spread = x.mean(axis=axes, keepdims=True), x.std(axis=axes, keepdims=True)
        if self.one_scale:
            spread = np.full_like(spread, np.sqrt(np.square(spread).mean()))
        self.x_center, self.x_spread = flat, np.where(spread > 1e-6, spread, 1.0).astype(np.float32)
        self.center, self.spread = float(np.mean(y)), float(np.std(y)) or 1.0

    def _layers(self, shape: tuple[int, ...]) -> tuple[nn.Module, nn.Module]:
        layers: list[nn.Module] = []
        width = shape[0]
        if self.filters:
            channels, height, across = shape
            for filters in self.filters:
                layers.append(nn.Conv2d(channels, filters, 3, padding=1))
                channels = filters
                if min(height, across) >= 2:
                    layers.append(nn.MaxPool2d(2))  # before the ReLU: same result, a quarter of the work
                    height, across = height // 2, across // 2
                layers.append(nn.ReLU())
            layers.append(nn.Flatten())
            width = channels * height * across
        for i, size in enumerate(self.hidden):
            dropout = self.dropout if i else self.input_dropout
            layers += [nn.Dropout(dropout), nn.Linear(width, size), nn.ReLU()]
            width = size
        return nn.Sequential(*layers), nn.Linear(width, self.classes or 1)

    def _train(self, x: Tensor, y: Tensor, x_val: Tensor, y_val: Tensor) -> None:
        model = nn.Sequential(self.body, self.head)
        optimiser = torch.optim.AdamW(model.parameters(), lr=self.rate, weight_decay=self.decay, fused=True)
        loss = nn.CrossEntropyLoss() if self.classes else nn.MSELoss()
        best, waited = math.inf, 0
        size = min(self.batch, max(32, len(x) // _FEWEST_STEPS))
        kept = {name: value.clone() for name, value in model.state_dict().items()}
        for _ in range(self.epochs):
            model.train()
            for rows in torch.split(torch.randperm(len(x)), size):
                optimiser.zero_grad(set_to_none=True)
                loss(model(x[rows]), y[rows]).backward()
                optimiser.step()
            model.eval()
            with torch.no_grad():
                score = float(loss(torch.cat([model(part) for part in torch.split(x_val, 4096)]), y_val))
            waited = 0 if score < best else waited + 1
            if score < best:
                best, kept = score, {name: value.clone() for name, value in model.state_dict().items()}
            if waited >= self.patience:
                break
        model.load_state_dict(kept)
        model.eval()

    @torch.no_grad()
    def _forward(self, x: NDArray[np.float32], *, embed: bool) -> Tensor:
        found = []
        for rows in torch.split(self._rows(x), 4096):
            inner = self.body(rows)
            found.append(inner if embed else self.head(inner))
        return torch.cat(found)

    def _rows(self, x: NDArray[np.float32]) -> Tensor:
        rows = torch.from_numpy(np.ascontiguousarray((x - self.x_center) / self.x_spread, dtype=np.float32))
        return rows.contiguous(memory_format=torch.channels_last) if self.filters else rows

    def _truth(self, y: Array) -> Tensor:
        if self.classes:
            return torch.from_numpy(y.astype(np.int64))
        return torch.from_numpy(((y - self.center) / self.spread).astype(np.float32))[:, None]
