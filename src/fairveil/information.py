"""Mutual information between a release and S in nats, from samples: k-NN estimates, and lower and upper bounds.

Values are never clipped: estimates of small values may be negative.

Examples
--------
>>> import numpy as np
>>> import fairveil as fv
>>> x = np.random.default_rng(0).normal(size=(500, 1))
>>> abs(fv.information.knn_mutual_information(x, [0, 1] * 250)) < 0.1  # nothing to find
True
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from scipy.spatial import cKDTree

from fairveil._utils.errors import InputError
from fairveil._utils.weights import check_weights
from fairveil.metrics import Estimate, of_mean

Array = NDArray[np.float64]

#: Up to this many dimensions, a k-d tree is faster than comparing all pairs.
_TREE_DIMENSIONS = 8
#: Batch size, in pairs, for comparing all pairs: limits the memory to 32 MiB per thread.
_PAIRS = 2**22


def knn_entropy(x: ArrayLike, k: int = 5) -> float:
    """Differential entropy in nats (`eq:k-nn-entropy-est`): psi(n) - psi(k) + log c_d + d/n sum log r_i.

    r_i: Euclidean distance to the k-th nearest other sample; c_d: volume of the unit ball. Needs samples without ties.

    >>> sample = np.random.default_rng(0).normal(size=(20000, 1))
    >>> abs(knn_entropy(sample) - 0.5 * math.log(2 * math.pi * math.e)) < 0.02
    True
    """
    points = _points(x)
    n, d = points.shape
    _check_k(k, n)
    radius = _kth_distance(points, points, k, same=True)
    if np.any(radius == 0):
        raise InputError("knn_entropy needs samples without ties: use mixed_mutual_information for discrete releases.")
    ball = d / 2 * math.log(math.pi) - special.gammaln(1 + d / 2)
    return float(special.digamma(n) - special.digamma(k) + ball + d * np.log(radius).mean())


def knn_mutual_information(x: ArrayLike, s: ArrayLike, k: int = 5) -> float:
    """The paper's estimate of I(X; S) in nats: H(X) - sum_s P(s) H(X | S = s), each by `knn_entropy`."""
    points, classes, codes = _labelled(x, s)
    total = knn_entropy(points, k)
    for value in range(classes):
        inside = codes == value
        total -= float(inside.mean()) * knn_entropy(points[inside], k)
    return total


def mixed_mutual_information(x: ArrayLike, s: ArrayLike, k: int = 5) -> float:
    """I(X; S) in nats for a discrete S and an X that may be continuous, discrete or both (Ross 2014, Gao et al. 2017).

    For each sample: the distance to its k-th neighbour within its class, and the number of other samples, of its class
    and of any class, at or within that distance. With ties, more than k samples of the class are; counting ties on one
    side only would bias the estimate upwards. The common radius cancels most of the bias of the entropies.

    >>> x = np.repeat([0.0, 1.0], 500)
    >>> abs(mixed_mutual_information(x, x) - math.log(2)) < 0.01  # X is S: log 2, however many ties
    True
    """
    points, classes, codes = _labelled(x, s)
    n = len(points)
    radius = np.empty(n)
    sizes = np.bincount(codes)
    for value in range(classes):
        inside = codes == value
        _check_k(k, int(inside.sum()))
        radius[inside] = _kth_distance(points[inside], points[inside], k, same=True)
    reach = radius * (1.0 + 1e-9)  # tolerance for ties that differ by rounding
    near = np.empty(n)
    for value in range(classes):
        inside = codes == value
        near[inside] = np.maximum(_count_within(points[inside], points[inside], reach[inside]) - 1.0, k)
    around = np.maximum(_count_within(points, points, reach) - 1.0, near)
    terms = special.digamma(near) - special.digamma(sizes[codes]) - special.digamma(around)
    return float(special.digamma(n) + terms.mean())


@dataclass(frozen=True)
class KnnEstimate:
    """A nearest-neighbour estimate with its error.

    value: nats. error: 95 % half-width of the random error (from the spread over disjoint parts of the sample) plus
    the bias (extrapolated from the change when the sample is halved; it decreases slowly in many dimensions).
    """

    value: float
    error: float
    rows: int


def mutual_information_with_error(
    x: ArrayLike, s: ArrayLike, k: int = 5, *, parts: int = 8, seed: int = 0
) -> KnnEstimate:
    """`mixed_mutual_information` with an error that includes its bias.

    The bias decreases as (k/n)^(2/d), so each doubling of the sample leaves 2^(-2/d) of it: the remaining bias follows
    from the change between n/2 and n, and in many dimensions most of it remains.
    """
    points, _, codes = _labelled(x, s)
    smallest = int(np.bincount(codes).min())
    parts = min(parts, smallest // (k + 1))
    if parts < 2:
        raise InputError(f"The smallest class has {smallest} samples: an error needs at least {2 * (k + 1)}.")
    # Sorted by class, in random order within each: every part is stratified.
    order = np.random.default_rng(seed).permutation(len(points))
    order = order[np.argsort(codes[order], kind="stable")]

    def mean_of(count: int) -> list[float]:
        return [mixed_mutual_information(points[order[i::count]], codes[order[i::count]], k) for i in range(count)]

    singles = mean_of(parts)
    half = float(np.mean(mean_of(2)))
    value = mixed_mutual_information(points, codes, k)
    chance = stats.t.ppf(0.975, parts - 1) * float(np.std(singles, ddof=1)) / math.sqrt(parts)
    left = 2.0 ** (-2.0 / points.shape[1])
    return KnnEstimate(value, float(chance + abs(value - half) * left / (1.0 - left)), len(points))


class ProbabilityModel(Protocol):
    """A classifier with scikit-learn's interface."""

    def fit(self, X: Any, y: Any) -> Any:
        """Fit."""
        ...

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of the classes, in sorted order."""
        ...


@dataclass(frozen=True)
class Bracket:
    """Bounds on I(X; S) in nats, each with its own confidence interval; upper only if the channel is known."""

    lower: Estimate
    upper: Estimate | None
    model: str


def information_bracket(
    x: ArrayLike,
    s: ArrayLike,
    *,
    models: Sequence[Callable[[], ProbabilityModel]] | None = None,
    log_density: Callable[[Array, Array], Array] | None = None,
    source: ArrayLike | None = None,
    folds: int = 5,
    seed: int = 0,
    confidence: float = 0.95,
) -> Bracket:
    """Two bounds on I(X; S).

    Lower: H(S) minus the held-out log-loss of a model, which is a lower bound for any model. Each fold is scored by the
    model that did best on rows *inside* its training part, so trying several models keeps the bound valid.

    Upper: for a release drawn from a known channel, log_density(x, source) gives log p(x_i | source_j), (n, m). The
    class density is averaged over the rows of the class including its own source, the marginal without it; by Jensen's
    inequality the first is biased upwards and the second downwards.
    """
    from sklearn.model_selection import StratifiedKFold

    points, _, codes = _labelled(x, s)
    choices = list(models) if models is not None else default_models(seed)
    scores = np.empty(len(points))
    wins: dict[str, int] = {}
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(points, codes):
        factory = _best_model(choices, points[train], codes[train], seed)
        fitted = factory().fit(points[train], codes[train])
        prior = np.bincount(codes[train]) / len(train)
        told = np.asarray(fitted.predict_proba(points[test]), dtype=np.float64)
        scores[test] = _gains(told, codes[test], prior)
        name = type(fitted).__name__
        wins[name] = wins.get(name, 0) + 1
    upper = None
    if log_density is not None:
        upper = channel_information(points, codes, log_density, points if source is None else source, confidence)
    return Bracket(of_mean(scores, confidence), upper, max(wins, key=lambda name: wins[name]))


def predicted_information(
    probabilities: ArrayLike, codes: ArrayLike, confidence: float = 0.95, *, sample_weight: ArrayLike | None = None
) -> Estimate:
    """A lower bound on I(X; S) in nats: H(S) minus the log-loss of predictions (rows, K) for held-out rows.

    H(S) is that of these rows, not of the training rows: a prediction that ignores X gains nothing.

    >>> round(predicted_information([[1.0, 0.0], [0.0, 1.0]], [0, 1]).value, 4)  # S is told: log 2
    0.6931
    """
    told, chosen = np.asarray(probabilities, dtype=np.float64), np.asarray(codes, dtype=np.int64)
    weights = None if sample_weight is None else check_weights(sample_weight, len(chosen), "codes")
    shares = np.bincount(chosen, weights, minlength=told.shape[1])
    return of_mean(_gains(told, chosen, shares / shares.sum()), confidence, weights)


def channel_information(
    x: ArrayLike,
    s: ArrayLike,
    log_density: Callable[[Array, Array], Array],
    source: ArrayLike,
    confidence: float = 0.95,
) -> Estimate:
    """An upper bound on I(X; S) in nats for a release x drawn from a known channel: see `information_bracket`."""
    points, _, codes = _labelled(x, s)
    return of_mean(_channel_terms(log_density, points, _points(source), codes), confidence)


def default_models(seed: int = 0) -> list[Callable[[], ProbabilityModel]]:
    """Logistic regression, quadratic discriminant, boosted trees: linear, quadratic and piecewise-constant log-odds."""
    from lightgbm import LGBMClassifier
    from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression

    return [
        lambda: LogisticRegression(max_iter=500),
        lambda: QuadraticDiscriminantAnalysis(reg_param=1e-3),
        lambda: LGBMClassifier(
            n_estimators=100, learning_rate=0.05, num_leaves=15, n_jobs=0, verbose=-1, random_state=seed
        ),
    ]


def _best_model(
    choices: Sequence[Callable[[], ProbabilityModel]], x: Array, codes: NDArray[np.int64], seed: int
) -> Callable[[], ProbabilityModel]:
    if len(choices) == 1:
        return choices[0]
    order = np.random.default_rng(seed).permutation(len(x))
    cut = len(x) * 3 // 4
    fit, judge = order[:cut], order[cut:]
    prior = np.bincount(codes[fit]) / len(fit)
    gains = [_gains(np.asarray(make().fit(x[fit], codes[fit]).predict_proba(x[judge])), codes[judge], prior).mean()
             for make in choices]  # fmt: skip
    return choices[int(np.argmax(gains))]


def _gains(probabilities: Array, codes: NDArray[np.int64], prior: Array) -> Array:
    """log P(s | x) - log P(s) at the s of each row."""
    told = np.clip(probabilities[np.arange(len(codes)), codes], 1e-12, 1.0)
    return np.asarray(np.log(told) - np.log(np.clip(prior[codes], 1e-12, 1.0)))


def _channel_terms(
    log_density: Callable[[Array, Array], Array], x: Array, source: Array, codes: NDArray[np.int64]
) -> Array:
    n = len(x)
    terms = np.empty(n)
    step = max(1, _PAIRS // n)
    sizes = np.bincount(codes)
    for start in range(0, n, step):
        rows = np.arange(start, min(start + step, n))
        logs = log_density(x[rows], source)
        same = codes[rows][:, None] == codes[None, :]
        inside = special.logsumexp(np.where(same, logs, -np.inf), axis=1) - np.log(sizes[codes[rows]])
        others = logs.copy()
        others[np.arange(len(rows)), rows] = -np.inf
        terms[rows] = inside - (special.logsumexp(others, axis=1) - math.log(n - 1))
    return terms


def _kth_distance(points: Array, among: Array, k: int, *, same: bool) -> Array:
    """Distance to the k-th nearest of `among`; with `same`, excluding the point itself."""
    k = k + 1 if same else k
    if points.shape[1] <= _TREE_DIMENSIONS:
        return np.asarray(cKDTree(among).query(points, k=[k], workers=-1)[0][:, 0])
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(among).kneighbors(points, return_distance=False)
    # The product form of the distance suffers from cancellation, so recompute it from the two points.
    return np.asarray(np.linalg.norm(points - among[nearest[:, k - 1]], axis=1))


def _count_within(points: Array, among: Array, radius: Array) -> Array:
    """The number of points of `among` within each point's radius, including the point itself."""
    if points.shape[1] <= _TREE_DIMENSIONS:
        counts = cKDTree(among).query_ball_point(points, radius, return_length=True, workers=-1)
        return np.asarray(counts, dtype=np.float64)
    scale = float(np.abs(among).max()) ** 2 + 1e-300
    limit = radius**2 + 1e-12 * scale  # the product below suffers from cancellation
    # |a - b|^2 <= r^2, rearranged so that each pair costs one product and one comparison.
    doubled, lengths = 2.0 * among.T, (among**2).sum(axis=1)
    reach = (points**2).sum(axis=1) - limit
    step = max(1, _PAIRS // len(among))

    def count(start: int) -> Array:
        rows = slice(start, start + step)
        products = points[rows] @ doubled
        products -= lengths
        return np.asarray(np.count_nonzero(products >= reach[rows, None], axis=1), dtype=np.float64)

    with ThreadPoolExecutor() as pool:
        return np.asarray(np.maximum(np.concatenate(list(pool.map(count, range(0, len(points), step)))), 1.0))


def _points(x: ArrayLike) -> Array:
    points = np.asarray(x, dtype=np.float64)
    if points.ndim == 1:
        points = points[:, None]
    if points.ndim != 2 or not points.size:
        raise InputError(f"Samples must be a matrix, one row a sample. Got shape {points.shape}.")
    if not np.isfinite(points).all():
        raise InputError("Samples must hold finite numbers.")
    return points


def _labelled(x: ArrayLike, s: ArrayLike) -> tuple[Array, int, NDArray[np.int64]]:
    points = _points(x)
    labels = np.asarray(s)
    if labels.shape != (len(points),):
        raise InputError(f"There are {len(points)} samples but S has shape {labels.shape}.")
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise InputError("S holds one single value: there is no information to measure.")
    return points, len(names), codes.astype(np.int64)


def _check_k(k: int, n: int) -> None:
    if not 1 <= k < n:
        raise InputError(f"k must be at least 1 and below the {n} samples (of the smallest class). Got {k}.")
