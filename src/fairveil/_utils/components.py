"""Principal components of many numbers, such as images, sensor features and embeddings."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

#: Components are computed from at most this many rows; up to this width, exactly, from the covariance.
MOST_ROWS, _MOST_EXACT = 6000, 1024
#: Power iterations of the randomized decomposition: spectra of images fall slowly.
_ITERATIONS = 3


@dataclass(frozen=True)
class Components:
    """Orthonormal directions of largest variance. center: (width,); axes: (width, components), the largest first."""

    center: Matrix
    axes: Matrix

    @classmethod
    def of(cls, rows: Matrix, count: int, seed: int) -> "Components":
        """The first `count` components of these rows (rows, width); fewer if the rows span fewer dimensions."""
        if len(rows) > MOST_ROWS:
            rows = rows[np.sort(np.random.default_rng(seed).choice(len(rows), MOST_ROWS, replace=False))]
        center = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
        apart = rows - center
        count = max(1, min(count, len(rows) - 1, rows.shape[1]))
        if rows.shape[1] <= _MOST_EXACT:
            _, vectors = np.linalg.eigh(apart.T.astype(np.float64) @ apart)
            axes = vectors[:, ::-1][:, :count]
        else:
            from sklearn.utils.extmath import randomized_svd

            axes = randomized_svd(apart, count, n_iter=_ITERATIONS, random_state=seed % 2**32)[2].T
        return cls(center, np.ascontiguousarray(axes, dtype=np.float32))

    def project(self, rows: Matrix) -> Matrix:
        """The coordinates of these rows: (rows, components)."""
        return np.asarray((rows - self.center) @ self.axes, dtype=np.float32)
