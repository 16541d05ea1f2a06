"""Metrics against simulation, fairlearn, scikit-learn and their own definitions."""

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import demographic_parity_difference, equalized_odds_difference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import balanced_accuracy_score, roc_auc_score
from sklearn.metrics import log_loss as sklearn_log_loss

from fairveil import InputError, metrics
from fairveil.metrics import accuracy, demographic_parity_gap, equalized_odds_gap, group_rates, roc_auc, weighted_auc


def test_auc_is_scikit_learns_with_ties():
    generator = np.random.default_rng(0)
    truth = generator.random(500) < 0.3
    score = np.round(generator.normal(truth * 0.8, 1.0), 1)
    assert roc_auc(score, truth).value == pytest.approx(roc_auc_score(truth, score))
    with pytest.raises(InputError, match="both classes"):
        roc_auc([0.1, 0.2], [1, 1])


def test_scores_of_several_classes_are_scikit_learns():
    generator = np.random.default_rng(1)
    truth = generator.integers(0, 4, 800)
    p = generator.dirichlet(np.ones(4), 800) + 0.5 * np.eye(4)[truth]
    p /= p.sum(axis=1, keepdims=True)
    expected = roc_auc_score(truth, p, multi_class="ovr", average="weighted")
    assert weighted_auc(p, truth).value == pytest.approx(expected)
    assert metrics.log_loss(p, truth).value == pytest.approx(sklearn_log_loss(truth, p))
    guess = p.argmax(axis=1)
    assert metrics.balanced_accuracy(guess, truth).value == pytest.approx(balanced_accuracy_score(truth, guess))
    two = np.stack([1 - p[:, 0], p[:, 0]], axis=1)
    assert weighted_auc(two, truth == 0) == roc_auc(two[:, 1], truth == 0)


def test_intervals_cover_the_truth():
    generator = np.random.default_rng(1)
    exact_auc = float(stats.norm.cdf(0.5 / np.sqrt(2)))
    means = np.array([[0.0, 0.0], [0.8, 0.0], [0.0, 0.8]])
    large = generator.integers(0, 3, 200_000)
    exact_macro = _centroid_auc(generator.normal(means[large]), large, means).value
    hits = np.zeros(11)
    runs = 300
    for _ in range(runs):
        truth = generator.random(400) < 0.4
        right = roc_auc(generator.normal(truth * 0.5, 1.0), truth)
        hits[0] += right.low <= exact_auc <= right.high
        share = accuracy(generator.random(200) < 0.7, np.ones(200, dtype=bool))
        hits[1] += share.low <= 0.7 <= share.high
        groups = generator.random(600) < 0.5
        gap = demographic_parity_gap(generator.random(600) < np.where(groups, 0.6, 0.3), groups, resamples=200)
        hits[2] += gap.low <= 0.3 <= gap.high
        y = generator.random(600) < 0.5
        told = np.where(generator.random(600) < np.where(groups & y, 0.9, 0.6), y, ~y)
        odds = equalized_odds_gap(told, y, groups, resamples=200)
        hits[3] += odds.low <= 0.3 <= odds.high
        balanced = metrics.balanced_accuracy(np.where(generator.random(600) < np.where(y, 0.9, 0.6), y, ~y), y)
        hits[4] += balanced.low <= 0.75 <= balanced.high
        classes = generator.integers(0, 3, 300)
        several = _centroid_auc(generator.normal(means[classes]), classes, means)
        hits[5] += several.low <= exact_macro <= several.high
        alike = demographic_parity_gap(generator.integers(0, 4, 600), generator.integers(0, 3, 600), resamples=200)
        hits[6] += alike.low <= 0.0
        fair = equalized_odds_gap(generator.integers(0, 2, 600), y, groups, resamples=200)
        hits[7] += fair.total.low <= 0.0
        signal = generator.normal(size=200)
        noisy = signal + generator.normal(size=200) / 3
        explained = metrics.r_squared(signal, noisy, 0.0)
        hits[8] += explained.low <= 0.9 <= explained.high
        ranked = metrics.rank_correlation(signal, noisy)
        hits[9] += ranked.low <= 6 / np.pi * np.arcsin(np.sqrt(0.9) / 2) <= ranked.high
        apart = metrics.difference(int(generator.binomial(80, 0.7)), 80, int(generator.binomial(40, 0.6)), 40)
        hits[10] += apart.low <= 0.1 <= apart.high
    assert (hits / runs >= 0.91).all(), hits / runs


def _centroid_auc(x, truth, means):
    return weighted_auc(stats.norm.pdf(x[:, None, :] - means[None]).prod(axis=2), truth)


def test_gap_by_hand_for_several_groups_and_values():
    predicted = ["x", "x", "y", "x", "y", "z", "z", "z"]
    groups = ["a", "a", "a", "a", "b", "b", "c", "c"]
    gap = demographic_parity_gap(predicted, groups)
    assert gap.value == pytest.approx(1.0)  # z: never in a, always in c
    by_value = gap.by_value.set_index("y")
    assert by_value.loc["x", ["gap", "higher", "lower"]].tolist() == [0.75, "a", "b"]
    assert by_value.loc["z", ["gap", "higher", "lower"]].tolist() == [1.0, "c", "a"]
    assert gap.groups["rows"].tolist() == [4, 2, 2]
    assert gap.groups["small"].all()
    assert demographic_parity_gap([1, 0, 1, 0], [0, 0, 1, 1]).value == 0.0
    with pytest.raises(InputError, match="one length"):
        demographic_parity_gap([1, 0], [1])
    with pytest.raises(InputError, match="no rows"):
        demographic_parity_gap([], [])
    with pytest.raises(InputError, match="one column"):
        demographic_parity_gap([[1], [0]], [1, 0])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_binary_gaps_are_fairlearns(seed):
    generator = np.random.default_rng(seed)
    y, told, s = (generator.integers(0, k, 200) for k in (2, 2, 3))
    ours = demographic_parity_gap(told, s, resamples=2)
    assert ours.value == pytest.approx(demographic_parity_difference(y, told, sensitive_features=s))
    odds = equalized_odds_gap(told, y, s, resamples=2)
    assert odds.value == pytest.approx(equalized_odds_difference(y, told, sensitive_features=s))
    assert odds.total.value == pytest.approx(odds.by_value["gap"].sum())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_group_by_group_gives_the_same_as_all_at_once(seed):
    generator = np.random.default_rng(seed)
    y, told, s = (generator.integers(0, k, 300) for k in (3, 3, 2))
    order = np.argsort(s, kind="stable")
    assert demographic_parity_gap(told[order], s[order]) == demographic_parity_gap(told, s)
    alone = [np.mean(told[s == group] == 1) for group in (0, 1)]
    row = demographic_parity_gap(told, s).by_value.set_index("y").loc[1]
    assert row["gap"] == pytest.approx(abs(alone[0] - alone[1]))
    assert equalized_odds_gap(told[order], y[order], s[order]) == equalized_odds_gap(told, y, s)


def test_equalized_odds_leaves_out_groups_without_a_value():
    gap = equalized_odds_gap([1, 0, 1, 0], [1, 0, 1, 1], ["a", "a", "b", "b"])
    by_value = gap.by_value.set_index("y")["gap"]
    assert by_value[1] == pytest.approx(0.5)
    assert by_value[0] == 0.0  # group b has no row with Y = 0


def test_group_rates_by_hand_and_with_exact_intervals():
    generator = np.random.default_rng(0)
    y, told = generator.integers(0, 2, 500), generator.integers(0, 2, 500)
    s = np.repeat(["a", "b"], [480, 20])
    frame = group_rates(told, y, s).set_index("group")
    inside = s == "a"
    missed = (told[inside & (y == 1)] == 0).mean()
    assert frame.loc["a", "false_negative_rate"] == pytest.approx(missed)
    positives = int((y[inside] == 1).sum())
    low, high = stats.binomtest(round(missed * positives), positives).proportion_ci(method="exact")
    assert frame.loc["a", ["false_negative_rate_low", "false_negative_rate_high"]].tolist() == pytest.approx(
        [low, high]
    )
    assert frame["small"].tolist() == [False, True]
    turned = group_rates(told, y, s, positive=0).set_index("group")
    assert turned.loc["a", "false_positive_rate"] == pytest.approx(missed)
    with pytest.raises(InputError, match="two values"):
        group_rates([0, 1, 2], [0, 1, 2], [0, 0, 1])
    with pytest.raises(InputError, match="positive"):
        group_rates([0, 1], [0, 1], [0, 1], positive="yes")


def test_regression_gaps_over_bins_and_the_error_distribution():
    predicted = np.concatenate([np.linspace(0, 1, 100), np.linspace(1, 2, 100)])
    groups = np.repeat([0, 1], 100)
    assert demographic_parity_gap(predicted, groups, bins=[1.0]).value == pytest.approx(0.99)
    assert demographic_parity_gap(predicted, groups, bins=2).value == pytest.approx(1.0, abs=0.02)
    with pytest.raises(InputError, match="bins"):
        demographic_parity_gap(predicted, groups, bins=1)
    cdf = metrics.absolute_error_cdf(predicted, predicted + 0.5, at=[0.0, 0.49, 0.51])
    assert cdf["share"].tolist() == [0.0, 0.0, 1.0]
    assert (cdf["low"] <= cdf["share"]).all()
    assert (cdf["high"] >= cdf["share"]).all()


def test_the_band_of_the_error_distribution_covers_it_whole():
    generator = np.random.default_rng(0)
    grid = np.linspace(0, 3, 50)
    truth = 2 * stats.norm.cdf(grid) - 1
    inside = 0
    for _ in range(200):
        band = metrics.absolute_error_cdf(generator.normal(size=150), np.zeros(150), at=grid)
        inside += ((band["low"] <= truth) & (truth <= band["high"])).all()
    assert inside / 200 >= 0.93


def test_what_so_few_rows_can_show_has_no_zero_width():
    perfect = roc_auc([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])
    assert perfect.value == 1.0
    assert perfect.low < 0.2
    gap = demographic_parity_gap([1, 1, 1, 0, 0, 0], list("aaabbb"))
    assert gap.low < 1.0


def test_missing_values_are_refused():
    for values in ([1.0, np.nan], ["a", None]):
        with pytest.raises(InputError, match="missing"):
            demographic_parity_gap([1, 0], values)
    with pytest.raises(InputError, match="single group"):
        demographic_parity_gap([1, 0], ["a", "a"])
    with pytest.raises(InputError, match="positive"):
        group_rates([0, 0], [0, 0], ["a", "b"])
    assert group_rates([0, 0], [0, 0], ["a", "b"], positive=1)["selection_rate"].tolist() == [0.0, 0.0]


def test_confidence_is_checked():
    with pytest.raises(InputError, match="confidence"):
        accuracy([1], [1], confidence=1.0)


def test_pandas_series_with_any_index_are_taken():
    told = pd.Series([1, 0, 1, 0], index=[9, 7, 5, 3])
    assert demographic_parity_gap(told, pd.Series(["a", "a", "b", "b"])).value == 0.0
