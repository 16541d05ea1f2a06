"""Upper confidence bounds on the total variation between two groups' distributions over finitely many cells.

TV(P, Q) is P(A) - Q(A) for one fixed set A of cells, unknown but not random. The observed total variation is the
largest observed difference over all sets, so it is at least the observed difference on A. Every bound here uses this: a
true TV of d is rejected if a difference on A as small as the observed TV is improbable. No union over sets is needed,
and the number of cells does not enter, except through the observed value itself.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from fairveil._utils.weights import Array
from fairveil.metrics import clopper_pearson

Counts = NDArray[np.int64]

#: Precision of a bound, and the width at which an interval of probabilities is no longer split, as shares of
#: sqrt(1/n + 1/m). Such an interval counts as one that holds a compatible pair, so the bound remains valid.
_PRECISION, _NARROWEST = 0.008, 0.03
_NARROWEST_OF_ALL = 4e-4
#: Binomial outcomes are considered up to this many standard deviations (and a constant) from the mean. By Bernstein's
#: inequality the others have a probability below `_IGNORED`, which is added.
_DEVIATIONS, _FURTHER, _IGNORED = 8.0, 20.0, 1e-12
#: Pairs of probabilities that are evaluated at once.
_AT_ONCE = 64
#: The smallest mean count per cell and group for which the asymptotic bound is used.
FEWEST_PER_CELL = 5


def total_variation(p: Array, q: Array) -> float:
    """Half the sum of absolute differences."""
    return float(0.5 * np.abs(p - q).sum())


def observed_variation(first: Counts, second: Counts) -> float:
    """The total variation of the observed frequencies."""
    return total_variation(first / max(first.sum(), 1), second / max(second.sum(), 1))


@lru_cache(maxsize=4096)
def binomial_bound(observed: float, n: int, m: int, level: float) -> float:
    """Bound from the observed TV of one independent cell per row; it fails with probability at most `level`.

    The difference on A is that of two independent binomial frequencies. The bound is the largest d for which some pair
    of probabilities with difference d gives a difference of at most `observed` with probability above `level`. Its
    margin is about 0.82 sqrt(1/n + 1/m) at level 0.05.

    >>> round(binomial_bound(0.0, 5000, 5000, 0.05), 3)
    0.017
    """
    if not n or not m or observed >= 1.0:
        return 1.0
    unit = math.sqrt(1 / n + 1 / m)
    low, high = max(observed, 0.0), hoeffding_bound(observed, n, m, level)
    while high - low > _PRECISION * unit:
        middle = (low + high) / 2
        low, high = (low, middle) if _incompatible(observed, n, m, middle, level) else (middle, high)
    return high


def hoeffding_bound(observed: float, n: int, m: int, level: float, reach: tuple[float, float] = (1.0, 1.0)) -> float:
    """The same for rows whose exact cell probabilities are averaged, instead of one draw per row.

    The frequency of A is then a mean of independent numbers within an interval of length `reach`: the contraction
    coefficient of the group's channel.
    """
    if not n or not m:
        return 1.0
    spread = reach[0] ** 2 / n + reach[1] ** 2 / m
    return min(1.0, observed + math.sqrt(spread * math.log(1.0 / level) / 2.0))


def people_bound(observed: float, first: Counts, second: Counts, level: float) -> float:
    """The same for people with several rows, all of them independent of other people's: by McDiarmid's inequality.

    first, second: the number of rows in each group of every person (0 where a person has none).
    """
    n, m = int(first.sum()), int(second.sum())
    if not n or not m:
        return 1.0
    most = np.square(first / n + second / m).sum()
    return min(1.0, observed + math.sqrt(float(most) * math.log(1.0 / level) / 2.0))


def interval_bound(first: Counts, second: Counts, level: float) -> float:
    """Bound from simultaneous exact intervals of all cells, and the worst case within them: for few or rare cells."""
    n, m = int(first.sum()), int(second.sum())
    if not n or not m:
        return 1.0
    each = 1.0 - level / (len(first) + len(second))
    low, high = clopper_pearson(first, n, each)
    low2, high2 = clopper_pearson(second, m, each)
    # For a set A of cells, max P(A) = min(high(A), 1 - low(not A)) and min Q(A) = max(low2(A), 1 - high2(not A)).
    # Maximising over A is a knapsack problem; its linear relaxation can only be larger, so it is still an upper bound.
    k = len(first)
    upper = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, -1.0]])
    rows = np.hstack([upper, np.vstack([-high, -low, low2, high2]).reshape(4, k)])
    limits = np.array([0.0, 1.0 - low.sum(), 0.0, high2.sum() - 1.0])
    found = optimize.linprog(np.concatenate([[-1.0, 1.0], np.zeros(k)]), A_ub=rows, b_ub=limits,
                             bounds=[(0, 1), (0, 1)] + [(0, 1)] * k, method="highs")  # fmt: skip
    return min(1.0, max(0.0, -float(found.fun))) if found.status == 0 else 1.0


def asymptotic_bound(first: Counts, second: Counts, level: float) -> float:
    """Bound for many rows per cell: the expected excess of the observed TV over the true one is removed.

    The observed difference of a cell is close to normal with mean d_k and deviation s_k, so its absolute value exceeds
    |d_k| in expectation: that of a folded normal. Among all differences with a given TV, the expectation of the
    observed TV is smallest if all d_k are the same multiple of s_k (the expectation is convex in d_k), so the true TV
    is rejected if even that expectation is too far above the observed value. Empty and nearly empty cells are pooled.
    """
    n, m = int(first.sum()), int(second.sum())
    if not n or not m:
        return 1.0
    first, second = _pooled(first, second)
    pooled = (first + second) / (n + m)
    deviations = np.sqrt(pooled * (1.0 - pooled) * (1.0 / n + 1.0 / m))
    half, quantile = 0.5 * float(deviations.sum()), float(stats.norm.ppf(1.0 - level))
    observed = observed_variation(first, second)
    if half == 0.0:
        return 1.0

    def excess(multiple: float) -> float:
        mean = math.sqrt(2.0 / math.pi) * math.exp(-(multiple**2) / 2.0) + multiple * math.erf(multiple / math.sqrt(2))
        spread = 0.5 * math.sqrt((1.0 / n + 1.0 / m) * (1.0 + multiple**2 - mean**2))
        return half * mean - quantile * spread - observed

    most = 1.0 / half
    if excess(0.0) >= 0.0:
        return 0.0
    return min(1.0, half * float(optimize.brentq(excess, 0.0, most))) if excess(most) > 0.0 else 1.0


def _pooled(first: Counts, second: Counts) -> tuple[Counts, Counts]:
    """Cells whose smaller group expects fewer than `FEWEST_PER_CELL` rows, merged into one."""
    share = (first + second) / (first.sum() + second.sum())
    small = share * min(first.sum(), second.sum()) < FEWEST_PER_CELL
    return tuple(np.append(counts[~small], counts[small].sum()) for counts in (first, second))  # type: ignore[return-value]


def _incompatible(observed: float, n: int, m: int, difference: float, level: float) -> bool:
    """Whether, for every p and q = p - difference, two frequencies differ by at most `observed` with probability <=
    `level`.

    The probability falls in p and rises in q: on an interval of p it is at most its value at the lowest p and the
    highest q. Intervals for which this is not small enough are split.
    """
    narrowest = max(_NARROWEST * math.sqrt(1 / n + 1 / m), _NARROWEST_OF_ALL)
    edges = np.linspace(difference, 1.0, 33)
    low, high = edges[:-1], edges[1:]
    while True:
        above = _difference_tail(observed, n, low, m, high - difference) > level
        low, high = low[above], high[above]
        if not len(low):
            return True
        middle = (low + high) / 2
        if np.any(_difference_tail(observed, n, middle, m, middle - difference) > level):
            return False
        if np.any(high - low <= narrowest):
            return False
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])


def _difference_tail(most: float, n: int, p: Array, m: int, q: Array) -> Array:
    """P(X / n - Y / m <= most) for independent binomial X and Y, for arrays of their probabilities."""
    parts = [slice(start, start + _AT_ONCE) for start in range(0, len(p), _AT_ONCE)]
    return np.concatenate([_tails(most, n, p[part], m, q[part]) for part in parts])


def _tails(most: float, n: int, p: Array, m: int, q: Array) -> Array:
    first, x = _binomial(n, p)
    start, y = _binomial(m, q)
    below = np.pad(np.cumsum(x, axis=1), ((0, 0), (1, 0)))  # P(X < first + i)
    values = start[:, None] + np.arange(y.shape[1])
    reached = np.floor(n * (most + values / m) + 1e-9) - first[:, None] + 1.0
    index = np.clip(reached, 0, x.shape[1]).astype(np.int64)
    return np.asarray((np.take_along_axis(below, index, axis=1) * y).sum(axis=1) + 4.0 * _IGNORED)


def _binomial(n: int, p: Array) -> tuple[Array, Array]:
    """Probabilities of the outcomes around the mean, (len(p), outcomes), and the first of these outcomes."""
    around = math.ceil(_DEVIATIONS * math.sqrt(n) / 2 + _FURTHER)
    first = np.floor(n * p) - around
    k = first[:, None] + np.arange(2 * around + 2)
    inside = (k >= 0) & (k <= n)
    k = np.clip(k, 0, n)
    p = np.clip(p, 1e-300, 1.0 - 1e-16)[:, None]
    logs = _log_choices(n)[k.astype(np.int64)] + k * np.log(p) + (n - k) * np.log1p(-p)
    return first, np.where(inside, np.exp(logs), 0.0)


@lru_cache(maxsize=2)
def _log_choices(n: int) -> Array:
    """The logarithm of n over k, for k = 0..n."""
    k = np.arange(n + 1)
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1))
