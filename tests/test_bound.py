"""The upper confidence bound covers the true mean as often as it says, on distributions like those of distortions."""

import math

import numpy as np
import pytest

from fairveil.training.confidence_bound import Achieved, upper_bound


def changed_columns(generator, n):
    """Few categorical changes a row: a sum of rare events."""
    return generator.binomial(10, 0.05, size=n).astype(float), 0.5


def rare_changes(generator, n):
    return (generator.random(n) < 0.1).astype(float), 0.1


def heavy_tail(generator, n, draws=8):
    """Hamming plus a rarely large squared change, as of a capital gain; the mean of several draws a row."""
    hamming = generator.binomial(8, 0.05, size=(draws, n)).mean(axis=0)
    size = generator.exponential(4.0, n)
    return hamming + np.where(generator.random((draws, n)) < 0.02, size, 0.0).mean(axis=0), 0.4 + 0.08


@pytest.mark.parametrize("draw", [changed_columns, rare_changes, heavy_tail])
@pytest.mark.parametrize("n", [200, 1000, 3000])
def test_coverage(draw, n):
    generator = np.random.default_rng(n)
    runs = 1500
    covered = 0
    for _ in range(runs):
        values, mean = draw(generator, n)
        covered += upper_bound(values, 0.95) >= mean
    assert covered / runs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs)


def test_the_plain_t_bound_would_fail_this_test():
    """The control: without the skewness correction the coverage on the heavy tail is visibly too low."""
    generator = np.random.default_rng(0)
    runs, n, covered = 1500, 100, 0
    for _ in range(runs):
        values, mean = heavy_tail(generator, n, draws=1)
        covered += values.mean() + 1.6525 * values.std(ddof=1) / math.sqrt(n) >= mean
    assert covered / runs < 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize(
    ("chance", "n"), [(0.01, 30), (0.01, 60), (0.005, 200), (0.02, 100), (0.02, 1000), (0.02, 3000)]
)
def test_coverage_where_changes_are_rare(chance, n):
    generator = np.random.default_rng(n)
    runs = 1500
    covered = sum(upper_bound((generator.random(n) < chance) * 1.0, 0.95, largest=1.0) >= chance for _ in range(runs))
    assert covered / runs >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / runs)


def test_few_rows_support_no_claim():
    assert upper_bound(np.zeros(29), 0.95) == math.inf
    assert upper_bound(np.zeros(29), 0.95, largest=12.0) == 12.0
    assert upper_bound(np.zeros(30), 0.95, largest=12.0) == pytest.approx(12 * (1 - 0.05 ** (1 / 30)))
    assert upper_bound(np.zeros(300), 0.95) == math.inf


def test_bound_shrinks_with_rows_and_grows_with_confidence():
    values = np.random.default_rng(0).random(4000)
    assert values.mean() < upper_bound(values, 0.95) < upper_bound(values[:400], 0.95) + 0.05
    assert upper_bound(values, 0.95) < upper_bound(values, 0.999)


def test_achieved_round_trip_and_verdict():
    part = Achieved(0.2, math.inf, None, 10, 0.95)
    whole = Achieved(0.5, 0.6, 0.55, 10, 0.95, {"categorical": part})
    assert not whole.met
    assert part.met
    assert Achieved.from_dict(whole.to_dict()) == whole
