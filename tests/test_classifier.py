"""`FairClassifier`: soft predictions, its bound, and the scikit-learn contract."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import fairveil as fv
from fairveil import BudgetNotMet, BudgetWarning, FairClassifier, FairFrontier, InputError, Training
from fairveil.data.schema import Schema
from fairveil.encoders import ClassifierHead, Signature, build_encoder
from fairveil.estimators.classifier import _alike
from fairveil.objectives import AlphaLoss, LogLoss, PredictionLoss, SquaredLoss, ZeroOneLoss, score_grid
from fairveil.objectives.released import ReleasedBatch
from fairveil.training.confidence_bound import asymptotic_bound, upper_bound
from fairveil.training.panel import Opponent, Panel
from fairveil.training.steps import panel_losses
from helpers import FINITE, people

QUICK = Training(steps=20, batch_size=128, adversary_steps=1, adversary_hidden=((),), rounds=2)


def classifier(**settings):
    return FairClassifier(
        **{"max_loss": 50.0, "hidden": (8,), "training": QUICK, "verbose": False, "random_state": 0, **settings}
    )


# ---- soft predictions


@pytest.mark.parametrize("classes", [2, 3, 4, 7])
def test_scores_are_distributions_from_sure_to_sure(classes):
    scores = score_grid(classes, LogLoss())
    torch.testing.assert_close(scores.sum(dim=1), torch.ones(len(scores)))
    assert scores.min() > 0
    for label in range(classes):
        assert (scores[:, label] > 0.9).any()
    nearest = (scores - 1 / classes).abs().sum(dim=1).min()
    assert nearest < 0.2
    assert len({tuple(row) for row in scores.tolist()}) == len(scores)


def test_under_the_probability_of_error_labels_are_enough():
    torch.testing.assert_close(score_grid(3, ZeroOneLoss()), torch.eye(3))


@pytest.mark.parametrize("loss", [LogLoss(), ZeroOneLoss(), AlphaLoss(2.0)])
def test_the_loss_of_predictions_is_the_mean_over_the_draw(loss):
    scores = score_grid(3, loss)
    cost, generator = PredictionLoss(scores, loss), torch.Generator().manual_seed(0)
    chances = torch.rand(2, 5, len(scores), generator=generator).softmax(dim=-1)
    truth = torch.tensor([0, 2, 1, 1, 0])
    rows = torch.cat([torch.zeros(5, 4), torch.nn.functional.one_hot(truth, 3)], dim=1)
    found = cost.expected(ReleasedBatch(chances, chances), rows)
    for member in range(2):
        for row in range(5):
            expected = sum(
                float(p * loss.of_log_probability(score[truth[row]].log()))
                for p, score in zip(chances[member, row], scores, strict=True)
            )
            assert found[member, row, 0].item() == pytest.approx(expected, rel=1e-5)
    assert cost.largest == pytest.approx(float(loss.of_log_probability(scores.min().log())))


def test_adversaries_of_odds_see_the_pair_of_score_and_truth():
    schema = Schema.infer(pd.DataFrame({"a": list("xyz") * 10}))
    scores = tuple(map(tuple, score_grid(2, ZeroOneLoss()).tolist()))
    encoder = build_encoder(ClassifierHead(scores, given_truth=True, hidden=(4,)), Signature(schema.layout), 2)
    encoder.initialise([torch.Generator().manual_seed(i) for i in range(2)])
    rows = torch.cat([torch.eye(3), torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])], dim=1)
    release = encoder(rows, None, encoder.noise(3, torch.Generator().manual_seed(0)))
    assert release.weights.shape == (2, 3, 4)
    assert encoder.released_width == 4
    # Pairs with another truth have no chance, and those with the right one have the score's own.
    torch.testing.assert_close(release.weights[:, 0, [1, 3]], torch.zeros(2, 2))
    torch.testing.assert_close(release.weights[:, 1:, [1, 3]], release.probabilities[:, 1:])
    # The truth is not an input of the network: turned round, the chances stay.
    turned = torch.cat([rows[:, :3], 1.0 - rows[:, 3:]], dim=1)
    again = encoder(turned, None, encoder.noise(3, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(again.probabilities, release.probabilities)


def test_rows_that_count_double_are_rows_given_twice():
    """The adversary's mean loss and its chance, with importance against repeated rows."""
    generator = torch.Generator().manual_seed(0)
    secret, counts = torch.tensor([0, 1, 1, 0, 2]), torch.tensor([1, 3, 2, 1, 1])
    chances, atoms = torch.rand(2, 5, 4, generator=generator).softmax(dim=-1), torch.eye(4)
    panel = Panel(4, [Opponent((), 3)], members=2)
    panel.initialise([torch.Generator().manual_seed(i) for i in range(2)])
    importance = counts / counts.float().mean()
    weighed = panel_losses(
        panel, [LogLoss()], ReleasedBatch(chances, chances, atoms, chances), [secret], None, importance
    )
    twice = chances.repeat_interleave(counts, dim=1)
    plain = panel_losses(
        panel, [LogLoss()], ReleasedBatch(twice, twice, atoms, twice), [secret.repeat_interleave(counts)]
    )
    torch.testing.assert_close(weighed, plain)
    for loss in (LogLoss(), ZeroOneLoss(), AlphaLoss(2.0)):
        expected = loss.chance(secret.repeat_interleave(counts))
        torch.testing.assert_close(loss.chance(secret, counts.float()), expected)
    numbers = torch.randn(5, 2, generator=generator)
    torch.testing.assert_close(
        SquaredLoss().chance(numbers, counts.float()), SquaredLoss().chance(numbers.repeat_interleave(counts, dim=0))
    )


def test_balanced_groups_count_alike():
    secret, truth = torch.tensor([0, 0, 0, 1, 1, 0]), torch.tensor([0, 0, 0, 0, 1, 1])
    for weight in (torch.ones(6), torch.tensor([1.0, 2.0, 1.0, 1.0, 3.0, 4.0])):
        counted = weight * _alike(secret, truth, weight)
        assert float(counted.sum()) == pytest.approx(float(weight.sum()))
        for s in range(2):
            for y in range(2):
                assert float(counted[(secret == s) & (truth == y)].sum()) == pytest.approx(float(weight.sum()) / 4)


def test_balanced_fits(small):
    X, S, y = small
    fitted = classifier(balanced=True, fairness="equalized_odds").fit(X, y, sensitive_features=S)
    assert not np.allclose(
        fitted.label_chances(X), classifier(fairness="equalized_odds").fit(X, y, sensitive_features=S).label_chances(X)
    )


# ---- the estimator


def test_several_targets_and_columns_of_s(small):
    X, S, _ = small
    y = np.where(X["skill"] < 3, "low", np.where(X["skill"] < 7, "middle", "high"))
    training = replace(QUICK, per_column_adversaries=True)
    fitted = classifier(training=training, adversary_loss=AlphaLoss(2.0), loss=AlphaLoss(0.5),
                        fairness="equalized_odds").fit(X, y, sensitive_features=S)  # fmt: skip
    assert fitted.classes_.tolist() == ["high", "low", "middle"]
    assert fitted.predict_proba(X).shape == (len(X), 3)
    assert set(fitted.predict(X)) <= set(y)
    chances = fitted.label_chances(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-6)


def test_label_chances_are_the_frequencies_of_predict(small):
    X, S, y = small
    fitted = classifier(random_state=np.random.default_rng(0)).fit(X, y, sensitive_features=S["sex"])
    drawn = np.mean([fitted.predict(X) == 1 for _ in range(400)], axis=0)
    np.testing.assert_allclose(drawn, fitted.label_chances(X)[:, 1], atol=0.15)
    assert np.abs(drawn - fitted.label_chances(X)[:, 1]).mean() < 0.03


def test_a_seed_repeats_the_draw_and_none_does_not(small):
    X, S, y = small
    fitted = classifier().fit(X, y, sensitive_features=S["sex"])
    np.testing.assert_array_equal(fitted.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[fitted.predict_proba(X).argmax(axis=1)])
    fitted.random_state = None
    assert np.any(fitted.predict_proba(X) != fitted.predict_proba(X))


def test_it_may_see_s(small):
    X, S, y = small
    sees = classifier(sees_sensitive=True).fit(X, y, sensitive_features=S["sex"])
    assert len(sees.predict(X, sensitive_features=S["sex"])) == len(X)
    with pytest.raises(InputError, match="pass predict"):
        sees.predict(X)
    inside = X.assign(sex=S["sex"])
    both = classifier(sees_sensitive=True, sensitive_columns=["sex"]).fit(inside, y)
    assert len(both.predict(inside)) == len(X)
    blind = classifier().fit(X, y, sensitive_features=S["sex"])
    with pytest.raises(InputError, match="without it"):
        blind.predict(X, sensitive_features=S["sex"])


def test_polars_in(small):
    X, S, y = small
    fitted = classifier().fit(pl.from_pandas(X), pl.Series(y), sensitive_features=pl.Series(S["sex"]))
    assert fitted.predict(pl.from_pandas(X)).shape == (len(X),)


def test_a_bound_that_is_not_verified_is_not_met(small):
    X, S, y = small
    with pytest.raises(BudgetNotMet, match=r"above max_loss = 0.02.*Raise max_loss"):
        classifier(max_loss=0.02).fit(X, y, sensitive_features=S["sex"])
    with pytest.warns(BudgetWarning, match="above max_loss"):
        fitted = classifier(max_loss=0.02, unmet="warn").fit(X, y, sensitive_features=S["sex"])
    assert not fitted.loss_.met
    with pytest.raises(BudgetNotMet, match="None of the budgets is met"):
        FairFrontier(classifier(), [0.02, 0.03]).fit(X, y, sensitive_features=S["sex"])


def test_a_failed_fit_leaves_nothing_behind(small):
    X, S, y = small
    fitted = classifier().fit(X, y, sensitive_features=S["sex"])
    with pytest.raises(BudgetNotMet):
        fitted.set_params(max_loss=0.02).fit(X, y, sensitive_features=S["sex"])
    assert not hasattr(fitted, "veil_")


@pytest.mark.parametrize(("rows", "chance"), [(100, 0.01), (300, 0.005), (300, 0.1)])
def test_the_bound_on_the_loss_covers_where_errors_are_rare(rows, chance):
    """Good predictions cost a little, bad ones a lot: in 95 of 100 runs or more the true mean is below the bound."""
    cost = PredictionLoss(score_grid(2, LogLoss()), LogLoss())
    generator = np.random.default_rng(0)
    mean = (1 - chance) * cost.least + chance * cost.largest
    drawn = np.where(generator.random((500, rows)) < chance, cost.largest, cost.least)
    covered = np.mean([upper_bound(values, 0.95, cost.largest) >= mean for values in drawn])
    assert covered >= 0.93
    naive = np.mean([asymptotic_bound(values, 0.95, 0.0) >= mean for values in drawn])
    assert chance == 0.1 or naive < 0.9


def test_rows_predicted_one_by_one_do_not_share_a_random_number(small):
    X, S, y = small
    fitted = classifier(loss="zero_one", training=replace(QUICK, steps=1)).fit(X, y, sensitive_features=S["sex"])
    chances = fitted.label_chances(X.iloc[:200])[:, 1]
    drawn = np.array([fitted.predict(X.iloc[[i]])[0] for i in range(200)])
    # With one number for all, a label would be a threshold of its chance.
    assert chances[drawn == 0].max() > chances[drawn == 1].min()


def test_score_with_and_without_s(small):
    X, S, y = small
    blind = classifier().fit(X, y, sensitive_features=S["sex"])
    assert blind.score(X, y) == np.mean(blind.predict(X) == y)
    sees = classifier(sees_sensitive=True).fit(X, y, sensitive_features=S["sex"])
    assert 0 < sees.score(X, y, sensitive_features=S["sex"]) < 1


def test_frontier(small):
    X, S, y = small
    frontier = FairFrontier(classifier(), [40.0, 50.0])
    frontier.fit(X, y, sensitive_features=S["sex"])
    assert frontier.points_["met"].all()
    one = frontier.at(40.0)
    assert one.max_loss == 40.0
    assert one.predict(X).shape == (len(X),)
    with pytest.raises(InputError, match="no point"):
        frontier.at(41.0)


def test_saved_and_loaded(small, tmp_path):
    X, S, y = small
    labels = np.where(y == 1, "hired", "not")
    fitted = classifier(sees_sensitive=True, adversary_loss=AlphaLoss(2.0)).fit(X, labels, sensitive_features=S)
    fitted.save(tmp_path / "a.veil")
    again = fv.load(tmp_path / "a.veil")
    assert isinstance(again, FairClassifier)
    assert again.classes_.tolist() == ["hired", "not"]
    assert again.loss_ == fitted.loss_
    np.testing.assert_allclose(
        again.label_chances(X, sensitive_features=S), fitted.label_chances(X, sensitive_features=S)
    )
    again.random_state = 0
    np.testing.assert_array_equal(again.predict(X, sensitive_features=S), fitted.predict(X, sensitive_features=S))


def test_checkpoint_resumes_exactly(small, tmp_path):
    X, S, y = small
    saved = replace(QUICK, checkpoint=tmp_path / "a")
    whole = classifier(training=saved).fit(X, y, sensitive_features=S["sex"])
    again = classifier(training=saved).fit(X, y, sensitive_features=S["sex"])
    np.testing.assert_array_equal(whole.label_chances(X), again.label_chances(X))
    with pytest.raises(fv.VeilFileError, match="other data or other settings"):
        classifier(training=saved, max_loss=49.0).fit(X, y, sensitive_features=S["sex"])
    with pytest.raises(fv.VeilFileError, match="other data or other settings"):
        classifier(training=saved, balanced=True).fit(X, y, sensitive_features=S["sex"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fairness": "parity"}, "demographic_parity"),
        ({"max_loss": 0}, "max_loss"),
        ({"max_loss": "much"}, "max_loss"),
        ({"max_loss": 0.005}, "must exceed 0.00995"),
        ({"adversary_loss": "mse"}, "'adversary_loss' parameter of FairClassifier"),
        ({"random_state": "x"}, "'random_state' parameter of FairClassifier"),
        ({"training": Training(device="tpu")}, "'device' parameter of Training"),
        ({"random_state": None, "training": Training(checkpoint="a")}, "checkpoint needs"),
        ({"loss": "squared"}, "classes"),
        ({"adversary_loss": "squared"}, "classes"),
        ({"loss": "hinge"}, "loss"),
        ({"unmet": "ignore"}, "unmet"),
        ({"handle_unknown": "drop"}, "handle_unknown"),
        ({"confidence": 2}, "confidence"),
        ({"training": 5}, "training"),
        ({"schema": {}}, "schema"),
    ],
)
def test_bad_settings(small, settings, message):
    X, S, y = small
    with pytest.raises(InputError, match=message):
        classifier(**settings).fit(X, y, sensitive_features=S["sex"])


def test_bad_input(small):
    X, S, y = small
    for truth, message in (
        (None, "requires y"),
        (y[:-1], "599"),
        (np.ones(len(X)), "two classes"),
        (y.astype(float).mask(y.index < 3), "missing"),
        (np.linspace(0, 1, len(X)), "Unknown label type|continuous"),
        (np.stack([y, y], axis=1), "one column"),
        ([float("nan"), *map(str, y[1:])], "missing"),
        (np.arange(len(X)) % 30, "30 classes"),
        (pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(y, unit="D")), "dates"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier().fit(X, truth, sensitive_features=S["sex"])
    with pytest.raises(InputError, match="S is missing"):
        classifier().fit(X, y)
    for bounds in ([], [1.0, 1.0], 3.0, [0.5, -1]):
        with pytest.raises(InputError, match=r"max_loss|budget"):
            FairFrontier(classifier(), bounds).fit(X, y, sensitive_features=S["sex"])


def test_clone():
    assert (
        clone(classifier(fairness="equalized_odds")).get_params() == classifier(fairness="equalized_odds").get_params()
    )


# The first column of whatever the checks pass is sensitive; as few as ten rows verify no bound, hence the warning only.
CHECKED = FairClassifier(
    "demographic_parity",
    0.25,
    loss="zero_one",
    unmet="warn",
    verbose=False,
    random_state=0,
    hidden=(16,),
    training=Training(
        steps=150, batch_size=64, adversary_steps=1, rounds=2, learning_rate=1e-2, adversary_hidden=((),)
    ),
)


class Checked(FairClassifier):
    """For checks that know nothing of S: S is whether a row has an even number."""

    def fit(self, X, y, *, sensitive_features=None):
        rows = X.shape[0] if hasattr(X, "shape") else len(np.asarray(X))
        return super().fit(X, y, sensitive_features=np.arange(rows) % 2)


@parametrize_with_checks([Checked(**CHECKED.get_params())])
@pytest.mark.filterwarnings("ignore::fairveil.BudgetWarning")
@pytest.mark.filterwarnings("ignore::fairveil.ClippedWarning")
def test_estimator_checks(estimator, check):
    check(estimator)


def test_fairness_on_people():
    """A classifier told of nothing leaks by `role`; a fair one does not, and stays about as accurate."""
    X, S, _ = people(9000)  # enough held-out rows to verify a loss of 0.05
    y = ((X["skill"] + 3 * (S["sex"] == "m")) > 6).astype(int)
    s = (S["sex"] == "m").to_numpy()

    def gap(max_loss):
        fitted = FairClassifier(
            max_loss=max_loss, loss="zero_one", hidden=(32,), training=FINITE, verbose=False, random_state=0
        )
        chances = fitted.fit(X, y, sensitive_features=S["sex"]).label_chances(X)
        return abs(chances[s, 1].mean() - chances[~s, 1].mean()), chances[np.arange(len(y)), y].mean()

    tight, loose = gap(0.05), gap(0.2)
    assert tight[0] > 0.2
    assert tight[1] > 0.95
    assert loose[0] < 0.05
    assert loose[1] > 0.8
