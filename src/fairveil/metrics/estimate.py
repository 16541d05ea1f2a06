"""Estimates with confidence intervals and sample sizes."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fairveil._utils.errors import InputError
from fairveil._utils.weights import Array, check_weights, effective_rows, normalised


@dataclass(frozen=True)
class Estimate:
    """An estimate with a two-sided confidence interval and its number of rows."""

    value: float
    low: float
    high: float
    rows: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def share(hits: ArrayLike, confidence: float = 0.95, weights: Array | None = None) -> Estimate:
    """The share of rows that are hits, with the exact (Clopper-Pearson) interval.

    weights: the weight of each row. The interval is then that of Korn and Graubard: Clopper-Pearson with the effective
    number of rows, at which an unweighted share has the same variance.

    >>> f"{share([True, True, False, False]):.2f}"
    '0.50 [0.07, 0.93]'
    """
    hit = np.asarray(hits, dtype=bool)
    found = proportion(*hits_and_rows(hit, weights), confidence)
    return Estimate(found.value, found.low, found.high, len(hit))


def hits_and_rows(hits: NDArray[np.bool_], weights: Array | None = None) -> tuple[float, float]:
    """The number of hits and of rows; with weights, effective (fractional) numbers that give the weighted share and its
    variance.
    """
    if weights is None:
        return float(hits.sum()), float(len(hits))
    total = float(weights.sum())
    if not total:
        return 0.0, 0.0
    value = float(weights[hits].sum() / total)
    rows = effective_rows(weights, len(hits))
    if 0.0 < value < 1.0:
        variance = float(np.sum(((weights / total) * (hits - value)) ** 2))
        rows = min(value * (1.0 - value) / variance, float(len(hits)))
    return value * rows, rows


def proportion(successes: float, rows: float, confidence: float = 0.95) -> Estimate:
    """A share with the exact (Clopper-Pearson) interval.

    >>> f"{proportion(0, 10):.2f}"
    '0.00 [0.00, 0.31]'
    """
    low, high = clopper_pearson(successes, rows, confidence)
    return Estimate(successes / rows if rows else float("nan"), float(low), float(high), round(rows))


def clopper_pearson(successes: ArrayLike, rows: ArrayLike, confidence: float = 0.95) -> tuple[Array, Array]:
    """Lower and upper limits of exact two-sided intervals, also for arrays of counts; (0, 1) if there are no rows."""
    k, n = np.asarray(successes, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    tail = (1.0 - check_confidence(confidence)) / 2
    low = np.where(k > 0, stats.beta.ppf(tail, np.where(k > 0, k, 1), n - k + 1), 0.0)
    high = np.where(k < n, stats.beta.isf(tail, k + 1, np.where(k < n, n - k, 1)), 1.0)
    return np.where(n > 0, low, 0.0), np.where(n > 0, high, 1.0)


def difference(
    successes: float, rows: float, other_successes: float, other_rows: float, confidence: float = 0.95
) -> Estimate:
    """The difference of two independent shares, with Newcombe's interval (from the Wilson interval of each share).

    >>> f"{difference(9, 10, 5, 10):.2f}"
    '0.40 [-0.00, 0.68]'
    """
    z = float(stats.norm.ppf(0.5 + check_confidence(confidence) / 2))
    p, q = successes / rows, other_successes / other_rows
    (low, high), (low2, high2) = (_wilson(k, n, z) for k, n in ((successes, rows), (other_successes, other_rows)))
    below, above = np.hypot(p - low, high2 - q), np.hypot(high - p, q - low2)
    return Estimate(p - q, float(p - q - below), float(p - q + above), round(rows + other_rows))


def _wilson(successes: float, rows: float, z: float) -> tuple[float, float]:
    p = successes / rows
    center = (p + z**2 / (2 * rows)) / (1 + z**2 / rows)
    half = z / (1 + z**2 / rows) * np.sqrt(p * (1 - p) / rows + z**2 / (4 * rows**2))
    return center - half, center + half


def of_mean(values: ArrayLike, confidence: float = 0.95, weights: Array | None = None) -> Estimate:
    """A mean with its normal interval. weights: the weight of each row; the interval is then that of the linearised
    ratio.
    """
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean()) if weights is None else float(np.average(array, weights=weights))
    influence = array - mean if weights is None else normalised(weights) * (array - mean)
    spread = influence.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else float("inf")
    half = float(stats.norm.ppf(0.5 + check_confidence(confidence) / 2) * spread)
    return Estimate(mean, mean - half, mean + half, len(array))


def check_confidence(confidence: float) -> float:
    """Return the confidence level; raises unless it lies in (0, 1)."""
    if not 0.0 < confidence < 1.0:
        raise InputError(f"A confidence must lie between 0 and 1. Got {confidence!r}.")
    return float(confidence)


def weights_of(sample_weight: ArrayLike | None, rows: int, what: str) -> Array | None:
    """The validated weights; None if not given."""
    return None if sample_weight is None else check_weights(sample_weight, rows, what)


def same_length(**columns: ArrayLike) -> list[NDArray[np.generic]]:
    """The columns as one-dimensional arrays; raises on different lengths, no rows or missing values."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    sizes = {name: len(array) if array.ndim == 1 else -1 for name, array in arrays.items()}
    if min(sizes.values()) < 0:
        name = next(name for name, size in sizes.items() if size < 0)
        raise InputError(f"{name} must be one column of values. It has {arrays[name].ndim} dimensions.")
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} has {size} rows" for name, size in sizes.items())
        raise InputError(f"{told}. They must be of one length.")
    if not next(iter(sizes.values())):
        raise InputError(f"{' and '.join(arrays)} hold no rows.")
    gone = [name for name, array in arrays.items() if pd.isna(array).any()]
    if gone:
        raise InputError(f"{' and '.join(gone)} must have no missing values. Drop those rows, or name the value.")
    return list(arrays.values())
