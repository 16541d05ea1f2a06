"""Fairness and accuracy with intervals and sample sizes. Knows arrays only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fairveil.errors import InputError


@dataclass(frozen=True)
class Estimate:
    """A measured number with a two-sided confidence interval and the rows behind it."""

    value: float
    low: float
    high: float
    rows: int

    def __format__(self, spec: str) -> str:
        spec = spec or ".3f"
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def accuracy(predicted: ArrayLike, truth: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Share of right answers, with the exact (Clopper-Pearson) interval.

    >>> f"{accuracy([1, 0, 1, 1], [1, 0, 0, 1]):.2f}"
    '0.75 [0.19, 0.99]'
    """
    right = np.asarray(predicted) == np.asarray(truth)
    interval = stats.binomtest(int(right.sum()), right.size).proportion_ci(confidence, method="exact")
    return Estimate(float(right.mean()), float(interval.low), float(interval.high), right.size)


def roc_auc(score: ArrayLike, truth: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Area under the ROC curve of a binary truth, with DeLong's interval.

    >>> f"{roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]):.2f}"
    '0.75 [0.06, 1.00]'
    """
    score, truth = np.asarray(score, dtype=np.float64), np.asarray(truth).astype(bool)
    positive, negative = score[truth], score[~truth]
    if not len(positive) or not len(negative):
        raise InputError("The AUC needs rows of both classes.")
    m, n = len(positive), len(negative)
    ranks = stats.rankdata(score)
    # For each positive row the share of negatives below it, and for each negative row that of positives above it.
    below = (ranks[truth] - stats.rankdata(positive)) / n
    above = 1.0 - (ranks[~truth] - stats.rankdata(negative)) / m
    value = float(below.mean())
    variance = (below.var(ddof=1) / m if m > 1 else 0.0) + (above.var(ddof=1) / n if n > 1 else 0.0)
    half = float(stats.norm.ppf(0.5 + confidence / 2) * np.sqrt(variance))
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), score.size)


def demographic_parity_gap(
    predicted: ArrayLike, sensitive: ArrayLike, *, confidence: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Estimate:
    """The largest |P(pred = y | s) - P(pred = y | s')| over values y and pairs of groups (`eq:statistic_DP`).

    The interval is a percentile bootstrap within groups; in small groups a maximum over pairs is biased upwards.

    >>> demographic_parity_gap([1, 1, 0, 0], ["a", "a", "b", "b"]).value
    1.0
    """
    rates, sizes = _rates(np.asarray(predicted), np.asarray(sensitive))
    generator = np.random.default_rng(seed)
    draws = [generator.multinomial(size, rate, resamples) / size for size, rate in zip(sizes, rates, strict=True)]
    boot = np.stack(draws, axis=1)
    gaps = (boot.max(axis=1) - boot.min(axis=1)).max(axis=1)
    low, high = np.quantile(gaps, [0.5 - confidence / 2, 0.5 + confidence / 2])
    value = float((rates.max(axis=0) - rates.min(axis=0)).max())
    return Estimate(value, float(low), float(high), int(sizes.sum()))


def _rates(
    predicted: NDArray[np.generic], sensitive: NDArray[np.generic]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """P(pred = y | s) as (groups, values of y), and the group sizes."""
    if predicted.shape != sensitive.shape:
        raise InputError(
            f"predicted has {predicted.size} rows, sensitive {sensitive.size}. They must be of one length."
        )
    groups, s = np.unique(sensitive, return_inverse=True)
    values, y = np.unique(predicted, return_inverse=True)
    counts = np.zeros((len(groups), len(values)))
    np.add.at(counts, (s, y), 1.0)
    sizes = counts.sum(axis=1)
    return counts / sizes[:, None], sizes.astype(np.int64)
