"""Nearest-neighbour information against exact values; the bracket contains the truth."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.neighbors import NearestNeighbors

from fairveil import InputError
from fairveil import information as info
from fairveil.theory import gaussian as g


def mixture(n, d, gamma, prior=0.5, seed=0):
    """Samples of a mixture with separation gamma in d dimensions."""
    generator = np.random.default_rng(seed)
    s = generator.random(n) < prior
    mu = np.full(d, gamma / 2 / math.sqrt(d))
    return np.where(s[:, None], mu, -mu) + generator.normal(size=(n, d)), s


@pytest.mark.parametrize("d", [1, 3])
def test_entropy_of_a_gaussian(d):
    x = np.random.default_rng(0).multivariate_normal(np.zeros(d), 2.0 * np.eye(d), 10000)
    assert info.knn_entropy(x, 5) == pytest.approx(
        stats.multivariate_normal(np.zeros(d), 2.0 * np.eye(d)).entropy(), abs=0.04
    )


@pytest.mark.parametrize("d", [1, 2, 4, 8])
def test_mixed_information_within_five_percent(d):
    x, s = mixture(20000, d, 2.0)
    exact = g.mutual_information(2.0, 0.5)
    assert info.mixed_mutual_information(x, s, 5) == pytest.approx(exact, rel=0.05)


def test_in_32_dimensions_the_truth_lies_within_the_stated_error():
    x, s = mixture(8000, 32, 2.0)
    found = info.mutual_information_with_error(x, s, 5)
    assert abs(found.value - g.mutual_information(2.0, 0.5)) <= found.error
    x, s = mixture(20_000, 2, 2.0)
    assert info.mutual_information_with_error(x, s, 5).error < 0.03


def test_difference_of_entropies_is_the_papers():
    x, s = mixture(5000, 2, 2.0)
    by_hand = info.knn_entropy(x) - sum((s == v).mean() * info.knn_entropy(x[s == v]) for v in (False, True))
    assert info.knn_mutual_information(x, s) == pytest.approx(by_hand)
    assert info.knn_mutual_information(x, s) == pytest.approx(g.mutual_information(2.0, 0.5), abs=0.04)


def test_ties_are_survived_by_the_mixed_estimator_only():
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 4000)
    x = np.where(generator.random(4000) < 0.8, s, 1 - s).astype(float)
    exact = math.log(2) + 0.8 * math.log(0.8) + 0.2 * math.log(0.2)
    assert info.mixed_mutual_information(x, s) == pytest.approx(exact, abs=0.03)
    wide = np.column_stack([x] + [np.zeros(4000)] * 11)  # the path for many dimensions
    assert info.mixed_mutual_information(wide, s) == pytest.approx(info.mixed_mutual_information(x, s), abs=1e-9)
    with pytest.raises(InputError, match="ties"):
        info.knn_entropy(x)


def test_independent_samples_give_about_nothing_and_may_be_negative():
    generator = np.random.default_rng(0)
    values = [
        info.mixed_mutual_information(generator.normal(size=(500, 2)), generator.integers(0, 2, 500)) for _ in range(20)
    ]
    assert abs(np.mean(values)) < 0.02
    assert min(values) < 0


@pytest.mark.parametrize("d", [3, 12])
def test_distances_are_exact(d):
    x = np.random.default_rng(0).normal(size=(700, d)) + 100.0
    ours = info._kth_distance(x, x, 4, same=True)
    theirs = NearestNeighbors(n_neighbors=5, algorithm="brute").fit(x).kneighbors(x)[0][:, 4]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    counts = info._count_within(x, x, np.full(700, 2.0))
    assert counts.tolist() == [(np.linalg.norm(x - row, axis=1) <= 2.0).sum() for row in x]


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0])
def test_the_bracket_contains_the_truth(gamma):
    """Release = source + unit noise, the source being a mixture; the channel density is known."""
    generator = np.random.default_rng(1)
    n, d = 3000, 4
    source, s = mixture(n, d, gamma * math.sqrt(2), 0.6, seed=2)
    x = source + generator.normal(size=(n, d))

    def log_density(released, origin):
        squares = ((released[:, None, :] - origin[None]) ** 2).sum(axis=2)
        return -0.5 * squares - d / 2 * math.log(2 * math.pi)

    bracket = info.information_bracket(x, s, log_density=log_density, source=source)
    exact = g.mutual_information(gamma, 0.6)
    assert bracket.lower.low <= exact + 1e-9
    assert bracket.upper.high >= exact
    assert bracket.lower.value > exact - 0.03
    assert bracket.upper.value < exact + 0.35


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: info.knn_entropy(np.zeros((3, 2, 2))), "matrix"),
        (lambda: info.knn_entropy([1.0, math.nan, 2.0]), "finite"),
        (lambda: info.knn_entropy([1.0, 2.0, 3.0], k=3), "k must be"),
        (lambda: info.mixed_mutual_information([1.0, 2.0], [0]), "2 samples"),
        (lambda: info.mixed_mutual_information([1.0, 2.0], [0, 0]), "one single value"),
        (lambda: info.mixed_mutual_information(np.arange(6.0), [0] * 5 + [1]), "k must be"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
