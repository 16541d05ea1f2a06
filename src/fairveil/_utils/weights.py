"""Sample weights: how many rows of the population each row stands for.

Weights say what rows stand for, and not how much evidence they are: a mean of weighted rows is that of a table in which
each row is repeated as its weight says, but its interval is that of the rows there are (Kish's effective number).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairveil._utils.errors import InputError, rows_named

Array = NDArray[np.float64]


def check_weights(given: ArrayLike, rows: int, what: str = "X") -> Array:
    """One finite number of at least 0 per row, not all of them 0: (rows,)."""
    values = np.asarray(given)
    if values.ndim != 1:
        raise InputError(f"sample_weight must be one number for each row: 1D. It has {values.ndim} dimensions.")
    if len(values) != rows:
        raise InputError(f"{what} has {rows} rows, sample_weight {len(values)}. They must be of one length.")
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
    """With a mean of 1."""
    scaled = weights / weights.max()  # large ones must not overflow
    return np.asarray(scaled / scaled.mean())


def effective_rows(weights: Array | None, rows: int) -> float:
    """Kish's effective number of rows: of equal weights all of them, of unequal ones fewer."""
    if weights is None or not len(weights) or not weights.any():
        return float(rows)
    scaled = weights / weights.max()
    return float(scaled.sum() ** 2 / (scaled**2).sum())
