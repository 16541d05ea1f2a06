"""Gaussian mixtures (Section `sec:gmm`): X | S=1 ~ N(mu, Sigma), X | S=0 ~ N(-mu, Sigma), P(S=1) = q.

An affine encoder releases X + beta + Z with Z ~ N(0, P), E|X_r - X|^2 = |beta|^2 + tr P <= D. A MAP adversary's success
depends on one number, the separation gamma = 2 sqrt(mu' (Sigma + P)^-1 mu): the distance of the two released means in
units of the released noise. All functions take mu, not 2 mu.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, linalg, optimize, special

from fairveil._utils.errors import InputError

Array = NDArray[np.float64]


def map_accuracy(separation: float, prior: float) -> float:
    """Accuracy of the best guess of a binary S from one Gaussian release (`eq:gaussianscheme0`).

    separation: Mahalanobis distance of the class means under the shared covariance, in [0, inf].
    prior: P(S=1) in (0, 1). As separation goes to 0 this is max(prior, 1 - prior); to infinity, 1.

    >>> round(map_accuracy(2.0, 0.5), 6)  # Phi(1)
    0.841345
    >>> map_accuracy(0.0, 0.75)
    0.75
    """
    separation, prior = _separation(separation), _prior(prior)
    if separation == 0.0:
        return max(prior, 1.0 - prior)
    if math.isinf(separation):
        return 1.0
    shift = math.log((1.0 - prior) / prior) / separation
    right = prior * special.ndtr(separation / 2 - shift) + (1.0 - prior) * special.ndtr(separation / 2 + shift)
    return float(right)


def mutual_information(separation: float, prior: float) -> float:
    """I(X_r; S) in nats, by quadrature along the discriminant: H(S) - E[h(P(S=1 | x))].

    >>> round(mutual_information(2.0, 0.5), 4)
    0.3368
    >>> mutual_information(0.0, 0.3)
    0.0
    """
    separation, prior = _separation(separation), _prior(prior)
    entropy = float(special.entr(prior) + special.entr(1.0 - prior))
    if separation == 0.0:
        return 0.0
    if separation > 60.0:
        return entropy
    odds = math.log(prior / (1.0 - prior))

    def rest(x: float) -> float:
        density = prior * _normal(x - separation / 2) + (1.0 - prior) * _normal(x + separation / 2)
        posterior = special.expit(odds + separation * x)
        return float(density * (special.entr(posterior) + special.entr(1.0 - posterior)))

    far = separation / 2 + 12.0
    boundary = -odds / separation
    points = sorted({min(max(p, -far), far) for p in (-separation / 2, boundary, separation / 2)})
    value, _ = integrate.quad(rest, -far, far, points=points, limit=400, epsabs=1e-13, epsrel=1e-11)
    return entropy - float(value)


def minimal_alpha_loss(separation: float, prior: float, alpha: float) -> float:
    """The minimum expected alpha-loss for a Gaussian release (Proposition `thm:alpha`), by quadrature.

    alpha/(alpha-1) (1 - integral of (sum_s P(s, x)^alpha)^(1/alpha) dx); log-loss at 1, the MAP error at infinity. For
    every alpha it decreases with the separation, so the same noise is optimal against all of these adversaries.

    >>> round(minimal_alpha_loss(2.0, 0.5, math.inf), 6)  # 1 - Phi(1)
    0.158655
    """
    separation, prior = _separation(separation), _prior(prior)
    if not alpha > 0:
        raise InputError(f"alpha must be above 0, or infinity. Got {alpha!r}.")
    if math.isinf(alpha):
        return 1.0 - map_accuracy(separation, prior)
    if alpha == 1.0:
        entropy = float(special.entr(prior) + special.entr(1.0 - prior))
        return entropy - mutual_information(separation, prior)
    if separation * min(1.0, alpha) > 60.0:
        return 0.0
    # In logarithms, so that powers of tiny densities do not underflow.
    first, second = math.log(prior), math.log(1.0 - prior)

    def lost(x: float) -> float:
        one, other = first - (x - separation / 2) ** 2 / 2, second - (x + separation / 2) ** 2 / 2
        return math.exp(np.logaddexp(one, other)) - math.exp(np.logaddexp(alpha * one, alpha * other) / alpha)

    # Integrating the difference to certainty, not the norm itself, keeps small losses exact.
    far = separation / 2 + 12.0 * max(1.0, 1.0 / math.sqrt(alpha))
    boundary = min(max(-(first - second) / separation, -far), far) if separation else 0.0
    points = sorted({-separation / 2, boundary, separation / 2})
    value, _ = integrate.quad(lost, -far, far, points=points, limit=400, epsabs=1e-13, epsrel=1e-11)
    return float(alpha / (alpha - 1.0) * value / math.sqrt(2.0 * math.pi))


def separation(mean: ArrayLike, covariance: ArrayLike, noise: ArrayLike | None = None) -> float:
    """gamma = 2 sqrt(mu' (Sigma + P)^-1 mu); vectors stand for diagonal matrices. Infinite if mu has a noiseless part.

    >>> separation([1.0, 0.0], [1.0, 1.0])
    2.0
    """
    mu = _vector("mean", mean)
    total = _matrix("covariance", covariance, len(mu))
    if noise is not None:
        total = total + _matrix("noise", noise, len(mu))
    values, vectors = np.linalg.eigh(total)
    along = vectors.T @ mu
    blank = values <= 1e-14 * max(float(values[-1]), 1e-300)
    if np.any(np.abs(along[blank]) > 1e-12 * max(float(np.linalg.norm(mu)), 1e-300)):
        return math.inf
    return 2.0 * math.sqrt(float(np.sum(along[~blank] ** 2 / values[~blank])))


def water_filling(mean: ArrayLike, variance: ArrayLike, budget: float) -> Array:
    """The optimal *diagonal* noise variances (Theorem `thm:PDI`): (|mu_i| nu - sigma_i^2)^+ with sum D.

    Exact: the level nu is found among the breakpoints sigma_i^2 / |mu_i|. A coordinate whose mean is 0 gets no noise;
    if all are 0, no noise is added, because there is nothing to hide.

    >>> water_filling([2.0, 1.0, 0.0], [1.0, 1.0, 1.0], 1.0).round(4)
    array([1., 0., 0.])
    >>> water_filling([2.0, 1.0, 0.0], [1.0, 1.0, 1.0], 4.0).round(4)
    array([3., 1., 0.])
    """
    mu = np.abs(_vector("mean", mean))
    sigma2 = _vector("variance", variance, len(mu))
    if np.any(sigma2 < 0):
        raise InputError("The 'variance' of water_filling must not be negative.")
    budget = _budget(budget)
    noise = np.zeros_like(mu)
    active = np.flatnonzero(mu > 0)
    if not len(active) or budget == 0.0:
        return noise
    with np.errstate(over="ignore"):  # a mean too small to divide by comes last
        order = active[np.argsort(sigma2[active] / mu[active], kind="stable")]
        breakpoints = sigma2[order] / mu[order]
        levels = (budget + np.cumsum(sigma2[order])) / np.cumsum(mu[order])
    # At least one: a budget that is negligible relative to a variance still goes to the first coordinate.
    count = int(np.flatnonzero(levels > breakpoints)[-1]) + 1 if np.any(levels > breakpoints) else 1
    chosen = order[:count]
    with np.errstate(invalid="ignore", over="ignore"):
        noise[chosen] = np.maximum(mu[chosen] * levels[count - 1] - sigma2[chosen], 0.0)
    if not 0 < noise.sum() < np.inf:
        noise[:] = 0.0
        noise[order[0]] = budget
    return np.asarray(noise * (budget / noise.sum()))


def optimal_noise(mean: ArrayLike, covariance: ArrayLike, budget: float) -> Array:
    """The optimal noise covariance when it need not be diagonal: D w w' / |w|^2 with w = (Sigma + D I)^-1 mu.

    Minimises mu' (Sigma + P)^-1 mu over P >= 0 with tr P <= D; the minimum is mu' (Sigma + D I)^-1 mu. Proof: for every
    w, mu' (Sigma + P)^-1 mu >= 2 w'mu - w' (Sigma + P) w, and tr P <= D gives w'Pw <= D |w|^2. So no P does better than
    max_w 2 w'mu - w' (Sigma + D I) w = mu' (Sigma + D I)^-1 mu, reached at this w; and with the P above that same w
    also maximises 2 w'mu - w' (Sigma + P) w, because (Sigma + P) w = Sigma w + D w = mu, so P attains the bound.

    >>> optimal_noise([1.0, 1.0], [1.0, 1.0], 2.0)
    array([[1., 1.],
           [1., 1.]])
    """
    mu = _vector("mean", mean)
    sigma = _matrix("covariance", covariance, len(mu))
    budget = _budget(budget)
    if budget == 0.0 or not np.any(mu):
        return np.zeros((len(mu), len(mu)))
    w = linalg.solve(sigma + budget * np.eye(len(mu)), mu, assume_a="pos")
    return np.asarray(budget * np.outer(w, w) / float(w @ w))


@dataclass(frozen=True)
class InformedNoise:
    """The optimum when the encoder sees S: shifts of the two classes, noise, and how the budget is split.

    shift_one, shift_zero: added to rows with S=1 and S=0. noise: covariance P. spent_on_shift + spent_on_noise = D, or
    less once S is hidden completely. separation: what remains.
    """

    shift_one: Array
    shift_zero: Array
    noise: Array
    spent_on_shift: float
    spent_on_noise: float
    separation: float


def perfect_budget(mean: ArrayLike, prior: float) -> float:
    """The finite D = 4 q (1-q) |mu|^2 at which an encoder that sees S hides it completely: the means coincide.

    >>> perfect_budget([3.0, 4.0], 0.5)
    25.0
    """
    mu, prior = _vector("mean", mean), _prior(prior)
    return float(4.0 * prior * (1.0 - prior) * (mu @ mu))


def informed_noise(mean: ArrayLike, covariance: ArrayLike, budget: float, prior: float) -> InformedNoise:
    """The optimal affine encoder that sees S: move the class means towards each other, then add rank-one noise.

    Reducing the half-distance mu to mu - t costs 4 q (1-q) |t|^2 if the rarer class moves more (shifts
    -2 (1-q) t and 2 q t); noise of trace n then leaves (mu - t)' (Sigma + n I)^-1 (mu - t). That is jointly convex in
    (t, P), so a one-dimensional search over n, with t in closed form for each, finds the optimum.
    """
    mu = _vector("mean", mean)
    sigma = _matrix("covariance", covariance, len(mu))
    budget, prior = _budget(budget), _prior(prior)
    price = 4.0 * prior * (1.0 - prior)
    values, vectors = np.linalg.eigh(sigma)
    along = vectors.T @ mu

    def shifted(noise: float) -> Array:
        """The best t, in the eigenbasis, if `noise` of the budget is spent on noise."""
        limit = math.sqrt(max(budget - noise, 0.0) / price)
        if limit >= float(np.linalg.norm(along)):
            return along
        weights = 1.0 / np.maximum(values + noise, 1e-300)

        def length(multiplier: float) -> float:
            return float(np.linalg.norm(weights * along / (weights + multiplier))) - limit

        high = float(weights.max())
        while length(high) > 0:
            high *= 4.0
        multiplier = float(optimize.brentq(length, 0.0, high, xtol=1e-300, rtol=1e-14)) if limit else math.inf
        return weights * along / (weights + multiplier) if limit else np.zeros_like(along)

    def left(noise: float) -> float:
        rest = along - shifted(noise)
        covered = np.maximum(values + noise, 1e-300)
        return float(np.sum(rest**2 / covered))

    best = optimize.minimize_scalar(
        left, bounds=(0.0, budget), method="bounded", options={"xatol": 1e-12 * (1 + budget)}
    )
    noise = min((0.0, float(best.x), budget), key=left)
    t = vectors @ shifted(noise)
    rest = mu - t
    covariance_of_noise = optimal_noise(rest, sigma, noise)
    hidden = float(np.linalg.norm(rest)) <= 1e-12 * max(float(np.linalg.norm(mu)), 1e-300)
    return InformedNoise(
        -2.0 * (1.0 - prior) * t,
        2.0 * prior * t,
        covariance_of_noise,
        float(price * (t @ t)),
        0.0 if hidden else noise,
        0.0 if hidden else separation(rest, sigma, covariance_of_noise),
    )


@dataclass(frozen=True)
class MonteCarlo:
    """A simulated number with its standard error."""

    value: float
    error: float


def multiclass(
    means: ArrayLike, covariance: ArrayLike, priors: ArrayLike, *, draws: int = 200_000, seed: int = 0
) -> tuple[MonteCarlo, MonteCarlo]:
    """MAP accuracy and mutual information (nats) for several classes that share a covariance.

    Simulated in the span of the means (at most classes - 1 dimensions); each draw counts by its exact posterior, so the
    errors are small. Classes are drawn exactly in proportion to their priors (stratified).
    """
    centres = np.atleast_2d(np.asarray(means, dtype=np.float64))
    sigma = _matrix("covariance", covariance, centres.shape[1])
    weights = _vector("priors", priors, len(centres))
    if np.any(weights <= 0) or not math.isclose(float(weights.sum()), 1.0, rel_tol=1e-9):
        raise InputError("The 'priors' must be above 0 and sum to 1.")
    white = linalg.solve_triangular(linalg.cholesky(sigma, lower=True), (centres - weights @ centres).T, lower=True).T
    _, singular, axes = np.linalg.svd(white, full_matrices=False)
    reduced = white @ axes[singular > 1e-12 * max(float(singular[0]), 1e-300)].T
    generator = np.random.default_rng(seed)
    accuracy, information = [0.0, 0.0], [0.0, 0.0]
    entropy = float(special.entr(weights).sum())
    for weight, centre in zip(weights, reduced, strict=True):
        x = centre + generator.standard_normal((max(int(draws * weight), 1000), reduced.shape[1]))
        logits = np.log(weights) - 0.5 * ((x[:, None, :] - reduced[None]) ** 2).sum(axis=2)
        posterior = special.softmax(logits, axis=1)
        for sums, values in ((accuracy, posterior.max(axis=1)), (information, special.entr(posterior).sum(axis=1))):
            sums[0] += float(weight * values.mean())
            sums[1] += float(weight**2 * values.var() / len(values))
    return (
        MonteCarlo(accuracy[0], math.sqrt(accuracy[1])),
        MonteCarlo(entropy - information[0], math.sqrt(information[1])),
    )


def _normal(x: float) -> float:
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _prior(prior: float) -> float:
    if not 0.0 < prior < 1.0:
        raise InputError(f"A prior must lie in (0, 1). Got {prior!r}.")
    return float(prior)


def _separation(value: float) -> float:
    if not value >= 0.0:
        raise InputError(f"A separation must be at least 0. Got {value!r}.")
    return float(value)


def _budget(budget: float) -> float:
    if not 0.0 <= budget < math.inf:
        raise InputError(f"A budget must be a finite number of at least 0. Got {budget!r}.")
    return float(budget)


def _vector(name: str, values: ArrayLike, length: int | None = None) -> Array:
    vector = np.asarray(values, dtype=np.float64)
    if vector.ndim != 1 or not len(vector) or (length is not None and len(vector) != length):
        expected = "" if length is None else f" of {length} numbers"
        raise InputError(f"'{name}' must be a vector{expected}. Got shape {vector.shape}.")
    if not np.isfinite(vector).all():
        raise InputError(f"'{name}' must hold finite numbers.")
    return vector


def _matrix(name: str, values: ArrayLike, size: int) -> Array:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim == 1:
        matrix = np.diag(matrix)
    if matrix.shape != (size, size):
        raise InputError(f"'{name}' must be a {size} x {size} matrix, or its diagonal. Got shape {matrix.shape}.")
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12):
        raise InputError(f"'{name}' must be symmetric and finite.")
    # A covariance computed in float32 may have eigenvalues this far below 0.
    if float(np.linalg.eigvalsh(matrix)[0]) < -1e-6 * max(float(np.abs(matrix).max()), 1e-300):
        raise InputError(f"'{name}' must be positive semidefinite.")
    return matrix


__all__ = [
    "InformedNoise",
    "MonteCarlo",
    "informed_noise",
    "map_accuracy",
    "multiclass",
    "mutual_information",
    "optimal_noise",
    "perfect_budget",
    "separation",
    "water_filling",
]
