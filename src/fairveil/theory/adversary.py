"""Optimal adversaries for discrete joint distributions (Table `table:gaploss`) and the entropies behind them.

A joint distribution is a matrix P(s, v): rows are values of S, columns values of the release V. Entropies are in nats.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from fairveil._utils.errors import InputError

Array = NDArray[np.float64]


def check_joint(joint: ArrayLike) -> Array:
    """A joint distribution as a matrix: non-negative, summing to 1."""
    matrix = np.asarray(joint, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise InputError(f"A joint distribution must be a matrix P(s, v). Got shape {matrix.shape}.")
    if not np.isfinite(matrix).all() or np.any(matrix < 0) or not math.isclose(float(matrix.sum()), 1.0, rel_tol=1e-9):
        raise InputError("A joint distribution must hold numbers of at least 0 that sum to 1.")
    return matrix


def posterior(joint: ArrayLike) -> Array:
    """P(s | v), column by column; the prior where P(v) = 0."""
    matrix = check_joint(joint)
    total = matrix.sum(axis=0)
    prior = matrix.sum(axis=1, keepdims=True)
    return np.where(total > 0, matrix / np.where(total > 0, total, 1.0), prior)


def tilted_posterior(joint: ArrayLike, alpha: float) -> Array:
    """The best adversary under alpha-loss (`eq:opt-h-alpha-loss`): P(s|v)^alpha, normalised; the MAP rule at infinity.

    >>> tilted_posterior([[0.3, 0.1], [0.1, 0.5]], 2.0).round(3)
    array([[0.9  , 0.038],
           [0.1  , 0.962]])
    """
    given, alpha = posterior(joint), _alpha(alpha)
    if math.isinf(alpha):
        best = np.isclose(given, given.max(axis=0, keepdims=True), rtol=1e-12)
        return np.asarray(best / best.sum(axis=0, keepdims=True))
    with np.errstate(divide="ignore"):
        return np.asarray(special.softmax(alpha * np.log(given), axis=0))


def alpha_loss(joint: ArrayLike, guess: ArrayLike, alpha: float) -> float:
    """E[ alpha/(alpha-1) (1 - guess(S|V)^((alpha-1)/alpha)) ] for any guess(s, v), a distribution in each column."""
    matrix, alpha = check_joint(joint), _alpha(alpha)
    probability = np.asarray(guess, dtype=np.float64)
    used = matrix > 0
    with np.errstate(divide="ignore"):
        log = np.log(probability[used])
    if alpha == 1.0:
        loss = -log
    else:
        power = 1.0 if math.isinf(alpha) else (alpha - 1.0) / alpha
        loss = -np.expm1(power * log) / power
    return float(np.sum(matrix[used] * loss))


def minimal_alpha_loss(joint: ArrayLike, alpha: float) -> float:
    """The minimum expected alpha-loss: alpha/(alpha-1) (1 - exp((1-alpha)/alpha H_alpha(S|V))) (Prop. `thm:alpha`).

    >>> round(minimal_alpha_loss([[0.3, 0.1], [0.1, 0.5]], float("inf")), 6)  # the error of the MAP rule
    0.2
    """
    alpha = _alpha(alpha)
    entropy = arimoto_conditional_entropy(joint, alpha)
    if alpha == 1.0:
        return entropy
    power = 1.0 if math.isinf(alpha) else (alpha - 1.0) / alpha
    return float(-math.expm1(-power * entropy) / power)


def map_error(joint: ArrayLike) -> float:
    """The error of the MAP adversary: 1 - sum_v max_s P(s, v)."""
    return float(1.0 - check_joint(joint).max(axis=0).sum())


def mmse(joint: ArrayLike, values: ArrayLike) -> float:
    """The error of the best squared-loss adversary, E[(S - E[S|V])^2], for S with these values.

    >>> round(mmse([[0.25, 0.25], [0.25, 0.25]], [0.0, 2.0]), 6)  # V tells nothing: the variance of S
    1.0
    """
    matrix = check_joint(joint)
    s = np.asarray(values, dtype=np.float64)
    if s.shape != (len(matrix),):
        raise InputError(f"S has {len(matrix)} values in the joint distribution; got {s.size} numbers for them.")
    guess = s @ posterior(matrix)
    return float(np.sum(matrix * (s[:, None] - guess[None, :]) ** 2))


def renyi_entropy(distribution: ArrayLike, alpha: float) -> float:
    """H_alpha = 1/(1-alpha) log sum p^alpha, with its limits: Shannon at 1, -log max p at infinity.

    >>> round(renyi_entropy([0.5, 0.25, 0.25], 1.0) / math.log(2), 6)
    1.5
    """
    p = np.asarray(distribution, dtype=np.float64)
    return arimoto_conditional_entropy(p.reshape(-1, 1), alpha)


def arimoto_conditional_entropy(joint: ArrayLike, alpha: float) -> float:
    """alpha/(1-alpha) log sum_v (sum_s P(s,v)^alpha)^(1/alpha), with its limits at 1 and infinity.

    (The paper prints 1/(1-alpha) log sum P^alpha, which is not Arimoto's and is inconsistent with its own Proposition.)
    """
    matrix, alpha = check_joint(joint), _alpha(alpha)
    if math.isinf(alpha):
        return float(-math.log(matrix.max(axis=0).sum()))
    shannon = float(special.entr(matrix).sum() - special.entr(matrix.sum(axis=0)).sum())
    if abs(alpha - 1.0) < 1e-9:
        return shannon
    with np.errstate(divide="ignore"):
        norms = special.logsumexp(alpha * np.log(matrix), axis=0) / alpha
    return float(alpha / (1.0 - alpha) * special.logsumexp(norms))


def arimoto_information(joint: ArrayLike, alpha: float) -> float:
    """I_alpha(S; V) = H_alpha(S) - H_alpha(S|V): 0 exactly when S and V are independent. Shannon's at alpha = 1."""
    matrix = check_joint(joint)
    return renyi_entropy(matrix.sum(axis=1), alpha) - arimoto_conditional_entropy(matrix, alpha)


def total_variation(joint: ArrayLike) -> float:
    """The largest total variation between P(v|s) and P(v|s'): the largest ΔDemP of any predictor on V."""
    matrix = check_joint(joint)
    given = matrix[matrix.sum(axis=1) > 0]
    given = given / given.sum(axis=1, keepdims=True)
    return float(max(0.5 * np.abs(a - b).sum() for a in given for b in given))


def _alpha(alpha: float) -> float:
    if not alpha > 0:
        raise InputError(f"alpha must be above 0, or infinity. Got {alpha!r}.")
    return float(alpha)
