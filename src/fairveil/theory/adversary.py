"""Optimal adversaries for discrete joint distributions (Table `table:gaploss`) and the entropies behind them.

A joint distribution is a matrix P(s, v): rows are values of S, columns values of the release V. Entropies are in nats.
"""

import math
from collections.abc import Sequence

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
    return float(np.sum(matrix[used] * _losses(probability[used], alpha)))


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


def subset_joint(joint: ArrayLike, sizes: Sequence[int], kept: Sequence[int]) -> Array:
    """P(s_kept, v) for some of several sensitive features, from the joint distribution of all of them with V.

    joint: P(s, v); its rows are the combinations of all features, the last feature changing fastest. sizes: the number
    of values of each feature. kept: positions of features. If V is independent of all features jointly, it is so of
    every subset (`thm:DemP_broadcasting`); the converse does not hold.

    >>> exclusive_or = np.array([[1, 0], [0, 1], [0, 1], [1, 0]]) / 4  # V = S_1 xor S_2
    >>> total_variation(exclusive_or), total_variation(subset_joint(exclusive_or, [2, 2], [0]))
    (1.0, 0.0)
    """
    matrix = check_joint(joint)
    if math.prod(sizes) != len(matrix):
        raise InputError(f"Features with {list(sizes)} values have {math.prod(sizes)} combinations, but the joint "
                         f"distribution has {len(matrix)} rows.")  # fmt: skip
    if not kept or len(set(kept)) != len(kept) or not set(kept) <= set(range(len(sizes))):
        raise InputError(f"'kept' must hold distinct positions from 0 to {len(sizes) - 1}. Got {list(kept)}.")
    left_out = tuple(i for i in range(len(sizes)) if i not in kept)
    cube = matrix.reshape(*sizes, -1).sum(axis=left_out, keepdims=True)
    return np.asarray(np.moveaxis(cube, kept, range(len(kept))).reshape(-1, matrix.shape[1]))


def censoring_gap(joint: ArrayLike, transition: ArrayLike, alpha: float) -> float:
    """How far a representation is from being censored (Definition `Def:Censored_representation`), as an alpha-loss.

    The best adversary h* against X_r is fixed; the gap is the largest expected loss that any encoder with the same
    inputs and the same releases could cause h*, minus its loss on X_r. It is 0 exactly if X_r is censored, which the
    minimax solution is if the distortion bound permits (`Thm:GAP_censoring`); infinite if h* excludes a value.

    joint: P(s, x). transition: T(r | x), (|X|, |R|), or T(r | s, x), (|S|, |X|, |R|), if the encoder sees S.

    >>> censoring_gap([[0.3, 0.2], [0.2, 0.3]], [[0.5, 0.5], [0.5, 0.5]], 2.0)  # released at random
    0.0
    """
    matrix, channel = check_joint(joint), np.asarray(transition, dtype=np.float64)
    shapes = (matrix.shape[1:], matrix.shape)
    if channel.ndim not in (2, 3) or channel.shape[:-1] != shapes[channel.ndim - 2]:
        raise InputError(f"'transition' must have shape (|X|, |R|) or (|S|, |X|, |R|), with |S|, |X| = {matrix.shape}. "
                         f"Got {channel.shape}.")  # fmt: skip
    if not np.allclose(channel.sum(axis=-1), 1.0) or np.any(channel < 0):
        raise InputError("Every row of 'transition' must be a distribution: numbers of at least 0 that sum to 1.")
    released = np.einsum("sx,xr->sr" if channel.ndim == 2 else "sx,sxr->sr", matrix, channel)
    losses = _losses(tilted_posterior(released / released.sum(), alpha), _alpha(alpha))
    # What each input, x or (s, x), costs the fixed adversary if it is released as r: (inputs, |R|).
    by_pair = _product(matrix[..., None], losses[:, None, :])
    by_input = by_pair.sum(axis=0) if channel.ndim == 2 else by_pair.reshape(-1, losses.shape[1])
    spent = float(_product(channel, by_input.reshape(channel.shape)).sum())
    return max(float(by_input.max(axis=1).sum()) - spent, 0.0)


def _product(mass: Array, losses: Array) -> Array:
    """mass x losses, and 0 where there is no mass, even if the loss is infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(mass > 0, mass * losses, 0.0)


def _losses(guess: Array, alpha: float) -> Array:
    """Alpha-loss of every guess(s | v) at every s."""
    with np.errstate(divide="ignore"):
        log = np.log(guess)
    if alpha == 1.0:
        return -log
    power = 1.0 if math.isinf(alpha) else (alpha - 1.0) / alpha
    return np.asarray(-np.expm1(power * log) / power)


def _alpha(alpha: float) -> float:
    if not alpha > 0:
        raise InputError(f"alpha must be above 0, or infinity. Got {alpha!r}.")
    return float(alpha)
