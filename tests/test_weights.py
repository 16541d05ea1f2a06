"""Sample weights: a row of weight 2 counts twice; confidence intervals are based on the actual rows."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from fairveil import FairClassifier, FairEncoder, FairFrontier, InputError, Schema, Training, audit, metrics
from fairveil._utils.weights import effective_rows, systematic_resample
from fairveil.auditing.protocol import Parts
from fairveil.data.frames import read_table
from fairveil.data.rows import Rows
from fairveil.data.table_codec import Codec
from fairveil.encoders.codebook import learn_cells
from fairveil.training.confidence_bound import upper_bound
from helpers import QUICK, people


def case(seed, rows=60):
    """Labels, groups, scores and integer weights, some of them 0."""
    generator = np.random.default_rng(seed)
    truth, group = generator.integers(0, 3, rows), generator.integers(0, 2, rows)
    scores = generator.dirichlet(np.ones(3), rows) + 0.4 * np.eye(3)[truth]
    scores = np.round(scores / scores.sum(axis=1, keepdims=True), 2)
    return truth, group, scores, generator.integers(0, 4, rows)


MEASURES = {
    "accuracy": lambda y, s, p, w: metrics.accuracy(p.argmax(axis=1), y, sample_weight=w).value,
    "balanced accuracy": lambda y, s, p, w: metrics.balanced_accuracy(p.argmax(axis=1), y, sample_weight=w).value,
    "auc": lambda y, s, p, w: metrics.roc_auc(p[:, 1], y == 1, sample_weight=w).value,
    "auc of several": lambda y, s, p, w: metrics.weighted_auc(p, y, sample_weight=w).value,
    "log loss": lambda y, s, p, w: metrics.log_loss(p, y, sample_weight=w).value,
    "r squared": lambda y, s, p, w: metrics.r_squared(p[:, 1], y, 1.0, sample_weight=w).value,
    "rank correlation": lambda y, s, p, w: metrics.rank_correlation(p[:, 1], y, sample_weight=w).value,
    "parity": lambda y, s, p, w: metrics.demographic_parity_gap(p.argmax(axis=1), s, sample_weight=w).value,
    "odds": lambda y, s, p, w: metrics.equalized_odds_gap(p.argmax(axis=1), y, s, sample_weight=w).total.value,
    "rates": lambda y, s, p, w: metrics.group_rates(p[:, 1] > 0.4, y == 1, s, sample_weight=w)[
        ["accuracy", "selection_rate", "false_positive_rate", "false_negative_rate"]
    ].to_numpy().ravel(),
    "error cdf": lambda y, s, p, w: metrics.absolute_error_cdf(
        p[:, 1], y, [0.1, 0.5, 1.0], sample_weight=w
    )["share"].to_numpy(),
}  # fmt: skip


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("seed", range(4))
def test_a_weight_is_a_number_of_rows(name, seed):
    truth, group, scores, weights = case(seed)
    repeated = [np.repeat(column, weights, axis=0) for column in (truth, group, scores)]
    weighted = MEASURES[name](truth, group, scores, weights)
    assert weighted == pytest.approx(MEASURES[name](*repeated, None), abs=1e-12)
    assert weighted != pytest.approx(MEASURES[name](truth, group, scores, None), abs=1e-6)  # weights have an effect


@pytest.mark.parametrize("name", MEASURES)
def test_equal_weights_are_none(name):
    truth, group, scores, _ = case(9)
    assert MEASURES[name](truth, group, scores, np.full(len(truth), 1e200)) == pytest.approx(
        MEASURES[name](truth, group, scores, None)
    )


def test_equal_weights_leave_intervals_as_they_are():
    truth, group, scores, _ = case(1, 400)
    guess, same = scores.argmax(axis=1), np.full(400, 7.0)
    for plain, weighted in [
        (metrics.accuracy(guess, truth), metrics.accuracy(guess, truth, sample_weight=same)),
        (metrics.roc_auc(scores[:, 1], truth == 1), metrics.roc_auc(scores[:, 1], truth == 1, sample_weight=same)),
        (metrics.weighted_auc(scores, truth), metrics.weighted_auc(scores, truth, sample_weight=same)),
        (
            metrics.demographic_parity_gap(guess, group),
            metrics.demographic_parity_gap(guess, group, sample_weight=same),
        ),
    ]:
        assert (weighted.low, weighted.high) == pytest.approx((plain.low, plain.high))


def test_weighted_intervals_cover_the_population():
    """Sampling depends on the outcome; weights correct for that, and intervals include the design effect."""
    generator = np.random.default_rng(3)
    runs, hits = 400, np.zeros(5)
    chance_of_one, auc = 0.4, 0.7602499389  # the AUC of two normals, one standard deviation apart
    for _ in range(runs):
        group = generator.random(3000) < 0.5
        truth = generator.random(3000) < chance_of_one
        told = generator.random(3000) < np.where(group, 0.7, 0.4)
        score = generator.normal(truth * 1.0)
        kept_with = np.where(truth, 0.1, 0.4) * np.where(told, 0.9, 0.3)
        kept = generator.random(3000) < kept_with
        weights = 1.0 / kept_with[kept]
        found = [
            metrics.accuracy(told[kept], np.ones(kept.sum(), dtype=bool), sample_weight=weights),
            metrics.of_mean(truth[kept], weights=weights),
            metrics.roc_auc(score[kept], truth[kept], sample_weight=weights),
            metrics.demographic_parity_gap(told[kept], group[kept], sample_weight=weights, resamples=200),
        ]
        exact = [0.55, chance_of_one, auc, 0.3]
        hits[:4] += [estimate.low <= value <= estimate.high for estimate, value in zip(found, exact, strict=True)]
        hits[4] += upper_bound(truth[kept].astype(float), 0.95, 1.0, weights=weights) >= chance_of_one
    assert (hits / runs >= 0.92).all(), hits / runs


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20).filter(any))
@settings(deadline=None, max_examples=50)
def test_resampled_rows_follow_their_weights(weights):
    """With as many draws as the weights sum to, each row is repeated exactly as often as its weight."""
    found = np.bincount(systematic_resample(np.array(weights, float), sum(weights)), minlength=len(weights))
    assert found.tolist() == weights
    rows = Rows(torch.arange(len(weights)).float()[:, None], None, (), weight=torch.tensor(weights).double())
    assert len(rows.repeated()) == len(weights)


def test_minibatches_follow_the_weights():
    weights = torch.tensor([0.0, 1.0, 2.0, 5.0], dtype=torch.float64)
    rows = Rows(torch.arange(4.0)[:, None], None, (torch.arange(4),), weight=weights)
    batch = rows.draw(80_000, torch.Generator().manual_seed(0))
    shares = torch.bincount(batch.secrets[0], minlength=4) / len(batch)
    assert shares.numpy() == pytest.approx(weights.numpy() / 8, abs=0.01)
    assert batch.weight is None


def cells(values, rows, weights, count):
    table = read_table(pd.DataFrame({"x": np.repeat(values, rows)}))
    schema = Schema.infer(table).without_bins().edit("x", grid=0.01)
    x = Codec(schema).encode(table.arrow)
    found = learn_cells(x, schema, count, 0, weight=torch.from_numpy(np.repeat(weights, rows))).records
    return sorted(Codec(schema).decode(found)["x"].to_pylist())


def test_cells_follow_the_weights():
    found = cells([0.25, 1.25, 50.25], [100, 100, 200], [1.0, 3.0, 1.0], 2)
    assert found == pytest.approx([1.0, 50.25], abs=0.02)


def test_one_person_of_large_weight_is_not_a_cell():
    found = cells([0.0, 50.0, 49.0, 90.0], [100, 100, 100, 1], [1.0, 1.0, 1.0, 1e4], 4)
    assert len(found) >= 2
    assert 90.0 not in found


def test_effective_rows():
    assert effective_rows(np.full(10, 3.0), 10) == pytest.approx(10)
    assert effective_rows(np.array([1.0, 0.0, 0.0]), 3) == pytest.approx(1)


def test_upper_bound_of_equal_weights_is_that_of_none():
    values = np.random.default_rng(0).exponential(size=500)
    assert upper_bound(values, 0.95, weights=np.full(500, 2.0)) == pytest.approx(upper_bound(values, 0.95))


BAD = {
    "too short": ([1.0, 2.0], "2. They must"),
    "negative": (np.r_[-1.0, np.ones(99)], "at least 0"),
    "nan": (np.r_[np.nan, np.ones(99)], "finite"),
    "zero": (np.zeros(100), "zero in all rows"),
    "text": (["a"] * 100, "hold numbers"),
    "two columns": (np.ones((100, 2)), "1D"),
    "one number": (3.0, "1D"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_weights(name):
    weights, message = BAD[name]
    X, S, y = people(100)
    for estimator in (FairEncoder(50.0, training=QUICK, verbose=False), FairClassifier(training=QUICK, verbose=False)):
        with pytest.raises(InputError, match=message):
            estimator.fit(X, y, sensitive_features=S["sex"], sample_weight=weights)


def leaning(rows, seed):
    """A table whose column `tell` equals S in 90 % of the rows."""
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, rows)
    tell = np.where(generator.random(rows) < 0.9, s, 1 - s)
    return pd.DataFrame({"tell": tell.astype(str)}), s


def test_the_game_is_played_for_the_population():
    """Rows of weight 0 have no effect on training."""
    X, s = leaning(3000, 0)
    absent = np.r_[np.ones(2000), np.zeros(1000)]
    spoilt = X.copy()
    spoilt.iloc[2000:] = "7"  # a value only in rows of weight 0
    training = Training(steps=60, rounds=2)
    encoder = FairEncoder(0.5, architecture="feedforward", sees_sensitive=True, verbose=False, random_state=0,
                          training=training)  # fmt: skip
    weighted = clone(encoder).fit(spoilt, sensitive_features=s, sample_weight=absent)
    plain = clone(encoder).fit(X[:2000], sensitive_features=s[:2000])
    assert weighted.distortion_.mean == pytest.approx(plain.distortion_.mean, rel=0.1)
    assert weighted.schema_ == plain.schema_


@pytest.mark.filterwarnings("ignore::fairveil.BudgetWarning")
@pytest.mark.parametrize("architecture", ["feedforward", "transport", "partition"])
def test_a_weighted_budget_is_that_of_the_repeated_table(architecture):
    """Rows of one group have nine times the weight: the encoder's distortion is the weighted mean."""
    X, s = leaning(4000, 1)
    X["number"] = np.random.default_rng(2).normal(s * 1.0)
    weights = np.where(s == 1, 9.0, 1.0)
    fitted = FairEncoder(0.35, architecture=architecture, sees_sensitive=True, verbose=False, random_state=0,
                         training=Training(steps=150, rounds=3), unmet="warn").fit(
        X, sensitive_features=s, sample_weight=weights
    )  # fmt: skip
    new, groups = leaning(4000, 5)
    new["number"] = np.random.default_rng(6).normal(groups * 1.0)
    released = fitted.transform(new, sensitive_features=groups)
    each = (released["tell"] != new["tell"]).to_numpy(dtype=float)
    weighted = np.average(each, weights=np.where(groups == 1, 9.0, 1.0))
    assert weighted == pytest.approx(fitted.distortion_.parts["categorical"].mean, abs=0.06)
    assert abs(weighted - each.mean()) > 0.06 or architecture == "partition"  # so that the weights matter
    assert fitted.distortion_.upper >= fitted.distortion_.mean


def test_frontier_and_classifier_take_weights():
    X, S, y = people(400)
    weights = np.random.default_rng(0).integers(0, 3, 400)
    frontier = FairFrontier(FairEncoder(training=QUICK, verbose=False, random_state=0), [40.0, 60.0])
    frontier.fit(X, sensitive_features=S["sex"], sample_weight=weights)
    assert frontier.points_["met"].all()
    for balanced in (False, True):
        classifier = FairClassifier(max_loss=5.0, training=QUICK, verbose=False, random_state=0, balanced=balanced)
        assert classifier.fit(X, y, sensitive_features=S["sex"], sample_weight=weights).loss_.met


def test_adversaries_are_held_against_the_weighted_prior():
    from fairveil.objectives import LogLoss, SquaredLoss

    s, weights = torch.tensor([0, 0, 1, 1]), torch.tensor([1.0, 0.0, 2.0, 5.0])
    repeated = torch.repeat_interleave(s, weights.long())
    assert float(LogLoss().chance(s, weights)) == pytest.approx(float(LogLoss().chance(repeated)))
    numbers = torch.tensor([[0.0], [1.0], [2.0], [4.0]])
    expected = SquaredLoss().chance(torch.repeat_interleave(numbers, weights.long(), dim=0))
    assert float(SquaredLoss().chance(numbers, weights)) == pytest.approx(float(expected))


def survey(rows, seed):
    """A release that reveals S and a task for half of the population, which is a tenth of the rows."""
    generator = np.random.default_rng(seed)
    s, y, told = (generator.integers(0, 2, rows) for _ in range(3))
    told = generator.random(rows) < 0.1
    frame = pd.DataFrame({
        "a": np.where(told, s, generator.integers(0, 2, rows)),
        "b": np.where(told, y, generator.integers(0, 2, rows)),
        "told": told.astype(int),
    })  # fmt: skip
    return frame, s, y, np.where(told, 9.0, 1.0)


def test_an_audit_is_of_the_population():
    """S is revealed in half of the population (accuracy 0.75) but in a tenth of the rows (accuracy 0.55)."""
    frame, s, y, weights = survey(8000, 0)
    plain = audit(frame, s, {"y": y}, verbose=False)
    weighted = audit(frame, s, {"y": y}, sample_weight=weights, verbose=False)
    repeated = np.repeat(np.arange(8000), weights.astype(int))
    split = np.random.default_rng(0).choice(["train", "validation", "test"], 8000, p=[0.5, 0.15, 0.35])[repeated]
    twice = audit(frame.iloc[repeated], s[repeated], {"y": y[repeated]}, split=split, verbose=False)
    for name, of_rows, of_population in [("accuracy", 0.55, 0.75), ("auc", 0.595, 0.875), ("worst_gap", 0.1, 0.5)]:
        assert plain.leakage[name][0] == pytest.approx(of_rows, abs=0.03)
        assert weighted.leakage[name][0] == pytest.approx(of_population, abs=0.04)
        assert twice.leakage[name][0] == pytest.approx(of_population, abs=0.04)
        # Repeated rows add no information: the weighted audit must have the wider interval.
        wide = weighted.leakage[f"{name}_high"][0] - weighted.leakage[f"{name}_low"][0]
        assert wide > 1.2 * (twice.leakage[f"{name}_high"][0] - twice.leakage[f"{name}_low"][0])
    assert weighted.tasks["utility"].max() == pytest.approx(0.75, abs=0.04)
    assert weighted.information["lower"][0] == pytest.approx(0.5 * np.log(2), abs=0.04)
    assert weighted.valid
    assert weighted.settings["weighted"]


def test_rows_without_weight_take_no_part_in_an_audit():
    frame, s, _, _ = survey(3000, 1)
    weights = 1.0 - frame["told"]
    assert not audit(frame, s, sample_weight=weights, verbose=False).leakage["found"][0]
    assert audit(frame, s, verbose=False).leakage["found"][0]


def test_whole_weights_repeat_training_rows_exactly():
    weights = np.array([1.0, 0.0, 3.0, 2.0, 1.0])
    parts = Parts(np.array([0, 1, 2]), np.array([3]), np.array([1, 4])).weighted(weights)
    assert parts.train.tolist() == [0, 2, 2, 2]
    assert parts.validation.tolist() == [3]
    assert parts.test.tolist() == [4]


def test_an_audit_refuses_bad_weights():
    frame, s, _, _ = survey(300, 2)
    with pytest.raises(InputError, match="The release has 300 rows, sample_weight 2"):
        audit(frame, s, sample_weight=[1.0, 2.0], verbose=False)
