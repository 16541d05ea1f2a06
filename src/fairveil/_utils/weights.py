"""Sample weights: how many rows of the population each row stands for.

Weights do not measure evidence: a weighted mean is that of a table in which each row is repeated according to its
weight, but its interval is that of the actual rows (Kish's effective number).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairveil._utils.errors import InputError, rows_named

Array = NDArray[np.float64]


def check_weights(given: ArrayLike, rows: int, what: str = "X") -> Array:
    """Check that there is one finite number per row, all at least 0 and not all 0: (rows,)."""
    values = np.asarray(given)
    if values.ndim != 1:
        raise InputError(f"sample_weight must be one number per row: 1D. It has {values.ndim} dimensions.")
    if len(values) != rows:
        raise InputError(f"{what} has {rows} rows, sample_weight {len(values)}. They must have the same length.")
    try:
        weights = values.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError("sample_weight must hold numbers.") from None
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        raise InputError(f"sample_weight must hold finite numbers of at least 0 ({rows_named(bad.tolist())}).")
    if not weights.any():
        raise InputError("sample_weight is zero in all rows.")
    return weights


def normalised(weights: Array) -> Array:
    """Scaled to a mean of 1."""
    scaled = weights / weights.max()  # avoids overflow
    return np.asarray(scaled / scaled.mean())


def systematic_resample(weights: Array, count: int) -> NDArray[np.int64]:
    """`count` row indices, each row repeated in proportion to its weight, up to rounding; exactly if that is whole."""
    total = np.cumsum(weights / weights.max(), dtype=np.float64)
    points = (np.arange(count) + 0.5) * (total[-1] / count)
    return np.asarray(np.searchsorted(total, points, side="right").clip(max=len(weights) - 1))


def effective_rows(weights: Array | None, rows: int) -> float:
    """Kish's effective number of rows: all of them for equal weights, fewer for unequal weights."""
    if weights is None or not len(weights) or not weights.any():
        return float(rows)
    scaled = weights / weights.max()
    return float(scaled.sum() ** 2 / (scaled**2).sum())
