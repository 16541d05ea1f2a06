"""Gaussian optimal transport: maps, Bures distance and barycentre; the best noise for groups that still differ.

For S seen, groups N(m_s, C_s) that are moved to one Gaussian by optimal transport tell nothing of S. Of all targets,
the barycentre costs least: sum_s w_s (|m_s - m|^2 + B(C_s, C)^2) with the Bures distance B. With equal covariances this
is a shift of the means, as in `gaussian.informed_noise` once its budget suffices.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairveil._utils.errors import InputError

Array = NDArray[np.float64]

#: Eigenvalues below this fraction of the largest count as 0.
_SMALLEST = 1e-12
#: Fixed-point iterations of the barycentre, and when they stop: the relative change of the matrix.
_MOST_ITERATIONS, _SETTLED = 100, 1e-9
#: Steps of the search for the best noise.
_STEPS = 100


def matrix_power(matrix: Array, power: float) -> Array:
    """A power of a symmetric positive semi-definite matrix; on its range if the power is negative."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > _SMALLEST * max(float(values[-1]), 1e-300)
    powers = np.where(kept, np.where(kept, values, 1.0) ** power, 0.0)
    return np.asarray((vectors * powers) @ vectors.T)


def transport_map(source: ArrayLike, target: ArrayLike) -> Array:
    """The matrix T with T C T = C': it moves N(0, C) to N(0, C') at the least squared distance.

    >>> transport_map([[4.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 9.0]])
    array([[0.5, 0. ],
           [0. , 3. ]])
    """
    before, after = _covariances([source, target])
    half, inverse = matrix_power(before, 0.5), matrix_power(before, -0.5)
    return np.asarray(inverse @ matrix_power(half @ after @ half, 0.5) @ inverse)


def bures_distance(first: ArrayLike, second: ArrayLike) -> float:
    """The 2-Wasserstein distance of N(0, C) and N(0, C'): tr C + tr C' - 2 tr (C^1/2 C' C^1/2)^1/2, squared.

    >>> bures_distance([[4.0]], [[1.0]])
    1.0
    """
    a, b = _covariances([first, second])
    half = matrix_power(a, 0.5)
    squared = np.trace(a) + np.trace(b) - 2.0 * np.trace(matrix_power(half @ b @ half, 0.5))
    return float(np.sqrt(max(float(squared), 0.0)))


def barycentre(covariances: ArrayLike, weights: ArrayLike) -> Array:
    """The covariance with the least weighted sum of squared Bures distances (Agueh and Carlier 2011).

    Fixed point of C = sum_s w_s (C^1/2 C_s C^1/2)^1/2, by the iteration of Alvarez-Esteban and others (2016). For
    covariances that commute, its square root is the mean of their square roots.

    >>> barycentre([[[4.0]], [[16.0]]], [0.5, 0.5])
    array([[9.]])
    """
    groups, shares = _covariances(covariances), _shares(weights)
    if len(groups) != len(shares):
        raise InputError(f"'weights' must hold {len(groups)} numbers, one per covariance. Got {len(shares)}.")
    centre = np.asarray(np.tensordot(shares, groups, axes=1))
    for _ in range(_MOST_ITERATIONS):
        half, inverse = matrix_power(centre, 0.5), matrix_power(centre, -0.5)
        mean = sum(w * matrix_power(half @ c @ half, 0.5) for w, c in zip(shares, groups, strict=True) if w > 0)
        following = inverse @ mean @ mean @ inverse
        moved = float(np.abs(following - centre).max())
        centre = following
        if moved <= _SETTLED * float(np.abs(centre).max()):
            break
    return (centre + centre.T) / 2


def group_information(means: ArrayLike, covariances: ArrayLike, weights: ArrayLike, noise: ArrayLike) -> float:
    """I(S; X + Z) in nats, Z ~ N(0, P), of Gaussian groups that differ little: its leading term.

    sum_s w_s (m_s' (C+P)^-1 m_s / 2 + tr ((C+P)^-1 (C_s - C))^2 / 4), with means relative to their common one and C the
    mean covariance.
    """
    around, apart, shares, common = _differences(means, covariances, weights)
    inverse = _inverse(common + np.asarray(noise, dtype=np.float64))
    return _information(around, apart, shares, inverse)


def group_noise(means: ArrayLike, covariances: ArrayLike, weights: ArrayLike, budget: float) -> Array:
    """The noise covariance P of trace `budget` that leaves the least `group_information`.

    For two groups of equal covariance it is `gaussian.optimal_noise`, of rank one. Its gradient is minus half the mean
    outer product of the gradients of log P(s | x): noise belongs where a small change of x tells most of S. Solved by
    exponentiated gradients, which keep P positive and of trace D. If the groups do not differ, the noise is white.
    """
    around, apart, shares, common = _differences(means, covariances, weights)
    size = len(common)
    if not 0.0 <= budget < np.inf:
        raise InputError(f"A budget must be a finite number of at least 0. Got {budget!r}.")
    log, rate = np.zeros((size, size)), 1.0
    noise = best = budget / size * np.eye(size)
    inverse = _inverse(common + noise)
    least = _information(around, apart, shares, inverse)
    if budget == 0.0 or least <= _SMALLEST:
        return best
    for _ in range(_STEPS):
        slope = _slope(around, apart, shares, inverse)
        top = float(np.linalg.eigvalsh(slope)[-1])
        step = log + rate * slope / max(top, 1e-300)
        noise = _of_trace(step, budget)
        inverse = _inverse(common + noise)
        found = _information(around, apart, shares, inverse)
        if found < least:
            best, least, log, rate = noise, found, step, rate * 1.3
        else:
            rate /= 3.0
            inverse = _inverse(common + best)
            if rate < 1e-6:
                break
    return best


def _inverse(matrix: Array) -> Array:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _of_trace(log: Array, trace: float) -> Array:
    values, vectors = np.linalg.eigh((log + log.T) / 2)
    shares = np.exp(values - values[-1])
    return np.asarray((vectors * (trace * shares / shares.sum())) @ vectors.T)


def _differences(means: ArrayLike, covariances: ArrayLike, weights: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Means and covariances relative to the common ones, the weights, and the mean covariance."""
    groups, shares = _covariances(covariances), _shares(weights)
    centres = np.asarray(means, dtype=np.float64)
    if centres.shape != groups.shape[:2] or len(shares) != len(groups) or not np.isfinite(centres).all():
        raise InputError("'means', 'covariances' and 'weights' must describe the same groups by finite numbers.")
    common = np.asarray(np.tensordot(shares, groups, axes=1))
    return centres - shares @ centres, groups - common, shares, common


def _information(around: Array, apart: Array, shares: Array, inverse: Array) -> float:
    scaled = inverse @ apart
    spread = (scaled * scaled.transpose(0, 2, 1)).sum(axis=(1, 2))
    shift = ((around @ inverse) * around).sum(axis=1)
    return float(shares @ (shift / 2 + spread / 4))


def _slope(around: Array, apart: Array, shares: Array, inverse: Array) -> Array:
    """Minus twice the gradient of the information with respect to the noise."""
    shift = around @ inverse
    scaled = inverse @ apart
    spread = np.tensordot(shares, scaled @ scaled, axes=1) @ inverse
    return np.asarray((shift.T * shares) @ shift + (spread + spread.T) / 2)


def _shares(weights: ArrayLike) -> Array:
    shares = np.asarray(weights, dtype=np.float64)
    if shares.ndim != 1 or not np.isfinite(shares).all() or (shares < 0).any() or not shares.sum() > 0:
        raise InputError("'weights' must be a vector of numbers of at least 0, not all 0.")
    return np.asarray(shares / shares.sum())


def _covariances(matrices: Any) -> Array:
    try:
        found = np.asarray(matrices, dtype=np.float64)
    except ValueError:
        raise InputError("Covariances must be square matrices of one size.") from None
    if found.ndim != 3 or found.shape[1] != found.shape[2] or not found.size:
        raise InputError(f"Covariances must be square matrices of one size. Got shape {found.shape}.")
    if not np.isfinite(found).all() or not np.allclose(found, found.transpose(0, 2, 1), rtol=1e-8, atol=1e-10):
        raise InputError("Covariances must be symmetric and finite.")
    return found
