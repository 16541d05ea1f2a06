"""The audit finds leaks that it was not designed for, and nothing in independent tables."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fairveil import audit
from fairveil.auditing.attack import attack_all
from fairveil.auditing.attackers import battery
from fairveil.auditing.crosses import Crosses
from fairveil.auditing.inputs import make_target, read_clusters, read_release, read_targets
from fairveil.auditing.protocol import Evidence, Terms, split_rows
from fairveil.information import mixed_mutual_information
from fairveil.metrics import roc_auc
from leaks import INDEPENDENT, LEAKS, independent, planted


def attacked(frame, s, seed, clusters=None, checks=True):
    """The attacks of a quick audit on one column; with `checks`, only the fast attackers that run the controls."""
    released = read_release(frame, "released")
    target = make_target("S", read_targets(s, "S")["S"])
    people = read_clusters(clusters, len(frame))
    parts = split_rows(None, target.values if target.classes else None, len(frame), 10**6, seed, people)
    attackers = [attacker for attacker in battery("quick") if attacker.checks or not checks]
    return attack_all(target, attackers, Evidence.of(released, parts), Terms(seed=seed))


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_of_five_points_is_found(leak):
    assert attacked(*planted(leak, 0, 0.05, 10_000), 0).summary["found"]


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_that_determines_s_is_found_at_once(leak):
    summary = attacked(*planted(leak, 1, 0.5, 2000), 0).summary
    assert summary["accuracy"] > 0.8
    assert summary["p_value"] == pytest.approx(0.001)


@pytest.mark.parametrize("leak", ["week of the year", "remainder of seven", "substring", "number format", "ratio",
                                  "pair occurs twice", "close to the row before", "sum of digits", "repeats far away",
                                  "sum of three modulo", "sign of three", "days between", "rank within a category",
                                  "every second occurrence", "many codes", "digit within a code",
                                  "check digit"])  # fmt: skip
def test_a_leak_that_no_attacker_was_designed_for_is_found(leak):
    assert attacked(*planted(leak, 0, 0.05, 10_000), 0).summary["found"]


@pytest.mark.parametrize("name", INDEPENDENT)
def test_nothing_is_found_where_there_is_nothing(name):
    found = []
    for seed in range(8):
        frame, s, clusters = independent(name, seed, 2000)
        found.append(attacked(frame, s, seed, clusters).summary["found"])
    assert sum(found) <= 1


def test_rows_of_one_person_are_no_evidence():
    """Counter-check: without `clusters`, the same rows give a false alarm."""
    found = [attacked(*independent("clustered", seed, 2000)[:2], seed).summary["found"] for seed in range(3)]
    assert all(found)


def test_a_small_class_among_many_is_not_diluted():
    hits = 0
    for seed in range(4):
        generator = np.random.default_rng(seed)
        s = generator.choice(30, 10_000, p=[0.02, *[0.98 / 29] * 29])
        flag = np.where(s == 0, generator.random(10_000) < 0.5, generator.random(10_000) < 0.2)
        frame = pd.DataFrame({"flag": flag.astype(int), "x": generator.normal(size=10_000)})
        hits += attacked(frame, s.astype(str), seed).summary["found"]
    assert hits == 4


@pytest.mark.parametrize("spread", [True, False])
def test_a_number_whose_mean_is_hidden_is_still_found(spread):
    """The release reveals the distance of S from its mean; the conditional mean of S is constant."""
    generator = np.random.default_rng(0)
    s = generator.normal(size=6000)
    told = np.abs(s) > 1 if spread else (np.abs(s) > 0.67) ^ (generator.random(6000) < 0.2)
    frame = pd.DataFrame({"told": told.astype(int), "x": generator.normal(size=6000)})
    found = attacked(frame, s, 0)
    assert found.summary["found"]
    assert found.summary["advantage"] < 0.02  # the number itself is not predicted
    shuffled = [attacked(frame, generator.permutation(s), seed).summary["found"] for seed in range(5)]
    assert sum(shuffled) <= 1


def test_the_worst_gap_survives_a_small_group():
    generator = np.random.default_rng(0)
    s = generator.choice(["a", "b"], 8000)
    s[generator.permutation(8000)[:40]] = "c"
    flag = generator.random(8000) < np.where(s == "a", 0.65, 0.35)
    summary = attacked(pd.DataFrame({"flag": flag.astype(int)}), s, 0).summary
    assert summary["worst_gap"] == pytest.approx(0.3, abs=0.05)


def test_certainty_about_single_rows_is_measured():
    """One row in a hundred reveals its group; on average S is hardly predicted."""
    generator = np.random.default_rng(0)
    s = generator.choice(["f", "m"], 20_000)
    sure = (generator.random(20_000) < 0.02) & (s == "f")
    found = attacked(pd.DataFrame({"mark": sure.astype(int), "x": generator.normal(size=20_000)}), s, 0)
    tails = {(row["group"], row["share"]): row for row in found.tails}
    assert tails["f", 0.005]["precision"] > 0.97
    assert tails["f", 0.005]["precision_low"] > 0.9
    assert tails["m", 0.01]["precision"] < 0.7
    assert tails["f", 0.005]["rate"] == pytest.approx(0.5, abs=0.02)
    harmless = attacked(pd.DataFrame({"x": generator.normal(size=20_000)}), s, 0)
    assert all(row["precision_low"] < row["rate"] + 0.1 for row in harmless.tails)


def test_a_leak_is_reported_although_the_original_hides_s():
    """If attackers fail on the original but succeed on the release, the audit is valid and reports the leak."""
    generator = np.random.default_rng(0)
    s = generator.choice(["f", "m"], 1500)
    original = pd.DataFrame({"x": generator.normal(size=1500)})
    told = np.where(s == "f", 0.1, 0.9) + generator.normal(size=1500) / 20
    result = audit(original.assign(told=told), s, original=original, verbose=False)
    assert result.valid
    assert result.max_advantage > 0.45
    assert not result.controls.query("control == 'original data'")["passed"].any()


def test_limits_refuse_data_from_which_only_s_was_removed():
    """One group is large, so accuracy alone does not show the leak."""
    generator = np.random.default_rng(0)
    s = np.where(generator.random(6000) < 0.9, "m", "f")
    frame = pd.DataFrame({"x": generator.normal(np.where(s == "f", 0.8, 0.0))})
    result = audit(frame, s, verbose=False)
    assert result.max_advantage < 0.02
    assert len(result.exceeded(auc=0.6, balanced_advantage=0.1, gap=0.1)) >= 2
    assert not result.exceeded(advantage=0.05)
    harmless = audit(pd.DataFrame({"x": generator.normal(size=6000)}), s, verbose=False)
    assert not harmless.exceeded(auc=0.5, balanced_advantage=0.0, gap=0.0, advantage=0.0)


def test_a_task_is_not_predicted_from_its_own_column():
    generator = np.random.default_rng(0)
    s, y = generator.choice(["f", "m"], 3000), generator.choice(["no", "yes"], 3000)
    frame = pd.DataFrame({"y": y, "x": generator.normal(size=3000)})
    result = audit(frame, s, {"y": y}, original=frame, verbose=False)
    assert result.tasks["utility"].max() < 0.6
    other = audit(frame.rename(columns={"y": "z"}), s, {"y": y}, verbose=False)  # counter-check: renamed column
    assert other.tasks["utility"].max() == 1.0


def test_ties_are_no_information():
    generator = np.random.default_rng(0)
    x, s = generator.integers(0, 3, (2000, 8)).astype(float), generator.random(2000) < 1 / 3
    assert abs(mixed_mutual_information(x, s)) < 0.02
    assert abs(mixed_mutual_information(np.hstack([x, x]), s)) < 0.02  # too many dimensions for the k-d tree
    told = mixed_mutual_information(np.c_[x[:, 0] * 0 + s], s)
    assert told == pytest.approx(stats.entropy([1 / 3, 2 / 3]), abs=0.03)


@pytest.mark.parametrize(("positives", "shift"), [(2, 1.0), (7, 0.5), (7, 2.0), (30, 1.0), (60, 2.0)])
def test_auc_intervals_cover_with_few_positives(positives, shift):
    generator = np.random.default_rng(positives)
    exact = stats.norm.cdf(shift / np.sqrt(2))
    truth = np.r_[np.ones(positives), np.zeros(500)]
    covered = 0
    for _ in range(300):
        score = generator.normal(shift * truth)
        found = roc_auc(score, truth)
        covered += found.low <= exact <= found.high
    assert covered >= 0.94 * 300


@pytest.mark.parametrize(("positives", "share"), [(7, 0.5), (15, 0.85), (30, 0.85), (30, 0.95), (60, 0.7)])
def test_auc_intervals_cover_if_positives_lie_above_or_below_all_negatives(positives, share):
    """The area is then a share of the positives. Its distribution is skewed: a normal interval covers too little."""
    generator = np.random.default_rng(positives)
    truth = np.r_[np.ones(positives), np.zeros(500)]
    covered = 0
    for _ in range(300):
        above = generator.random(positives) < share
        score = np.r_[np.where(above, 3.0, -3.0) + 0.1 * generator.normal(size=positives), np.zeros(500)]
        found = roc_auc(score, truth)
        covered += found.low <= share <= found.high
    assert covered >= 0.94 * 300


def test_crosses_find_a_parity_and_predict_numbers():
    generator = np.random.default_rng(0)
    x = generator.integers(0, 2, (4000, 6)).astype(np.float32)
    parity = (x[:, 0] + x[:, 2] + x[:, 5]) % 2
    for classes in (2, None):
        model = Crosses(classes, 0).fit(x[:2000], parity[:2000], x[2000:3000], parity[2000:3000])
        predicted = model.predict(x[3000:])
        guess = predicted.argmax(axis=1) if classes else predicted > 0.5
        assert (guess == parity[3000:]).mean() > 0.99
    unseen = np.full((5, 6), 9.0, dtype=np.float32)  # classes not in the training rows
    assert np.isfinite(model.predict(unseen)).all()
