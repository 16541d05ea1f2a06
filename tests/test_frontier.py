"""Many budgets at once: points, the estimators behind them, pictures."""

import pickle

import pandas as pd
import pytest
import torch

import fairveil as fv
from fairveil import FairEncoder, FairFrontier
from helpers import QUICK, people


def quick(budget=50.0, **settings):
    return FairEncoder(budget, **{"training": QUICK, "verbose": False, "random_state": 0, **settings})


def test_pickle_and_frontier_share_one_path(small):
    X, S, _ = small
    frontier = FairFrontier(FairEncoder(training=QUICK, verbose=False, random_state=0), [20.0, 50.0]).fit(
        X, sensitive_features=S["sex"]
    )
    alone = quick(50.0).fit(X, sensitive_features=S["sex"])
    point = frontier.at(50.0)
    for a, b in zip(point.veil_.encoder.parameters(), alone.veil_.encoder.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=0)
    again = pickle.loads(pickle.dumps(point))
    pd.testing.assert_frame_equal(again.transform(X), point.transform(X))
    assert frontier.points_["met"].all()
    pd.testing.assert_frame_equal(frontier.transform(X, budget=20.0), frontier.at(20.0).transform(X))
    with pytest.raises(fv.InputError, match="no point with budget 3"):
        frontier.at(3.0)


def test_frontier_marks_points_that_are_not_met():
    X, S, _ = people(2000)
    never_learns = fv.AugmentedLagrangian(rho=1e-9, rate=0.0)
    frontier = FairFrontier(
        FairEncoder(constraint=never_learns, training=QUICK, verbose=False, random_state=0), [0.01, 50.0], n_seeds=2
    )
    with pytest.warns(fv.BudgetWarning, match=r"not met on held-out rows: \[0.01\]"):
        frontier.fit(X, sensitive_features=S["sex"])
    assert frontier.points_["met"].tolist() == [False, False, True, True]
    assert frontier.points_["seed"].tolist() == [0, 1, 0, 1]
    with pytest.raises(fv.BudgetNotMet):
        frontier.at(0.01)
    a, b = frontier.at(50.0, seed=0), frontier.at(50.0, seed=1)
    assert any(
        not torch.equal(p, q) for p, q in zip(a.veil_.encoder.parameters(), b.veil_.encoder.parameters(), strict=True)
    )


def test_frontier_fit_transform_that_sees_s_takes_the_most_changed_point(small):
    X, S, _ = small
    frontier = FairFrontier(
        FairEncoder(sees_sensitive=True, training=QUICK, verbose=False, random_state=0), [60.0, 50.0]
    )
    released = frontier.fit_transform(X, sensitive_features=S["sex"])
    best = frontier.points_.loc[frontier.points_["distortion"].idxmax(), "budget"]
    pd.testing.assert_frame_equal(released, frontier.transform(X, budget=best, sensitive_features=S["sex"]))


def test_a_frontier_is_shown(small, tmp_path):
    X, S, _ = small
    frontier = FairFrontier(quick(), [40.0, 60.0]).fit(X, sensitive_features=S["sex"])
    _spent, leak = frontier.plot()
    assert {round(float(line.get_xdata()[0]), 6) for line in leak.lines[:2]} <= set(
        frontier.points_["distortion"].round(6)
    )
    assert len(leak.texts) == 2
    frontier.to_html(tmp_path / "frontier.html")
    page = (tmp_path / "frontier.html").read_text()
    assert page.count('class="panel"') == 2
    assert page.count('class="chart"') == 2
    assert page.count('class="mark') == 4
    assert "http" not in page.replace("http-equiv", "")
    assert "Frontier" in frontier._repr_html_()
    assert "Fitted encoder" in frontier.at(40.0)._repr_html_()
    with pytest.raises(FileNotFoundError, match="no folder"):
        frontier.to_html(tmp_path / "absent" / "frontier.html")


def test_a_frontier_of_budgets_by_kind_is_shown(small, tmp_path):
    X, S, _ = small
    budgets = [{"categorical": 30.0, "continuous": 30.0}, {"categorical": 40.0, "continuous": 40.0}]
    frontier = FairFrontier(quick(), budgets).fit(X, sensitive_features=S["sex"])
    frontier.to_html(tmp_path / "frontier.html")
    assert "categorical" in (tmp_path / "frontier.html").read_text()
