"""Exact optimal channels for a finite X (and S, or not): the truth a learned `matrix` encoder is measured against.

The encoder is a transition matrix T(r | input); its inputs are the values of X, or the pairs (x, s) if it sees S.
Both programs minimise what the release R tells of S under E[d(X, R)] <= D. A linear program solves the MAP adversary's;
a barrier method with Newton steps solves the log-loss adversary's, and both report their duality gap.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse

from fairveil.errors import InputError
from fairveil.theory.adversary import check_joint

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Channel:
    """An optimal channel.

    transition: T(r | input), one row an input: (|X|, |R|), or (|S|, |X|, |R|) if the encoder sees S.
    value: what was minimised: the MAP adversary's accuracy, or the mutual information I(R; S) in nats.
    gap: value is within this of the true minimum. distortion: E[d(X, R)].
    """

    transition: Array
    value: float
    gap: float
    distortion: float


@dataclass(frozen=True)
class _Program:
    """masses: P(s, input) as (|S|, inputs). costs: P(input) d(x(input), r) as (inputs, |R|). shape: of `transition`."""

    masses: Array
    costs: Array
    budget: float
    shape: tuple[int, ...]


def map_channel(joint: ArrayLike, distortion: ArrayLike, budget: float, *, sees_sensitive: bool = False) -> Channel:
    """The channel that leaves a MAP adversary the least accuracy, by linear programming.

    joint: P(s, x). distortion: d(x, r), (|X|, |R|). Minimises sum_r z_r with z_r >= sum_x P(s, x) T(r | x) for every s.
    """
    program = _program(joint, distortion, budget, sees_sensitive)
    inputs, outputs = program.costs.shape
    classes = len(program.masses)
    size = inputs * outputs
    eye = sparse.identity(outputs, format="csr")
    above = sparse.vstack([sparse.hstack([sparse.kron(row.reshape(1, -1), eye), -eye]) for row in program.masses])
    spend = sparse.hstack([sparse.csr_matrix(program.costs.reshape(1, -1)), sparse.csr_matrix((1, outputs))])
    sums = sparse.hstack(
        [sparse.kron(sparse.identity(inputs), np.ones((1, outputs))), sparse.csr_matrix((inputs, outputs))]
    )
    goal = np.concatenate([np.zeros(size), np.ones(outputs)])
    limits = np.concatenate([np.zeros(classes * outputs), [program.budget]])
    found = optimize.linprog(goal, sparse.vstack([above, spend]), limits, sums, np.ones(inputs), bounds=(0, None))
    if not found.success:
        raise RuntimeError(f"The linear program was not solved: {found.message}")
    dual = float(found.ineqlin.marginals @ limits + found.eqlin.marginals.sum())
    transition = _clean(found.x[:size].reshape(inputs, outputs))
    value = float((program.masses @ transition).max(axis=0).sum())
    return Channel(transition.reshape(program.shape), value, max(value - dual, 0.0), _spent(program, transition))


def information_channel(
    joint: ArrayLike, distortion: ArrayLike, budget: float, *, sees_sensitive: bool = False, gap: float = 1e-8
) -> Channel:
    """The channel with the least mutual information I(R; S) (the log-loss adversary), to within `gap` nats.

    I(R; S) is convex in T. Its Hessian has one block for each r, so a Newton step of the log-barrier costs |R| small
    solves; with m inequality constraints and barrier weight t the value is within m / t of the minimum.
    """
    program = _program(joint, distortion, budget, sees_sensitive)
    start = _interior(program)
    count = start.size + 1
    t, transition = 1.0, start
    while True:
        transition = _centre(program, transition, t)
        if count / t <= gap:
            break
        t = min(t * 20.0, count / gap)
    transition = _inside(program, _clean(transition))
    value = _information(program.masses @ transition)
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
        return _Program(matrix, matrix.sum(axis=0)[:, None] * d, float(budget), (values, d.shape[1]))
    masses = np.zeros((classes, classes * values))
    for s in range(classes):
        masses[s, s * values : (s + 1) * values] = matrix[s]
    costs = matrix.reshape(-1, 1) * np.tile(d, (classes, 1))
    return _Program(masses, costs, float(budget), (classes, values, d.shape[1]))


def _clean(transition: Array) -> Array:
    transition = np.maximum(transition, 0.0)
    return np.asarray(transition / transition.sum(axis=1, keepdims=True))


def _spent(program: _Program, transition: Array) -> float:
    return float((program.costs * transition).sum())


def _information(released: Array) -> float:
    """I(R; S) in nats from P(s, r)."""
    outer = released.sum(axis=1, keepdims=True) * released.sum(axis=0, keepdims=True)
    used = released > 0
    return float(np.sum(released[used] * np.log(released[used] / outer[used])))


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
    """The same channel, moved by rounding errors only, so that its distortion does not exceed the budget."""
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
    return float(t * _information(program.masses @ transition) - np.log(transition).sum() - np.log(slack))


def _centre(program: _Program, transition: Array, t: float) -> Array:
    """Newton's method for the barrier problem with row sums fixed."""
    value = _barrier(program, transition, t)
    for _ in range(100):
        step, decrement = _newton(program, transition, t)
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
    masses, costs = program.masses, program.costs
    released = masses @ transition
    total = released.sum(axis=0)
    prior = masses.sum(axis=1)
    slack = program.budget - _spent(program, transition)
    weights = np.log(released / (prior[:, None] * total[None, :]))
    gradient = t * (masses.T @ weights) - 1.0 / transition + costs / slack
    mass = masses.sum(axis=0)
    # Scaled by T on both sides, the barrier's part of a block is the identity however close T is to 0.
    inverses = np.empty((outputs, inputs, inputs))
    for r in range(outputs):
        scale = transition[:, r]
        weighted = masses * scale
        block = t * ((weighted.T / released[:, r]) @ weighted - np.outer(mass * scale, mass * scale) / total[r])
        block[np.diag_indices(inputs)] += 1.0
        inverses[r] = scale[:, None] * np.linalg.inv(block) * scale[None, :]
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
    drift = 1.0 - transition.sum(axis=1)  # what rounding has taken from the row sums is given back
    multipliers = np.linalg.solve(schur, -solved_g.sum(axis=0)[:, 0] - drift)
    step = -(solved_g[:, :, 0] + (solved_rows @ multipliers))
    return np.ascontiguousarray(step.T), float(-(gradient * step.T).sum())
