"""Losses, constraints and tasks as an estimator plays them: each hides S, holds its bound, or serves its task."""

import numpy as np
import pandas as pd
import pytest
import torch

import fairveil as fv
from fairveil import FairEncoder
from fairveil.training.game import Game
from helpers import QUICK, SMALL

SHORT = fv.Training(steps=150, batch_size=512, adversary_hidden=((32,),), rounds=5)


def quick(budget=50.0, **settings):
    return FairEncoder(budget, **{"training": QUICK, "verbose": False, "random_state": 0, **settings})


@pytest.fixture(scope="module")
def telling():
    """A column that tells S in nine rows of ten, and one that does not."""
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, 3000)
    told = np.where(generator.random(3000) < 0.9, s, 1 - s)
    return pd.DataFrame({"told": np.array(["x", "y"])[told], "other": generator.choice(list("uvw"), 3000)}), s


@pytest.mark.parametrize("loss", ["log", "zero_one", fv.AlphaLoss(0.5), fv.AlphaLoss(3.0)])
def test_every_loss_hides_s(telling, loss):
    X, s = telling
    encoder = quick(0.6, loss=loss, architecture=SMALL, training=SHORT).fit(X, sensitive_features=s)
    released = encoder.transform(X)
    assert abs(np.corrcoef(X["told"] == "y", s)[0, 1]) > 0.75  # the control
    assert abs(np.corrcoef(released["told"] == "y", s)[0, 1]) < 0.25
    assert (released["other"] != X["other"]).mean() < 0.25  # what tells nothing need not be changed


@pytest.mark.parametrize("constraint", ["penalty", fv.Penalty(rho=20.0), "augmented_lagrangian"])
def test_every_constraint_holds_a_bound_that_binds(telling, constraint):
    """Without a constraint the same game spends more than twice as much (see the control)."""
    X, s = telling
    settings = {"architecture": SMALL, "training": SHORT, "unmet": "warn"}
    free = quick(5.0, constraint=constraint, **settings).fit(X, sensitive_features=s)
    bound = quick(0.2, constraint=constraint, **settings).fit(X, sensitive_features=s)
    assert free.distortion_.mean > 0.4
    assert bound.distortion_.mean > 0.05
    assert bound.distortion_.met


def test_a_task_by_class_number_or_several(small, monkeypatch):
    X, S, y = small
    seen = []
    begin = Game.__init__

    def noted(self, problem, *given):
        begin(self, problem, *given)
        seen.append([(type(task.loss).__name__, task.outputs) for task in problem.tasks])

    monkeypatch.setattr(Game, "__init__", noted)
    for target in (y, X["height"], pd.DataFrame({"hired": y, "height": X["height"], "town": S["region"]})):
        quick(target_weight=0.5).fit(X, target, sensitive_features=S["sex"])
    assert seen == [[("LogLoss", 2)], [("SquaredLoss", 1)], [("LogLoss", 2), ("SquaredLoss", 1), ("LogLoss", 3)]]


@pytest.mark.parametrize("settings", [{}, {"sees_sensitive": True, "architecture": "transport"}])
def test_a_task_of_no_weight_is_no_task(small, settings):
    X, S, y = small
    shown = S["sex"] if settings else None
    universal = quick(**settings).fit(X, sensitive_features=S["sex"])
    weightless = quick(target_weight=0.0, **settings).fit(X, y, sensitive_features=S["sex"])
    pd.testing.assert_frame_equal(weightless.transform(X, sensitive_features=shown),
                                  universal.transform(X, sensitive_features=shown))  # fmt: skip
    weighed = quick(target_weight=5.0, **settings).fit(X, y, sensitive_features=S["sex"])
    learned = [encoder.veil_.encoder.state_dict() for encoder in (universal, weightless, weighed)]
    assert all(torch.equal(learned[0][name], learned[1][name]) for name in learned[0])
    assert any(not torch.equal(learned[0][name], learned[2][name]) for name in learned[0])
