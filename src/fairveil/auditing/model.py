"""What every model of the audit can do, and how its predictions are judged."""

from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fairveil.metrics import log_loss

Array = NDArray[np.float64]
Matrix = NDArray[np.float32]


class Model(Protocol):
    """An untrained model of one target."""

    def fit(self, x: Matrix, y: Array, x_val: Matrix, y_val: Array, draws: int = 1) -> Self:
        """Fit; validation rows are for early stopping and tuning.

        draws: x holds this many releases of the same rows, one after the other.
        """
        ...

    def predict(self, x: Matrix) -> Array:
        """Probabilities (rows, classes), or numbers (rows,)."""
        ...


def loss_of(predicted: Array, truth: Array) -> float:
    """Mean log-loss in nats, or mean squared error for numbers."""
    if predicted.ndim == 1:
        return float(np.mean((predicted - truth) ** 2))
    return log_loss(predicted, truth).value
