"""Prediction scores: accuracy, balanced accuracy, AUC, log-loss and more, with confidence intervals.

sample_weight: how many rows of the population each row represents. Values are then those of a table in which each row
is repeated according to its weight; confidence intervals are based on the actual rows, not on the repeated ones.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fairveil._utils.errors import InputError
from fairveil._utils.weights import Array, effective_rows, normalised
from fairveil.metrics.estimate import (
    Estimate,
    check_confidence,
    clopper_pearson,
    of_mean,
    same_length,
    share,
    weights_of,
)


def accuracy(
    predicted: ArrayLike, truth: ArrayLike, confidence: float = 0.95, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Share of correct predictions, with the exact (Clopper-Pearson) interval.

    >>> f"{accuracy([1, 0, 1, 1], [1, 0, 0, 1]):.2f}"
    '0.75 [0.19, 0.99]'
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    return share(guess == right, confidence, weights_of(sample_weight, len(right), "truth"))


def balanced_accuracy(
    predicted: ArrayLike, truth: ArrayLike, confidence: float = 0.95, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Mean over classes of their recall: 1/K on average for predictions that are independent of the truth.

    The exact intervals of the classes are added in quadrature, separately for the lower and the upper side (method of
    variance estimates recovery, MOVER), so the interval remains usable if a class is small or always correct.

    >>> balanced_accuracy([0, 0, 0, 0], [0, 0, 0, 1]).value
    0.5
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    weights = weights_of(sample_weight, len(right), "truth")
    if weights is not None:  # a class whose rows all have weight 0 does not count
        guess, right, weights = guess[weights > 0], right[weights > 0], weights[weights > 0]
    classes, codes = np.unique(right, return_inverse=True)
    parts = [codes == code for code in range(len(classes))]
    each = [share((guess == right)[own], confidence, None if weights is None else weights[own]) for own in parts]
    value = float(np.mean([rate.value for rate in each]))
    below = float(np.sqrt(sum((rate.value - rate.low) ** 2 for rate in each)) / len(each))
    above = float(np.sqrt(sum((rate.value - rate.high) ** 2 for rate in each)) / len(each))
    return Estimate(value, max(0.0, value - below), min(1.0, value + above), len(right))


def roc_auc(
    score: ArrayLike, truth: ArrayLike, confidence: float = 0.95, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Area under the ROC curve of a binary truth, with DeLong's interval.

    >>> f"{roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]):.2f}"
    '0.75 [0.00, 1.00]'
    """
    scores, told = same_length(score=score, truth=truth)
    positive = told.astype(bool)
    weights = weights_of(sample_weight, len(told), "truth")
    mass = np.ones(len(told)) if weights is None else weights
    if not mass[positive].any() or not mass[~positive].any():
        raise InputError("The AUC needs rows of both classes.")
    value, below, above = _placements(scores.astype(np.float64), positive, mass)
    sides = [(below, mass[positive]), (above, mass[~positive])]
    variance = sum(_variance(part, side, value) for part, side in sides)
    sizes = [effective_rows(side, len(side)) for _, side in sides]
    low, high = _auc_interval(value, variance, min(sizes), max(sizes), check_confidence(confidence))
    return Estimate(value, low, high, len(scores))


#: In a class with fewer rows, the estimated variance is unreliable.
_FEW = 200
_AREAS = np.linspace(0.0, 1.0, 2001)
#: Areas and variances this close to a limit differ from it by rounding only.
_ROUNDING = 1e-12


def _auc_interval(value: float, variance: float, few: float, many: float, confidence: float) -> tuple[float, float]:
    """The range of areas within z standard errors of the observed one.

    The error is DeLong's or, for small classes and if larger, that of Hanley and McNeil at each area (Newcombe 2006):
    DeLong's is estimated from the rows, and a handful of rows is too few to estimate a variance. Small classes also get
    the exact interval of a share with the same variance: if positives are either above or below all negatives, the area
    is such a share, and its distribution is skewed.
    """
    z = float(stats.t.ppf(0.5 + confidence / 2, max(few - 1.0, 1.0)))
    ends = [value - z * np.sqrt(variance), value + z * np.sqrt(variance)]
    if few < _FEW:
        error = np.sqrt(np.maximum(variance, _hanley_mcneil(_AREAS, few, many)))
        inside = _AREAS[np.abs(_AREAS - value) <= z * error]
        ends += [float(end) for end in inside[[0, -1]]] if len(inside) else []
        if variance > _ROUNDING:
            rows = value * (1.0 - value) / variance
            ends += [float(end) for end in clopper_pearson(value * rows, rows, confidence)]
    if (
        min(value, 1.0 - value) < _ROUNDING
    ):  # perfectly separated classes: the variance estimate is 0, so use an exact binomial limit
        rare = 1.0 - ((1.0 - confidence) / 2) ** (1.0 / few)
        ends += [value - rare, value + rare]
    return max(0.0, float(min(ends))), min(1.0, float(max(ends)))


def _hanley_mcneil(areas: Array, rows: float, others: float) -> Array:
    """The variance of the AUC for each of these true values, with Newcombe's symmetric sizes."""
    mean = (rows + others) / 2
    inner = 2 * mean - 1 - (3 * mean - 3) / ((2 - areas) * (1 + areas))
    return np.asarray(areas * (1 - areas) * np.maximum(inner, 0.0) / (rows * others))


def _variance(placements: Array, mass: Array, mean: float) -> float:
    """The variance of a weighted mean of placements."""
    n = len(placements)
    return float(np.sum((mass / mass.sum() * (placements - mean)) ** 2) * n / (n - 1)) if n > 1 else 0.0


def weighted_auc(
    probabilities: ArrayLike, codes: ArrayLike, confidence: float = 0.95, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """One-vs-rest AUC, averaged with the shares of the classes; for two classes, the AUC.

    The interval is normal, from the influence of each row on every class's AUC (DeLong's method, applied to the mean).

    >>> weighted_auc([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], [0, 1, 2]).value
    1.0
    """
    p, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(codes, dtype=np.int64)
    present = np.unique(truth)
    if len(present) < 2:
        raise InputError("The AUC needs rows of at least two classes.")
    if p.shape[1] == 2:
        return roc_auc(p[:, 1], truth == 1, confidence, sample_weight=sample_weight)
    n = len(truth)
    value, influence = auc_influence(p, truth, sample_weight=sample_weight)
    half = float(stats.norm.ppf(0.5 + confidence / 2) * influence.std(ddof=1) / np.sqrt(n))
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), n)


def auc_influence(
    probabilities: ArrayLike, codes: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> tuple[float, Array]:
    """The AUC of `weighted_auc`, and the influence of each row on it; its standard error is their deviation / √n."""
    p, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(codes, dtype=np.int64)
    n = len(truth)
    weights = weights_of(sample_weight, n, "truth")
    mass = np.ones(n) if weights is None else normalised(weights)
    influence, value = np.zeros(n), 0.0
    for code in np.unique(truth):
        own = truth == code
        part = float(mass[own].sum()) / n
        if not 0.0 < part < 1.0:  # only rows of weight 0
            continue
        area, below, above = _placements(p[:, code], own, mass)
        value += part * area
        influence[own] += below - area
        influence[~own] += part * (above - area) / (1.0 - part)
    return value, np.asarray(mass * influence)


def _placements(score: Array, truth: NDArray[np.bool_], mass: Array) -> tuple[float, Array, Array]:
    """The AUC; for each positive row the share of negatives below it, for each negative that of positives above it."""
    of_negatives, of_positives = (np.where(side, mass, 0.0) / mass[side].sum() for side in (~truth, truth))
    below = _mass_below(score, of_negatives)[truth]
    above = 1.0 - _mass_below(score, of_positives)[~truth]
    return float(np.average(below, weights=mass[truth])), below, above


def _mass_below(values: Array, mass: Array) -> Array:
    """The weight of the rows below each one plus half the weight of its ties: a weighted mid-rank."""
    _, codes = np.unique(values, return_inverse=True)
    each = np.bincount(codes, mass)
    return np.asarray((np.cumsum(each) - each / 2)[codes])


def log_loss(
    probabilities: ArrayLike, codes: ArrayLike, confidence: float = 0.95, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Mean of -log of the probability of the true class, in nats: probabilities (rows, K), codes in 0..K-1.

    >>> round(log_loss([[0.5, 0.5], [0.5, 0.5]], [0, 1]).value, 4)
    0.6931
    """
    p: NDArray[np.float64] = np.asarray(probabilities, dtype=np.float64)
    chosen = np.asarray(codes, dtype=np.int64)
    if p.ndim != 2 or len(p) != len(chosen):
        raise InputError(f"Probabilities of shape {p.shape} do not fit {len(chosen)} true classes.")
    weights = weights_of(sample_weight, len(p), "codes")
    return of_mean(-np.log(np.clip(p[np.arange(len(p)), chosen], 1e-12, 1.0)), confidence, weights)


def r_squared(
    predicted: ArrayLike, truth: ArrayLike, center: float, confidence: float = 0.95, *,
    sample_weight: ArrayLike | None = None,
) -> Estimate:  # fmt: skip
    """Share of the squared error around `center` that the predictions explain; interval by the delta method.

    >>> r_squared([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 2.0).value
    1.0
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    errors = (right.astype(np.float64) - guess.astype(np.float64)) ** 2
    spread = (right.astype(np.float64) - center) ** 2
    weights = weights_of(sample_weight, len(right), "truth")
    scale = float(np.average(spread, weights=weights))
    ratio = float(np.average(errors, weights=weights)) / scale
    influence = of_mean((errors - ratio * spread) / scale, confidence, weights)
    return Estimate(1.0 - ratio, 1.0 - ratio - (influence.high - influence.value),
                    1.0 - ratio + (influence.high - influence.value), len(right))  # fmt: skip


def rank_correlation(
    a: ArrayLike, b: ArrayLike, confidence: float = 0.95, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """Spearman's correlation, with the interval of Bonett and Wright; 0 if one side is constant."""
    x, y = same_length(a=a, b=b)
    weights = weights_of(sample_weight, len(x), "a")
    mass = np.ones(len(x)) if weights is None else normalised(weights)
    some, rows = mass > 0, effective_rows(mass, len(x))
    if rows < 5 or len(np.unique(x[some])) == 1 or len(np.unique(y[some])) == 1:
        return Estimate(0.0, -1.0, 1.0, len(x))
    ranks = np.stack([_mass_below(values.astype(np.float64), mass) for values in (x, y)])
    spread = np.cov(ranks, aweights=mass)
    value = float(np.clip(spread[0, 1] / np.sqrt(spread[0, 0] * spread[1, 1]), -1.0, 1.0))
    error = np.sqrt((1.0 + value**2 / 2.0) / (rows - 3))
    half = float(stats.norm.ppf(0.5 + check_confidence(confidence) / 2) * error)
    middle = np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12))
    return Estimate(value, float(np.tanh(middle - half)), float(np.tanh(middle + half)), len(x))
