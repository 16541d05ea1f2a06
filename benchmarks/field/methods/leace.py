"""LEACE: Belrose et al., Perfect linear concept erasure in closed form (2023).

The least-squares change of x after which no linear model predicts S better than a constant: x minus
W^+ P W (x - mean), where W = Cov(x)^(-1/2) and P projects on the column space of W Cov(x, s).
"""

from collections.abc import Iterator

import numpy as np

from field.coding import Vectors
from field.protocol import Fitted, Method, Rows, vectors

_SMALLEST = 1e-10


class Leace:
    """The eraser: fitted on x (rows, width) and s (rows, columns)."""

    def __init__(self, x: np.ndarray, s: np.ndarray) -> None:
        self.mean = x.mean(axis=0)
        centred = x - self.mean
        values, basis = np.linalg.eigh(centred.T @ centred / len(x))
        kept = values > _SMALLEST * values.max()
        root, basis = np.sqrt(values[kept]), basis[:, kept]
        whiten, unwhiten = (basis / root) @ basis.T, (basis * root) @ basis.T
        cross = whiten @ (centred.T @ (s - s.mean(axis=0)) / len(x))
        left, size, _ = np.linalg.svd(cross, full_matrices=False)
        space = left[:, size > _SMALLEST * max(size.max(), 1e-300)]
        self.erased = unwhiten @ space @ (space.T @ whiten)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """x without what is linearly predictive of s."""
        return x - (x - self.mean) @ self.erased.T


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    coder = Vectors(train.X)
    eraser = Leace(coder(train.X), (train.group[:, None] == np.unique(train.group)).astype(float))
    yield Fitted("", lambda rows: vectors(eraser(coder(rows.X))))


METHODS = [Method("LEACE", fit, "Belrose et al. 2023, written from the paper")]
