"""Exact optimal channels for a finite X (and optionally S): the ground truth for learned encoders and predictors.

The encoder is a transition matrix T(r | input); its inputs are the values of X, or the pairs (x, s) if it sees S.
Both programs minimise what the release R reveals about S under E[d(X, R)] <= D. For the MAP adversary this is a linear
program; for the log-loss adversary it is solved by a barrier method with Newton steps. Both report their duality gap. A
predictor is also such a channel: it releases a prediction, its distortion is the loss, and an adversary may know Y.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse

from fairveil._utils.errors import InputError
from fairveil.theory.adversary import check_joint

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Channel:
    """An optimal channel.

    transition: T(r | input), one row per input: (|X|, |R|), or (|S|, |X|, |R|) if the encoder sees S. value: the
    minimum: the MAP adversary's accuracy, or the mutual information I(R; S) in nats; given Y if the adversary knows it.
    gap: value is within this of the true minimum. distortion: E[d(X, R)], or the predictor's loss.
    """

    transition: Array
    value: float
    gap: float
    distortion: float


@dataclass(frozen=True)
class _Program:
    """The optimisation problem of a channel.

    blocks: P(s, input) as (|S|, inputs); if the adversary knows Y, one per y, P(s, y, input). costs: P(input)
    d(x(input), r) as (inputs, |R|). shape: of `transition`.
    """

    blocks: tuple[Array, ...]
    costs: Array
    budget: float
    shape: tuple[int, ...]


def map_channel(joint: ArrayLike, distortion: ArrayLike, budget: float, *, sees_sensitive: bool = False) -> Channel:
    """The channel that minimises a MAP adversary's accuracy, by linear programming.

    joint: P(s, x). distortion: d(x, r), (|X|, |R|). Minimises sum_r z_r with z_r >= sum_x P(s, x) T(r | x) for every s.
    """
    return _least_accuracy(_program(joint, distortion, budget, sees_sensitive))


def information_channel(
    joint: ArrayLike, distortion: ArrayLike, budget: float, *, sees_sensitive: bool = False, gap: float = 1e-8
) -> Channel:
    """The channel with the minimum mutual information I(R; S) (the log-loss adversary), to within `gap` nats.

    I(R; S) is convex in T. Its Hessian has one block per r, so a Newton step of the log-barrier costs |R| small solves;
    with m inequality constraints and barrier weight t the value is within m / t of the minimum.
    """
    return _least_information(_program(joint, distortion, budget, sees_sensitive), gap)


def map_predictor(
    joint: ArrayLike, losses: ArrayLike, max_loss: float, *, given_truth: bool = False, sees_sensitive: bool = False
) -> Channel:
    """The randomized predictor that minimises a MAP adversary's accuracy at a loss of at most `max_loss`.

    joint: P(s, y, x). losses: of prediction r if the truth is y, (|R|, |Y|). given_truth: the adversary knows Y
    (equalized odds, `eq:Opt-fairClassifier-EO`); otherwise it sees only the prediction (demographic parity).
    """
    return _least_accuracy(_predictor_program(joint, losses, max_loss, given_truth, sees_sensitive))


def information_predictor(
    joint: ArrayLike,
    losses: ArrayLike,
    max_loss: float,
    *,
    given_truth: bool = False,
    sees_sensitive: bool = False,
    gap: float = 1e-8,
) -> Channel:
    """Like `map_predictor`, but minimises I(R; S), or I(R; S | Y) if `given_truth`, instead of the accuracy."""
    return _least_information(_predictor_program(joint, losses, max_loss, given_truth, sees_sensitive), gap)


def _least_accuracy(program: _Program) -> Channel:
    """By linear programming: minimise sum over r (and y) of z >= P(s, [y,] r) for every s."""
    inputs, outputs = program.costs.shape
    size, count = inputs * outputs, len(program.blocks) * outputs
    eye = sparse.identity(outputs, format="csr")
    above = []
    for number, block in enumerate(program.blocks):
        own = sparse.csr_matrix(np.eye(len(program.blocks))[number].reshape(1, -1))
        above += [sparse.hstack([sparse.kron(row.reshape(1, -1), eye), -sparse.kron(own, eye)]) for row in block]
    spend = sparse.hstack([sparse.csr_matrix(program.costs.reshape(1, -1)), sparse.csr_matrix((1, count))])
    sums = sparse.hstack(
        [sparse.kron(sparse.identity(inputs), np.ones((1, outputs))), sparse.csr_matrix((inputs, count))]
    )
    goal = np.concatenate([np.zeros(size), np.ones(count)])
    limits = np.concatenate([np.zeros(sum(map(len, program.blocks)) * outputs), [program.budget]])
    found = optimize.linprog(goal, sparse.vstack([*above, spend]), limits, sums, np.ones(inputs), bounds=(0, None))
    if not found.success:
        raise RuntimeError(f"The linear program was not solved: {found.message}")
    dual = float(found.ineqlin.marginals @ limits + found.eqlin.marginals.sum())
    transition = _clean(found.x[:size].reshape(inputs, outputs))
    value = sum(float((block @ transition).max(axis=0).sum()) for block in program.blocks)
    return Channel(transition.reshape(program.shape), value, max(value - dual, 0.0), _spent(program, transition))


def _least_information(program: _Program, gap: float) -> Channel:
    """By a log-barrier."""
    start = _interior(program)
    count = start.size + 1
    t, transition = 1.0, start
    while True:
        transition = _centre(program, transition, t)
        if count / t <= gap:
            break
        t = min(t * 20.0, count / gap)
    transition = _inside(program, _clean(transition))
    value = _information(program, transition)
    return Channel(transition.reshape(program.shape), value, count / t, _spent(program, transition))


def _program(joint: ArrayLike, distortion: ArrayLike, budget: float, sees_sensitive: bool) -> _Program:
    matrix = check_joint(joint)
    d = np.asarray(distortion, dtype=np.float64)
    if d.ndim != 2 or len(d) != matrix.shape[1]:
        raise InputError(f"'distortion' must be a matrix d(x, r) with {matrix.shape[1]} rows. Got shape {d.shape}.")
    if not np.isfinite(d).all() or np.any(d < 0):
        raise InputError("'distortion' must hold finite numbers of at least 0.")
    if np.any(matrix.sum(axis=0) == 0):
        raise InputError(
            "Every x must have a probability above 0: drop the columns of the joint distribution that are 0."
        )
    classes, values = matrix.shape
    least = float(matrix.sum(axis=0) @ d.min(axis=1))
    if not budget > least:
        raise InputError(f"The budget must exceed {least:g}, the least mean distortion of any channel. Got {budget!r}.")
    if not sees_sensitive:
        return _Program((matrix,), matrix.sum(axis=0)[:, None] * d, float(budget), (values, d.shape[1]))
    costs = matrix.reshape(-1, 1) * np.tile(d, (classes, 1))
    return _Program((_by_class(matrix),), costs, float(budget), (classes, values, d.shape[1]))


def _predictor_program(
    joint: ArrayLike, losses: ArrayLike, max_loss: float, given_truth: bool, sees_sensitive: bool
) -> _Program:
    p = np.asarray(joint, dtype=np.float64)
    if p.ndim != 3:
        raise InputError(f"'joint' must be P(s, y, x), with three dimensions. Got shape {p.shape}.")
    check_joint(p.reshape(len(p), -1))
    table = np.asarray(losses, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != p.shape[1] or not np.isfinite(table).all():
        raise InputError(f"'losses' must be a finite matrix with {p.shape[1]} columns, one per value of Y.")
    if np.any(p.sum(axis=(0, 1)) == 0):
        raise InputError("Every x must have a probability above 0: drop the values of x whose probability is 0.")
    costs = np.einsum("syx,ry->sxr", p, table)
    costs = costs.reshape(-1, len(table)) if sees_sensitive else costs.sum(axis=0)
    least = float(costs.min(axis=1).sum())
    if not max_loss > least:
        raise InputError(f"'max_loss' must exceed {least:g}, the least mean loss of any predictor. Got {max_loss!r}.")
    parts = [p[:, y] for y in range(p.shape[1]) if p[:, y].any()] if given_truth else [p.sum(axis=1)]
    blocks = tuple(_by_class(part) if sees_sensitive else part for part in parts)
    shape = (*((len(p),) if sees_sensitive else ()), p.shape[2], len(table))
    return _Program(blocks, costs, float(max_loss), shape)


def _by_class(matrix: Array) -> Array:
    """P(s, x) as P(s, input) where the inputs are the pairs (s, x)."""
    return np.asarray(np.einsum("sx,st->stx", matrix, np.eye(len(matrix))).reshape(len(matrix), -1))


def _clean(transition: Array) -> Array:
    transition = np.maximum(transition, 0.0)
    return np.asarray(transition / transition.sum(axis=1, keepdims=True))


def _spent(program: _Program, transition: Array) -> float:
    return float((program.costs * transition).sum())


def _information(program: _Program, transition: Array) -> float:
    """I(R; S) in nats, or I(R; S | Y) with one block per y."""
    total = 0.0
    for block in program.blocks:
        released = block @ transition
        apart = released.sum(axis=1, keepdims=True) * released.sum(axis=0, keepdims=True) / max(released.sum(), 1e-300)
        used = released > 0
        total += float(np.sum(released[used] * np.log(released[used] / apart[used])))
    return total


def _cheapest(program: _Program) -> Array:
    channel = np.zeros_like(program.costs)
    channel[np.arange(len(channel)), program.costs.argmin(axis=1)] = 1.0
    return channel


def _interior(program: _Program) -> Array:
    """A channel strictly inside all constraints: the cheapest release, mixed with the uniform one."""
    cheapest = _cheapest(program)
    uniform = np.full_like(cheapest, 1.0 / cheapest.shape[1])
    low, high = _spent(program, cheapest), _spent(program, uniform)
    weight = 0.5 if high <= program.budget else 0.5 * (program.budget - low) / (high - low)
    return (1.0 - weight) * cheapest + weight * uniform


def _inside(program: _Program, transition: Array) -> Array:
    """The same channel up to rounding errors, so that its distortion does not exceed the budget."""
    cheapest = _cheapest(program)
    over = _spent(program, transition) - program.budget
    if over <= 0:
        return transition
    weight = over / (_spent(program, transition) - _spent(program, cheapest))
    return (1.0 - weight) * transition + weight * cheapest


def _barrier(program: _Program, transition: Array, t: float) -> float:
    slack = program.budget - _spent(program, transition)
    if slack <= 0 or np.any(transition <= 0):
        return np.inf
    return float(t * _information(program, transition) - np.log(transition).sum() - np.log(slack))


def _centre(program: _Program, transition: Array, t: float) -> Array:
    """Newton's method for the barrier problem with row sums fixed."""
    value = _barrier(program, transition, t)
    for _ in range(100):
        step, decrement = _newton(program, transition, t)
        if not np.isfinite(decrement):
            raise RuntimeError("The barrier method reached a non-finite number: the problem is ill-conditioned.")
        if decrement <= 1e-9:
            break
        size = 1.0
        while size > 1e-12:
            trial = transition + size * step
            trial_value = _barrier(program, trial, t)
            if np.isfinite(trial_value) and trial_value <= value - 0.1 * size * decrement:
                transition, value = trial, trial_value
                break
            size *= 0.5
        else:
            break
    return transition


def _newton(program: _Program, transition: Array, t: float) -> tuple[Array, float]:
    """The Newton step and its decrement, by block elimination.

    The Hessian is block-diagonal over r (information and the barrier of T >= 0) plus a rank-one term from the budget;
    the row sums are eliminated by their Schur complement.
    """
    inputs, outputs = transition.shape
    costs = program.costs
    slack = program.budget - _spent(program, transition)
    gradient = -1.0 / transition + costs / slack
    # Scaled by T on both sides, the barrier's part of a block is the identity however close T is to 0.
    curvature = np.broadcast_to(np.eye(inputs), (outputs, inputs, inputs)).copy()
    for masses in program.blocks:
        masses = masses[masses.sum(axis=1) > 0]
        released, mass = masses @ transition, masses.sum(axis=0)
        total, prior = released.sum(axis=0), masses.sum(axis=1)
        gradient += t * (masses.T @ np.log(released * mass.sum() / (prior[:, None] * total[None, :])))
        for r in range(outputs):
            weighted, moved = masses * transition[:, r], mass * transition[:, r]
            curvature[r] += t * ((weighted.T / released[:, r]) @ weighted - np.outer(moved, moved) / total[r])
    inverses = transition.T[:, :, None] * np.linalg.inv(curvature) * transition.T[:, None, :]
    rank_one = (costs / slack).T[:, :, None]

    def solve(right: Array) -> Array:
        """(blocks + u u')^-1 right for right of shape (outputs, inputs, k), by Sherman-Morrison."""
        plain = inverses @ right
        lifted = inverses @ rank_one
        factor = 1.0 + float((rank_one * lifted).sum())
        inner = (rank_one * plain).sum(axis=(0, 1))
        return np.asarray(plain - lifted * inner / factor)

    selectors = np.broadcast_to(np.eye(inputs), (outputs, inputs, inputs))
    g = gradient.T[:, :, None]
    solved_g, solved_rows = solve(g), solve(np.ascontiguousarray(selectors))
    schur = solved_rows.sum(axis=0)
    drift = 1.0 - transition.sum(axis=1)  # corrects rounding errors of the row sums
    multipliers = np.linalg.solve(schur, -solved_g.sum(axis=0)[:, 0] - drift)
    step = -(solved_g[:, :, 0] + (solved_rows @ multipliers))
    return np.ascontiguousarray(step.T), float(-(gradient * step.T).sum())
