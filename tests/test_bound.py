"""The upper confidence bound covers the true mean as often as it says, on distributions like those of distortions."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats

from fairveil.objectives.bounds import Limits
from fairveil.objectives.distortion import UNITS
from fairveil.training.confidence_bound import Achieved, asymptotic_bound, bound_on_mean, upper_bound
from fairveil.training.verification import Verification


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
        covered += asymptotic_bound(values, 0.95, single=0.0) >= mean
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


def rare_beside_ordinary(generator, n, chance, size):
    """Ordinary changes of categories, and rarely a large one: a capital gain set to 0."""
    return generator.binomial(8, 0.1, n) + np.where(generator.random(n) < chance, size, 0.0), 0.8 + chance * size


def lognormal_changes(generator, n, chance, size):
    """Rare changes of very different sizes, at most `size`."""
    sizes = np.minimum(np.exp(2.0 * generator.normal(size=n)), size)
    edge = math.log(size) / 2.0
    mean = math.exp(2.0) * stats.norm.cdf(edge - 2.0) + size * stats.norm.sf(edge)
    return generator.binomial(8, 0.1, n) + np.where(generator.random(n) < chance, sizes, 0.0), 0.8 + chance * mean


@pytest.mark.parametrize("n", [100, 300])
@pytest.mark.parametrize("chance", [0.005, 0.01, 0.03])
@pytest.mark.parametrize("draw", [rare_beside_ordinary, lognormal_changes])
@pytest.mark.parametrize("size", [12.0, 180.0])
def test_coverage_with_rare_large_changes_beside_ordinary_ones(n, chance, draw, size):
    """Both bounds: the one for limited values, and the asymptotic one with its allowance for unseen changes."""
    generator, runs = np.random.default_rng(n), 300
    drawn = [draw(generator, n, chance, size) for _ in range(runs)]
    covered = np.mean([upper_bound(values, 0.95, 8.0 + size) >= mean for values, mean in drawn])
    asymptotic = np.mean([asymptotic_bound(values, 0.95, size) >= mean for values, mean in drawn])
    assert min(covered, asymptotic) >= 0.94
    if (
        draw is rare_beside_ordinary and size > 100 and chance * n < 2
    ):  # the control: without the allowance the bound is too low
        assert np.mean([asymptotic_bound(values, 0.95, 0.0) >= mean for values, mean in drawn]) < 0.9


def test_the_bound_is_the_quantile_of_random_weights():
    """Against a simulation of the Dirichlet weights, and against Clopper and Pearson's exact bound."""
    generator = np.random.default_rng(0)
    for n, largest in ((50, 10.0), (400, 20.0), (400, 180.0)):
        values = generator.binomial(8, 0.1, n) + generator.exponential(0.3, n)
        weights = generator.exponential(size=(20_000, n + 1))
        means = weights @ np.append(values, largest) / weights.sum(axis=1)
        found = upper_bound(values, 0.95, largest)
        assert np.mean(means <= found) == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 20_000))
    for n, k in ((40, 0), (40, 3), (300, 20)):
        values = np.repeat([0.0, 1.0], [n - k, k])
        exact = stats.beta.ppf(0.95, k + 1, n - k)
        assert upper_bound(values, 0.95, 1.0) == pytest.approx(exact, rel=1e-6)
        nearly = values - 1e-7 * generator.random(n)  # no ties: the saddlepoint approximation
        assert upper_bound(nearly, 0.95, 1.0) == pytest.approx(exact, rel=5e-3)


def test_the_bound_costs_little_on_many_rows():
    """On 4,900 rows, values like those of a release of Adult: within 3 % of the mean, and near the usual bound."""
    generator = np.random.default_rng(0)
    values = generator.binomial(8, 0.12, 4900) + generator.exponential(0.2, 4900)
    margin = upper_bound(values, 0.95, 25.0) - values.mean()
    assert margin < 0.03 * values.mean()
    assert margin < 1.4 * 1.645 * values.std() / 70


def test_training_knows_by_how_much_a_bound_exceeds_the_mean():
    generator = np.random.default_rng(1)
    for n, limits in (
        (100, Limits(20.0, 4.0)),
        (4900, Limits(20.0, 4.0)),
        (300, Limits(500.0, 180.0, by_squares=True)),
    ):
        values = generator.binomial(8, 0.12, n) + generator.exponential(0.2, n)
        margin = Verification(n, 0.95, (limits,)).margin(
            torch.tensor([[values.mean()]]), torch.tensor([[values.std()]])
        )
        assert float(margin) == pytest.approx(bound_on_mean(values, 0.95, limits) - values.mean(), rel=0.15)


def test_few_rows_support_no_claim():
    assert upper_bound(np.zeros(29), 0.95) == math.inf
    assert asymptotic_bound(np.ones(29), 0.95, single=1.0) == math.inf
    assert asymptotic_bound(np.ones(999), 0.95) == math.inf  # nothing limits what was not seen
    assert bound_on_mean(np.ones(20), 0.95, Limits(7.0, 2.0, by_squares=True)) == 7.0
    assert upper_bound(np.zeros(29), 0.95, largest=12.0) == 12.0
    assert upper_bound(np.zeros(30), 0.95, largest=12.0) == pytest.approx(12 * (1 - 0.05 ** (1 / 30)))
    assert upper_bound(np.zeros(300), 0.95) == math.inf


def test_bound_shrinks_with_rows_and_grows_with_confidence():
    values = np.random.default_rng(0).random(4000)
    for bound in (partial(upper_bound, largest=1.0), partial(asymptotic_bound, single=1.0)):
        assert values.mean() < bound(values, 0.95) < bound(values[:400], 0.95) + 0.05
        assert bound(values, 0.95) < bound(values, 0.999)


def test_achieved_round_trip_and_verdict():
    part = Achieved(0.2, math.inf, None, 10, 0.95)
    whole = Achieved(0.5, 0.6, 0.55, 10, 0.95, {"categorical": part}, measure="ranks")
    assert not whole.met
    assert part.met
    assert Achieved.from_dict(whole.to_dict()) == whole
    assert whole.unit == UNITS["ranks"]
    with pytest.raises(ValueError, match="measure"):
        Achieved.from_dict({**whole.to_dict(), "measure": "wasserstein"})
