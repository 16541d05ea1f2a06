"""Rows that are not independent because people have several: wider intervals, and a warning where it is not stated."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.data.frames import Table
from fairveil.metrics import Estimate

Array = NDArray[np.float64]
People = NDArray[np.int64]

#: Numbers of occurrences are compared if at least this many values have them, up to this number of occurrences.
_FEWEST_VALUES, _MOST_OCCURRENCES = 20, 1000
#: Standard errors by which they must contradict independent rows.
_ERRORS = 5.0


def design_effect(influence: Array, people: People) -> float:
    """By what factor the variance of a mean exceeds that of independent rows; at least 1.

    influence: of each row on the estimate, with mean 0 (for a mean, its deviation). people: the person of each row, as
    codes 0..G-1. The variance is that of the sums per person (cluster-robust).
    """
    groups = int(people.max()) + 1
    alone = float(np.sum(influence**2))
    if groups < 2 or alone <= 0.0:
        return 1.0
    together = float(np.sum(np.bincount(people, influence, minlength=groups) ** 2)) * groups / (groups - 1)
    return max(1.0, together / alone)


def widened(
    estimate: Estimate, influence: Array, people: People | None, limits: tuple[float, float] = (-np.inf, np.inf)
) -> Estimate:
    """The estimate with its interval widened to account for the rows of the same person. limits: of its values."""
    if people is None:
        return estimate
    factor = float(np.sqrt(design_effect(influence, people)))
    low = estimate.value - factor * (estimate.value - estimate.low)
    high = estimate.value + factor * (estimate.high - estimate.value)
    return Estimate(estimate.value, max(low, limits[0]), min(high, limits[1]), estimate.rows)


def repeats_too_often(released: object) -> bool:
    """Whether rows or values of a column repeat in a way that independent rows do not.

    The number of occurrences of a value among independent rows has a mixed Poisson distribution. With n_k values that
    occur k times, k! n_k is then about a sequence of moments, which is log-convex: k n_k^2 <= (k + 1) n_(k-1) n_(k+1).
    People with a fixed number of rows each contradict this; frequent and rare values do not.
    """
    if not isinstance(released, Table):
        return False
    codes = [_codes(released, name) for name in released.names]
    whole = np.zeros(len(released), dtype=np.uint64)
    for values in codes:
        whole = whole * np.uint64(1_099_511_628_211) + values.astype(np.uint64)
    return any(map(_contradicts, (*(np.bincount(values) for values in codes), np.unique(whole, return_counts=True)[1])))


def _codes(released: Table, name: str) -> NDArray[np.int64]:
    try:
        column = released.arrow[name].combine_chunks().dictionary_encode(null_encoding="encode")
    except pa.ArrowNotImplementedError:  # lists and other nested values cannot be compared
        return np.zeros(len(released), dtype=np.int64)
    return np.asarray(column.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def _contradicts(counts: Iterable[int]) -> bool:
    """Whether numbers of occurrences contradict a mixed Poisson distribution."""
    few = [count for count in counts if 0 < count <= _MOST_OCCURRENCES]
    having = np.bincount(few, minlength=3).astype(np.float64) if few else np.zeros(3)
    having = np.append(having, 0.0)
    k = np.arange(2, len(having) - 1)
    enough = having[k] >= _FEWEST_VALUES
    k = k[enough]
    before, own, after = having[k - 1] + 1.0, having[k], having[k + 1] + 1.0  # one more, so that none is 0
    error = np.sqrt(1.0 / before + 4.0 / own + 1.0 / after)
    return bool(np.any(np.log((k + 1) * before * after / (k * own**2)) < -_ERRORS * error))
