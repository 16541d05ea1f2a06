"""Fair PCA: Kleindessner et al., Efficient fair PCA for fair representation learning (2023).

Principal components among the directions in which the groups have equal means, the null space of z'x with z the centred
group indicators. With `covariance`, only the directions in which the covariances of two groups differ least are used.
"""

from collections.abc import Iterator

import numpy as np

from field.coding import Vectors
from field.protocol import Fitted, Method, Rows, vectors


class FairPCA:
    """Projection to `size` components; fitted on x (rows, width) and group indicators z (rows, groups)."""

    def __init__(self, x: np.ndarray, z: np.ndarray, size: int, *, covariance: float | None = None) -> None:
        self.mean = x.mean(axis=0)
        centred = x - self.mean
        free = _null_space((z - z.mean(axis=0)).T @ centred / len(x), 1e-10 * x.std())
        if covariance is not None:
            inside = centred @ free
            first, second = (np.cov(inside[z[:, g] == 1], rowvar=False) for g in (0, 1))
            values, basis = np.linalg.eigh(first - second)
            order = np.argsort(np.abs(values))[: max(size, int(covariance * len(values)))]
            free = free @ basis[:, order]
        inside = centred @ free
        self.axes = free @ np.linalg.eigh(inside.T @ inside)[1][:, ::-1][:, :size]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The components of each row."""
        return (x - self.mean) @ self.axes


def _null_space(matrix: np.ndarray, smallest: float) -> np.ndarray:
    """Directions that the matrix takes to 0, up to rounding: groups with equal means have no other."""
    _, size, right = np.linalg.svd(matrix)
    return right[int((size > smallest).sum()) :].T


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    coder = Vectors(train.X)
    x, z = coder(train.X), (train.group[:, None] == np.unique(train.group)).astype(float)
    variants: list[tuple[str, int, float | None]] = [("3 components", 3, None), ("10 components", 10, None)]
    if z.shape[1] == 2:
        variants.append(("10 components, covariances", 10, 0.5))
    for setting, size, covariance in variants:
        project = FairPCA(x, z, size, covariance=covariance)
        yield Fitted(setting, lambda rows, project=project: vectors(project(coder(rows.X))))


METHODS = [Method("Fair PCA", fit, "Kleindessner et al. 2023, written from the paper")]
