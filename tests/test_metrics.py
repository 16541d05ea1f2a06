"""Metrics against simulation and against each other's definitions; probes with their controls."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from fairveil import InputError
from fairveil.auditing import probe
from fairveil.metrics import accuracy, demographic_parity_gap, roc_auc


def test_auc_is_scikit_learns_with_ties():
    generator = np.random.default_rng(0)
    truth = generator.random(500) < 0.3
    score = np.round(generator.normal(truth * 0.8, 1.0), 1)
    assert roc_auc(score, truth).value == pytest.approx(roc_auc_score(truth, score))
    with pytest.raises(InputError, match="both classes"):
        roc_auc([0.1, 0.2], [1, 1])


def test_intervals_cover_the_truth():
    generator = np.random.default_rng(1)
    exact_auc = float(stats.norm.cdf(0.5 / np.sqrt(2)))
    hits = np.zeros(3)
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
    assert (hits / runs >= 0.91).all()


def test_gap_by_hand_for_several_groups_and_values():
    predicted = ["x", "x", "y", "x", "y", "z", "z", "z"]
    groups = ["a", "a", "a", "a", "b", "b", "c", "c"]
    assert demographic_parity_gap(predicted, groups).value == pytest.approx(1.0)  # z: never in a, always in c
    assert demographic_parity_gap([1, 0, 1, 0], [0, 0, 1, 1]).value == 0.0
    with pytest.raises(InputError, match="one length"):
        demographic_parity_gap([1, 0], [1])


@pytest.fixture(scope="module")
def planted():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": generator.normal(size=6000), "b": generator.choice(["u", "v"], 6000)})
    secret = np.where((frame["a"] > 0) ^ (frame["b"] == "u"), "yes", "no")  # an interaction, nothing linear
    return frame, secret


def test_a_probe_finds_what_is_there_and_nothing_where_nothing_is(planted):
    frame, secret = planted
    strong = probe(frame[:4000], secret[:4000], frame[4000:], secret[4000:])
    assert strong.accuracy.value > 0.97
    assert strong.auc.value > 0.99
    shuffled = np.random.default_rng(1).permutation(secret)
    none = probe(frame[:4000], shuffled[:4000], frame[4000:], shuffled[4000:])
    assert none.auc.low <= 0.5 <= none.auc.high


def test_a_probe_of_several_classes_and_a_class_only_in_the_test_rows(planted):
    frame, _ = planted
    truth = np.where(frame["a"] > 1, "high", np.where(frame["a"] < -1, "low", "mid"))
    truth[-1] = "new"
    result = probe(frame[:4000], truth[:4000], frame[4000:], truth[4000:], groups=frame["b"][4000:])
    assert 0.97 < result.accuracy.value < 1.0
    assert result.auc is None
    assert result.gap.rows == 2000
    rare = np.where(np.arange(6000) % 3000 == 0, "rare", truth)
    assert probe(frame[:4000], rare[:4000], frame[4000:], rare[4000:]).accuracy.value > 0.97
    with pytest.raises(InputError, match="two classes"):
        probe(frame[:10], truth[:10], frame[:10], truth[:10])
    with pytest.raises(InputError, match="as many rows"):
        probe(frame[:10], truth[:9], frame[:10], truth[:10])
