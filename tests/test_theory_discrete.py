"""Discrete adversaries and exact channels: identities as properties, optima against brute force and general solvers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

from fairveil import InputError
from fairveil.theory import adversary as a
from fairveil.theory import channel as c

ALPHAS = st.sampled_from([0.3, 0.5, 0.9, 1.0, 1.5, 2.0, 10.0, math.inf])
joints = arrays(float, st.tuples(st.integers(2, 4), st.integers(1, 5)), elements=st.floats(0.01, 1)).map(
    lambda m: m / m.sum()
)


@settings(max_examples=150, deadline=None)
@given(joints, ALPHAS)
def test_the_tilted_posterior_attains_the_minimum_of_proposition_alpha(joint, alpha):
    assert a.alpha_loss(joint, a.tilted_posterior(joint, alpha), alpha) == pytest.approx(
        a.minimal_alpha_loss(joint, alpha)
    )
    other = np.random.default_rng(0).dirichlet(np.ones(len(joint)), joint.shape[1]).T
    assert a.alpha_loss(joint, other, alpha) >= a.minimal_alpha_loss(joint, alpha) - 1e-9


@settings(max_examples=150, deadline=None)
@given(joints, ALPHAS)
def test_information_is_zero_exactly_under_independence(joint, alpha):
    """Theorem `thm:DP`: what the game minimises is 0 when S and the release are independent, and else above 0."""
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    assert a.arimoto_information(product, alpha) == pytest.approx(0.0, abs=1e-9)
    assert a.arimoto_information(joint, alpha) >= -1e-9
    # At alpha = 10 a class of 1 % counts by its tenth power: above 0, but below the last digit of a double.
    if alpha <= 2 and a.total_variation(joint) > 0.05:
        assert a.arimoto_information(joint, alpha) > 0


@settings(max_examples=100, deadline=None)
@given(joints, ALPHAS, st.integers(0, 100))
def test_processing_a_release_tells_no_more(joint, alpha, seed):
    merge = np.random.default_rng(seed).dirichlet(np.ones(3), joint.shape[1])
    assert a.arimoto_information(joint @ merge, alpha) <= a.arimoto_information(joint, alpha) + 1e-9
    assert a.total_variation(joint @ merge) <= a.total_variation(joint) + 1e-9


def test_limits_in_alpha():
    joint = np.random.default_rng(0).dirichlet(np.ones(12)).reshape(3, 4)
    assert a.arimoto_conditional_entropy(joint, 1 + 1e-6) == pytest.approx(
        a.arimoto_conditional_entropy(joint, 1.0), abs=1e-5
    )
    assert a.arimoto_conditional_entropy(joint, 1e6) == pytest.approx(
        a.arimoto_conditional_entropy(joint, math.inf), abs=1e-4
    )
    assert math.exp(-a.arimoto_conditional_entropy(joint, math.inf)) == pytest.approx(1 - a.map_error(joint))
    assert a.minimal_alpha_loss(joint, math.inf) == pytest.approx(a.map_error(joint))


def test_equalized_odds_is_the_same_game_for_each_y():
    """Theorem `prop:EO`: conditional information given Y is the mean over y, and 0 exactly when P(v|s,y) = P(v|y)."""
    generator = np.random.default_rng(0)
    shared = generator.dirichlet(np.ones(3), 2)  # P(v | y)
    prior = generator.dirichlet(np.ones(2), 2)  # P(s | y)
    fair = [prior[y][:, None] * shared[y][None, :] for y in range(2)]
    assert sum(0.5 * a.arimoto_information(joint, 1.0) for joint in fair) == pytest.approx(0.0, abs=1e-12)
    pooled = 0.5 * fair[0] + 0.5 * fair[1]
    assert a.arimoto_information(pooled, 1.0) > 1e-4  # equalized odds is not demographic parity


def test_mmse_by_brute_force():
    joint = np.random.default_rng(1).dirichlet(np.ones(6)).reshape(3, 2)
    values = np.array([-1.0, 0.0, 2.0])
    found = optimize.minimize(lambda h: np.sum(joint * (values[:, None] - h[None]) ** 2), np.zeros(2), tol=1e-12)
    assert a.mmse(joint, values) == pytest.approx(found.fun)


def hamming(n):
    return 1.0 - np.eye(n)


def information(joint, transition):
    return a.arimoto_information(joint @ transition, 1.0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("budget", [0.05, 0.2])
def test_information_channel_against_a_general_solver(seed, budget):
    joint = np.random.default_rng(seed).dirichlet(np.ones(6)).reshape(2, 3)
    ours = c.information_channel(joint, hamming(3), budget)
    prior = joint.sum(0)
    constraints = [{"type": "eq", "fun": lambda z: z.reshape(3, 3).sum(1) - 1},
                   {"type": "ineq", "fun": lambda z: budget - (1 - prior @ np.diag(z.reshape(3, 3)))}]  # fmt: skip
    found = optimize.minimize(
        lambda z: information(joint, z.reshape(3, 3) / z.reshape(3, 3).sum(1, keepdims=True)),
        (0.9 * np.eye(3) + 0.1 / 3).ravel(),
        bounds=[(1e-10, 1)] * 9,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 500},
    )
    assert ours.value == pytest.approx(found.fun, abs=1e-6)
    assert ours.distortion <= budget + 1e-9
    assert ours.gap <= 1e-7


@pytest.mark.parametrize("sees", [False, True])
def test_map_channel_against_enumeration_and_its_dual(sees):
    """No random feasible channel does better, and the dual value meets the primal one."""
    generator = np.random.default_rng(0)
    joint = generator.dirichlet(np.ones(8)).reshape(2, 4)
    ours = c.map_channel(joint, hamming(4), 0.25, sees_sensitive=sees)
    assert ours.gap < 1e-9
    assert ours.distortion <= 0.25 + 1e-9
    inputs = joint.reshape(-1) if sees else joint.sum(0)
    for _ in range(2000):
        t = generator.dirichlet(np.full(4, 0.5), len(inputs))
        stay = np.tile(np.eye(4), (len(inputs) // 4, 1))
        moved = 1 - float((inputs[:, None] * t * stay).sum())
        t = t if moved <= 0.25 else stay + (t - stay) * 0.25 / moved
        released = np.stack([joint[s] @ (t.reshape(2, 4, 4)[s] if sees else t) for s in range(2)])
        assert released.max(0).sum() >= ours.value - 1e-9


@pytest.mark.parametrize(("classes", "values"), [(2, 8), (4, 32)])
def test_larger_problems_seeing_s_and_monotone_budgets(classes, values):
    joint = np.random.default_rng(values).dirichlet(np.ones(classes * values)).reshape(classes, values)
    previous = math.inf
    for budget in (0.05, 0.1, 0.3):
        blind = c.information_channel(joint, hamming(values), budget)
        np.testing.assert_allclose(blind.transition.sum(-1), 1.0)
        assert blind.value <= previous + 1e-7
        assert blind.value == pytest.approx(information(joint, blind.transition), abs=1e-9)
        previous = blind.value
    if values == 8:
        sees = c.information_channel(joint, hamming(values), 0.05, sees_sensitive=True)
        assert sees.value <= c.information_channel(joint, hamming(values), 0.05).value + 1e-7


def test_other_distortions_and_release_alphabets():
    joint = np.random.default_rng(0).dirichlet(np.ones(10)).reshape(2, 5)
    d = np.abs(np.arange(5)[:, None] - np.array([0.5, 2.0, 3.5])[None, :]) ** 2
    found = c.information_channel(joint, d, 1.0)
    assert found.transition.shape == (5, 3)
    assert found.distortion <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: a.check_joint([0.5, 0.5]), "matrix"),
        (lambda: a.check_joint([[0.5, 0.6]]), "sum to 1"),
        (lambda: a.check_joint([[1.5, -0.5]]), "at least 0"),
        (lambda: a.renyi_entropy([0.5, 0.5], 0.0), "alpha"),
        (lambda: a.mmse([[0.5], [0.5]], [1.0]), "2 values"),
        (lambda: c.map_channel([[0.5], [0.5]], [[0.0, 1.0], [1.0, 0.0]], 0.1), "1 rows"),
        (lambda: c.map_channel([[0.5, 0], [0.5, 0]], hamming(2), 0.1), "drop the columns"),
        (lambda: c.information_channel([[0.25, 0.25], [0.25, 0.25]], hamming(2), -0.1), "budget"),
        (lambda: c.information_channel([[0.25, 0.25], [0.25, 0.25]], hamming(2), 0.0), "budget"),
        (lambda: c.information_channel([[0.25, 0.25], [0.25, 0.25]], -hamming(2), 0.1), "at least 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


def censored_by_brute_force(joint: np.ndarray, transition: np.ndarray, alpha: float) -> float:
    """The gap of Definition `Def:Censored_representation`, over all deterministic encoders."""
    pairs = transition.ndim == 3
    classes, values, outputs = *joint.shape, transition.shape[-1]
    channel = transition if pairs else np.broadcast_to(transition, (classes, values, outputs))
    best = a.tilted_posterior(np.einsum("sx,sxr->sr", joint, channel), alpha)

    def loss(releases: np.ndarray) -> float:
        return a.alpha_loss(np.einsum("sx,sxr->sr", joint, releases), best, alpha)

    inputs = classes * values if pairs else values
    worst = -math.inf
    for choice in itertools.product(range(outputs), repeat=inputs):
        chosen = np.eye(outputs)[list(choice)].reshape(*((classes, values) if pairs else (values,)), outputs)
        worst = max(worst, loss(np.broadcast_to(chosen, channel.shape)))
    return worst - loss(channel)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), ALPHAS, st.booleans())
def test_the_censoring_gap_is_that_of_the_worst_encoder(seed, alpha, sees_sensitive):
    generator = np.random.default_rng(seed)
    joint = generator.dirichlet(np.ones(6)).reshape(2, 3)
    transition = generator.dirichlet(np.ones(2), (2, 3) if sees_sensitive else 3)
    assert a.censoring_gap(joint, transition, alpha) == pytest.approx(
        censored_by_brute_force(joint, transition, alpha), abs=1e-9
    )


@pytest.mark.parametrize("sees_sensitive", [False, True])
def test_the_minimax_solution_is_censored_once_the_bound_permits(sees_sensitive):
    """Theorem `Thm:GAP_censoring`: for a large D the optimal release is censored, for a small one it is not."""
    joint = np.array([[0.3, 0.15, 0.05], [0.05, 0.15, 0.3]])
    distance = 1.0 - np.eye(3)
    gaps = {}
    for budget in (0.1, 0.9):
        found = c.information_channel(joint, distance, budget, sees_sensitive=sees_sensitive)
        gaps[budget] = a.censoring_gap(joint, found.transition, 1.0)
    assert gaps[0.9] < 1e-3 < 0.1 < gaps[0.1]


def test_an_adversary_that_excludes_a_value_can_lose_without_limit():
    joint = np.array([[0.5, 0.0], [0.0, 0.5]])
    assert a.censoring_gap(joint, np.eye(2), 1.0) == math.inf
    assert a.censoring_gap(joint, np.eye(2), math.inf) == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_parity_for_all_features_is_parity_for_each_subset(seed):
    """The clause on subsets in the proof of `thm:DemP_broadcasting`, and that leakage of a subset is never larger."""
    generator = np.random.default_rng(seed)
    of_s, of_v = generator.dirichlet(np.ones(12)), generator.dirichlet(np.ones(3))
    leaky = generator.dirichlet(np.ones(36)).reshape(12, 3)
    for kept in ([0], [1], [2], [0, 2], [2, 1], [0, 1, 2]):
        assert a.total_variation(a.subset_joint(np.outer(of_s, of_v), [2, 3, 2], kept)) < 1e-12
        some = a.subset_joint(leaky, [2, 3, 2], kept)
        assert a.total_variation(some) <= a.total_variation(leaky) + 1e-12
        assert a.arimoto_information(some, 1.0) <= a.arimoto_information(leaky, 1.0) + 1e-12


def test_subsets_are_sums_over_the_other_features():
    cube = np.random.default_rng(0).dirichlet(np.ones(24)).reshape(2, 3, 2, 2)
    found = a.subset_joint(cube.reshape(12, 2), [2, 3, 2], [2, 0])
    expected = [[cube[i, :, k, v].sum() for v in range(2)] for k in range(2) for i in range(2)]
    assert found == pytest.approx(np.array(expected))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda joint: a.subset_joint(joint, [2, 2], [0]), "4 combinations"),
        (lambda joint: a.subset_joint(joint, [2, 3], [2]), "positions from 0 to 1"),
        (lambda joint: a.censoring_gap(joint, np.eye(3), 1.0), "must have shape"),
        (lambda joint: a.censoring_gap(joint, np.ones((2, 2)), 1.0), "must be a distribution"),
    ],
)
def test_features_and_channels_that_do_not_fit_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call(np.full((6, 2), 1 / 12))
