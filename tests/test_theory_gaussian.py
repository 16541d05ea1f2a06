"""Gaussian mixtures: closed forms against simulation, brute force and general solvers; limits, invariances."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from fairveil import InputError
from fairveil.theory import adversary
from fairveil.theory import gaussian as g

budgets = st.floats(0.0, 50.0)
priors = st.floats(0.01, 0.99)


def random_problem(seed, size=5, correlated=True):
    generator = np.random.default_rng(seed)
    mu = generator.normal(size=size)
    root = generator.normal(size=(size, size))
    return mu, root @ root.T / size + 0.1 * np.eye(size) if correlated else np.diag(generator.uniform(0.2, 2, size))


def test_map_accuracy_by_simulation():
    generator = np.random.default_rng(0)
    for gamma, q in [(0.3, 0.75), (1.5, 0.5), (4.0, 0.1)]:
        s = generator.random(400_000) < q
        x = generator.normal(np.where(s, gamma / 2, -gamma / 2))
        guess = gamma * x + math.log(q / (1 - q)) > 0
        assert g.map_accuracy(gamma, q) == pytest.approx((guess == s).mean(), abs=0.003)


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 30), st.floats(0, 30), priors)
def test_map_accuracy_is_monotone_symmetric_and_bounded(a, b, q):
    low, high = sorted((a, b))
    assert max(q, 1 - q) - 1e-12 <= g.map_accuracy(low, q) <= g.map_accuracy(high, q) + 1e-12 <= 1 + 1e-12
    assert g.map_accuracy(a, q) == pytest.approx(g.map_accuracy(a, 1 - q), abs=1e-12)


def test_map_accuracy_limits():
    assert g.map_accuracy(1e-12, 0.3) == pytest.approx(0.7)
    assert g.map_accuracy(1e6, 0.3) == 1.0
    assert g.map_accuracy(math.inf, 0.3) == 1.0
    assert g.map_accuracy(1e-300, 1e-9) == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 20), priors)
def test_mutual_information_lies_between_fano_and_entropy(gamma, q):
    information = g.mutual_information(gamma, q)
    entropy = -(q * math.log(q) + (1 - q) * math.log(1 - q))
    assert -1e-9 <= information <= entropy + 1e-9
    error = 1 - g.map_accuracy(gamma, q)
    fano = 0.0 if error <= 0 else -(error * math.log(error) + (1 - error) * math.log1p(-error))
    assert entropy - information <= fano + 1e-7  # Fano for two classes
    assert information <= g.mutual_information(gamma + 0.5, q) + 1e-9


def test_mutual_information_for_small_separations():
    # I = q (1-q) gamma^2 / 2 + higher orders
    assert g.mutual_information(0.01, 0.3) == pytest.approx(0.21 * 0.01**2 / 2, rel=1e-3)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 1.0, 2.0, 20.0, math.inf])
@pytest.mark.parametrize(("gamma", "q"), [(0.0, 0.3), (1.0, 0.75), (4.0, 0.5)])
def test_alpha_loss_of_a_mixture_against_a_fine_discretisation(alpha, gamma, q):
    x, width = np.linspace(-14, 14, 20_001, retstep=True)
    densities = np.exp(-0.5 * (x - np.array([[-gamma / 2], [gamma / 2]])) ** 2)
    joint = np.array([[1 - q], [q]]) * densities * width
    expected = adversary.minimal_alpha_loss(joint / joint.sum(), alpha)
    assert g.minimal_alpha_loss(gamma, q, alpha) == pytest.approx(expected, abs=2e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=12), st.integers(0, 1000), budgets)
def test_water_filling_spends_the_budget_and_satisfies_the_optimality_conditions(mean, seed, budget):
    mu = np.array(mean)
    sigma2 = np.random.default_rng(seed).uniform(0, 2, len(mu))
    noise = g.water_filling(mu, sigma2, budget)
    assert np.all(noise >= 0)
    if np.abs(mu).max() < 1e-6:
        return
    assert noise.sum() == pytest.approx(budget, abs=1e-12 * max(budget, 1.0) * 4)
    used = noise > 1e-9
    if used.any():
        gain = np.where(sigma2 + noise > 0, mu**2 / np.maximum((sigma2 + noise) ** 2, 1e-300), np.inf)
        level = gain[used]
        assert level.max() <= level.min() * (1 + 1e-6)  # equal marginal gains where there is noise ...
        assert np.all(gain[~used] <= level.max() * (1 + 1e-6))  # ... and no larger one where there is none


def test_water_filling_against_a_general_solver():
    mu, sigma2 = np.array([2.0, 1.0, 0.5, 0.0]), np.array([1.0, 0.5, 2.0, 1.0])
    for budget in (0.1, 1.0, 7.0):
        noise = g.water_filling(mu, sigma2, budget)
        spend = {"type": "eq", "fun": lambda p, b=budget: p.sum() - b}
        start = np.full(4, budget / 4)
        found = optimize.minimize(
            lambda p: np.sum(mu**2 / (sigma2 + p)), start, bounds=[(0, None)] * 4, constraints=spend, tol=1e-14
        )
        assert np.sum(mu**2 / (sigma2 + noise)) == pytest.approx(found.fun, rel=1e-6)


def test_water_filling_edges():
    assert g.water_filling([0.0, 0.0], [1.0, 1.0], 3.0).tolist() == [0.0, 0.0]
    assert g.water_filling([1.0, 2.0], [0.0, 0.0], 3.0).tolist() == pytest.approx([1.0, 2.0])
    assert g.water_filling([1.0], [1.0], 0.0).tolist() == [0.0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("budget", [0.05, 1.0, 20.0])
def test_optimal_noise_attains_its_bound_and_nothing_random_beats_it(seed, budget):
    mu, sigma = random_problem(seed)
    noise = g.optimal_noise(mu, sigma, budget)
    assert np.trace(noise) == pytest.approx(budget)
    assert np.linalg.matrix_rank(noise) == 1
    least = g.separation(mu, sigma, noise)
    assert least == pytest.approx(2 * math.sqrt(mu @ np.linalg.solve(sigma + budget * np.eye(5), mu)), rel=1e-9)
    generator = np.random.default_rng(seed)
    for _ in range(200):
        root = generator.normal(size=(5, generator.integers(1, 6)))
        other = root @ root.T
        assert g.separation(mu, sigma, other * budget / np.trace(other)) >= least - 1e-9


def test_optimal_noise_against_a_semidefinite_search():
    """Descent over P = R R' (any rank) from random starts ends at the closed form."""
    mu, sigma = random_problem(3, size=3)

    def value(flat):
        root = flat.reshape(3, 3)
        noise = root @ root.T
        return mu @ np.linalg.solve(sigma + 2.0 * noise / np.trace(noise), mu)

    best = min(optimize.minimize(value, np.random.default_rng(i).normal(size=9), tol=1e-12).fun for i in range(5))
    assert best == pytest.approx(mu @ np.linalg.solve(sigma + 2.0 * np.eye(3), mu), rel=1e-6)


def test_full_noise_is_never_worse_than_diagonal_and_much_better_in_32_dimensions():
    for seed in range(5):
        mu, sigma = random_problem(seed, correlated=False)
        diagonal = g.separation(mu, sigma, g.water_filling(mu, np.diag(sigma), 2.0))
        assert g.separation(mu, sigma, g.optimal_noise(mu, sigma, 2.0)) <= diagonal + 1e-9
    mu = np.full(32, 0.28)
    noises = (g.optimal_noise(mu, np.ones(32), 4.0), g.water_filling(mu, np.ones(32), 4.0))
    full, diagonal = (g.map_accuracy(g.separation(mu, np.ones(32), noise), 0.5) for noise in noises)
    assert full < 0.78 < 0.92 < diagonal


@pytest.mark.parametrize("prior", [0.5, 0.75])
def test_an_encoder_that_sees_s_hides_it_completely_at_a_finite_budget(prior):
    mu, sigma = random_problem(1)
    enough = g.perfect_budget(mu, prior)
    assert g.informed_noise(mu, sigma, enough * (1 + 1e-9), prior).separation == 0.0
    almost = g.informed_noise(mu, sigma, enough * 0.9, prior)
    assert 0 < almost.separation < g.separation(mu, sigma)
    spent = prior * almost.shift_one @ almost.shift_one + (1 - prior) * almost.shift_zero @ almost.shift_zero
    assert spent == pytest.approx(almost.spent_on_shift)
    assert spent + np.trace(almost.noise) == pytest.approx(enough * 0.9, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_split_between_shift_and_noise_against_a_general_solver(seed):
    mu, sigma = random_problem(seed, size=3)
    prior, price = 0.6, 4 * 0.6 * 0.4
    for budget in (0.02, 0.3, 1.0):
        budget = min(budget, 0.8 * g.perfect_budget(mu, prior))

        def value(z):
            return (mu - z[:3]) @ np.linalg.solve(sigma + z[3] * np.eye(3), mu - z[:3])

        constraint = {"type": "ineq", "fun": lambda z, b=budget: b - price * z[:3] @ z[:3] - z[3]}
        starts = [np.append(0.1 * mu, 0.1 * budget), np.append(np.zeros(3), 0.5 * budget)]
        limits = [(None, None)] * 3 + [(0, budget)]
        options = {"ftol": 1e-14, "maxiter": 500}
        found = min(
            optimize.minimize(value, z, constraints=constraint, bounds=limits, method="SLSQP", options=options).fun
            for z in starts
        )
        ours = g.informed_noise(mu, sigma, budget, prior)
        assert (ours.separation / 2) ** 2 == pytest.approx(found, rel=1e-4)
        assert ours.separation <= g.separation(mu, sigma, g.optimal_noise(mu, sigma, budget)) + 1e-9  # seeing S helps


def test_several_classes_reduce_to_two_and_match_simulation():
    mu, sigma = random_problem(2)
    mu = 0.15 * mu
    accuracy, information = g.multiclass([mu, -mu], sigma, [0.3, 0.7])
    gamma = g.separation(mu, sigma)
    assert abs(accuracy.value - g.map_accuracy(gamma, 0.3)) < 4 * accuracy.error
    assert abs(information.value - g.mutual_information(gamma, 0.3)) < 4 * information.error
    means = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    priors = np.array([0.2, 0.3, 0.5])
    accuracy, _ = g.multiclass(means, np.eye(2), priors)
    generator = np.random.default_rng(0)
    s = generator.choice(3, 200_000, p=priors)
    x = means[s] + generator.normal(size=(200_000, 2))
    guess = np.argmax(np.log(priors) - 0.5 * ((x[:, None] - means) ** 2).sum(2), axis=1)
    assert abs(accuracy.value - (guess == s).mean()) < 0.004


def test_a_covariance_from_float32_is_taken():
    mu, sigma = random_problem(4)
    w = np.random.default_rng(0).normal(size=5).astype(np.float32)
    assert g.separation(mu, sigma, np.outer(w, w)) > 0


def test_rotation_and_scale_change_nothing():
    mu, sigma = random_problem(4)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    a = g.separation(mu, sigma, g.optimal_noise(mu, sigma, 2.0))
    b = g.separation(turn @ mu, turn @ sigma @ turn.T, g.optimal_noise(turn @ mu, turn @ sigma @ turn.T, 2.0))
    c = g.separation(3 * mu, 9 * sigma, g.optimal_noise(3 * mu, 9 * sigma, 18.0))
    assert a == pytest.approx(b, rel=1e-9)
    assert a == pytest.approx(c, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: g.map_accuracy(-1.0, 0.5), "separation"),
        (lambda: g.map_accuracy(math.nan, 0.5), "separation"),
        (lambda: g.map_accuracy(1.0, 0.0), "prior"),
        (lambda: g.map_accuracy(1.0, 1.0), "prior"),
        (lambda: g.mutual_information(1.0, 2.0), "prior"),
        (lambda: g.minimal_alpha_loss(1.0, 0.5, 0.0), "alpha"),
        (lambda: g.water_filling([1.0], [1.0], -1.0), "budget"),
        (lambda: g.water_filling([1.0], [1.0], math.nan), "budget"),
        (lambda: g.water_filling([1.0], [-1.0], 1.0), "variance"),
        (lambda: g.water_filling([1.0, 2.0], [1.0], 1.0), "vector of 2"),
        (lambda: g.optimal_noise([1.0, 2.0], np.eye(3), 1.0), "2 x 2"),
        (lambda: g.optimal_noise([1.0, 2.0], [[1.0, 2.0], [2.0, 1.0]], 1.0), "semidefinite"),
        (lambda: g.optimal_noise([1.0, 2.0], [[1.0, 0.5], [0.0, 1.0]], 1.0), "symmetric"),
        (lambda: g.separation([math.nan], [1.0]), "finite"),
        (lambda: g.multiclass([[0.0], [1.0]], [1.0], [0.5, 0.6]), "sum to 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
