"""How good a guess is: accuracy, balanced accuracy, AUC and log-loss, each with its interval."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from fairveil._utils.errors import InputError
from fairveil.metrics.estimate import Estimate, check_confidence, clopper_pearson, of_mean, proportion, same_length


def accuracy(predicted: ArrayLike, truth: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Share of right answers, with the exact (Clopper-Pearson) interval.

    >>> f"{accuracy([1, 0, 1, 1], [1, 0, 0, 1]):.2f}"
    '0.75 [0.19, 0.99]'
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    return proportion(int((guess == right).sum()), len(right), confidence)


def balanced_accuracy(predicted: ArrayLike, truth: ArrayLike, confidence: float = 0.95) -> Estimate:
    """The mean over classes of the share of their rows that is guessed right: 1/K for any guess that knows nothing.

    The interval is exact for each class and adds up in quadrature, lower and upper sides apart (a method of variance
    estimates recovery), so it stays sensible where a class is small or always right.

    >>> balanced_accuracy([0, 0, 0, 0], [0, 0, 0, 1]).value
    0.5
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    classes, codes = np.unique(right, return_inverse=True)
    sizes = np.bincount(codes)
    hits = np.bincount(codes, weights=guess == right)
    rates = hits / sizes
    low, high = clopper_pearson(hits, sizes, confidence)
    value = float(rates.mean())
    below, above = (float(np.sqrt(np.sum((rates - end) ** 2)) / len(classes)) for end in (low, high))
    return Estimate(value, max(0.0, value - below), min(1.0, value + above), len(right))


def roc_auc(score: ArrayLike, truth: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Area under the ROC curve of a binary truth, with DeLong's interval.

    >>> f"{roc_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]):.2f}"
    '0.75 [0.06, 1.00]'
    """
    scores, told = same_length(score=score, truth=truth)
    positive = told.astype(bool)
    if positive.all() or not positive.any():
        raise InputError("The AUC needs rows of both classes.")
    value, below, above = _placements(scores.astype(np.float64), positive)
    parts = [part.var(ddof=1) / len(part) if len(part) > 1 else 0.0 for part in (below, above)]
    half = float(stats.norm.ppf(0.5 + check_confidence(confidence) / 2) * np.sqrt(sum(parts)))
    if not sum(parts):  # perfectly told apart (or not at all): what so few rows can show
        half = 1.0 - ((1.0 - confidence) / 2) ** (1.0 / min(len(below), len(above)))
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), len(scores))


def weighted_auc(probabilities: ArrayLike, codes: ArrayLike, confidence: float = 0.95) -> Estimate:
    """AUC of each class against the rest, averaged with the weights of the classes; for two classes, the AUC.

    The interval is normal, from the influence of each row on every class's AUC (DeLong's, carried over to the mean).

    >>> weighted_auc([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], [0, 1, 2]).value
    1.0
    """
    p, truth = np.asarray(probabilities, dtype=np.float64), np.asarray(codes, dtype=np.int64)
    present = np.unique(truth)
    if len(present) < 2:
        raise InputError("The AUC needs rows of at least two classes.")
    if p.shape[1] == 2:
        return roc_auc(p[:, 1], truth == 1, confidence)
    n = len(truth)
    influence, value = np.zeros(n), 0.0
    for code in present:
        own = truth == code
        share = float(own.mean())
        area, below, above = _placements(p[:, code], own)
        value += share * area
        influence[own] += share * (below - area) / share
        influence[~own] += share * (above - area) / (1.0 - share)
    half = float(stats.norm.ppf(0.5 + confidence / 2) * influence.std(ddof=1) / np.sqrt(n))
    return Estimate(value, max(0.0, value - half), min(1.0, value + half), n)


def _placements(
    score: NDArray[np.float64], truth: NDArray[np.bool_]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """The AUC; for each positive row the share of negatives below it, for each negative that of positives above it."""
    positive, negative = score[truth], score[~truth]
    ranks = stats.rankdata(score)
    below = (ranks[truth] - stats.rankdata(positive)) / len(negative)
    above = 1.0 - (ranks[~truth] - stats.rankdata(negative)) / len(positive)
    return float(below.mean()), below, above


def log_loss(probabilities: ArrayLike, codes: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of -log of the probability given to the true class, in nats: probabilities (rows, K), codes in 0..K-1.

    >>> round(log_loss([[0.5, 0.5], [0.5, 0.5]], [0, 1]).value, 4)
    0.6931
    """
    p: NDArray[np.float64] = np.asarray(probabilities, dtype=np.float64)
    chosen = np.asarray(codes, dtype=np.int64)
    if p.ndim != 2 or len(p) != len(chosen):
        raise InputError(f"Probabilities of shape {p.shape} do not fit {len(chosen)} true classes.")
    return of_mean(-np.log(np.clip(p[np.arange(len(p)), chosen], 1e-12, 1.0)), confidence)


def r_squared(predicted: ArrayLike, truth: ArrayLike, center: float, confidence: float = 0.95) -> Estimate:
    """Share of the squared error around `center` that the predictions explain; interval by the delta method.

    >>> r_squared([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 2.0).value
    1.0
    """
    guess, right = same_length(predicted=predicted, truth=truth)
    errors = (right.astype(np.float64) - guess.astype(np.float64)) ** 2
    spread = (right.astype(np.float64) - center) ** 2
    ratio = float(errors.mean() / spread.mean())
    influence = of_mean((errors - ratio * spread) / spread.mean(), confidence)
    return Estimate(1.0 - ratio, 1.0 - ratio - (influence.high - influence.value),
                    1.0 - ratio + (influence.high - influence.value), len(right))  # fmt: skip


def rank_correlation(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Spearman's correlation, with the interval of Bonett and Wright; 0 where one side is constant."""
    x, y = same_length(a=a, b=b)
    if len(x) < 5 or (x == x[0]).all() or (y == y[0]).all():
        return Estimate(0.0, -1.0, 1.0, len(x))
    value = float(stats.spearmanr(x, y).statistic)
    error = np.sqrt((1.0 + value**2 / 2.0) / (len(x) - 3))
    half = float(stats.norm.ppf(0.5 + check_confidence(confidence) / 2) * error)
    middle = np.arctanh(np.clip(value, -1 + 1e-12, 1 - 1e-12))
    return Estimate(value, float(np.tanh(middle - half)), float(np.tanh(middle + half)), len(x))
