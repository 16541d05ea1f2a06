"""People with several rows: intervals that account for them, and the warning where it is not stated."""

import numpy as np
import pandas as pd
import pytest

from fairveil.auditing.clusters import design_effect, repeats_too_often, widened
from fairveil.auditing.inputs import make_target, read_release, read_targets
from fairveil.auditing.protocol import Attempt, Parts
from fairveil.auditing.scoring import Truth, scores
from fairveil.datasets import load_adult
from fairveil.metrics import Estimate
from leaks import INDEPENDENT, independent


def test_the_design_effect_of_copies_is_their_number():
    generator = np.random.default_rng(0)
    own = generator.normal(size=2000)
    people = np.repeat(np.arange(2000), 5)
    assert design_effect(own[people] - own.mean(), people) == pytest.approx(5.0, rel=0.01)
    assert design_effect(generator.normal(size=10_000), people) == pytest.approx(1.0, abs=0.1)
    assert design_effect(generator.normal(size=10_000), np.arange(10_000)) == pytest.approx(1.0, abs=1e-3)


def test_intervals_are_widened_within_limits():
    people = np.repeat(np.arange(100), 4)
    influence = np.repeat(np.random.default_rng(0).normal(size=100), 4)
    wide = widened(Estimate(0.9, 0.85, 0.95, 400), influence - influence.mean(), people, (0.0, 1.0))
    assert wide.low == pytest.approx(0.8, abs=0.01)
    assert wide.high == 1.0
    assert widened(Estimate(0.9, 0.85, 0.95, 400), influence, None) == Estimate(0.9, 0.85, 0.95, 400)


@pytest.mark.parametrize("numeric", [False, True])
def test_intervals_cover_with_several_rows_per_person(numeric):
    """200 people with 5 rows each, whose scores and S are alike. Without clusters, intervals cover far too little."""
    names = ("advantage",) if numeric else ("accuracy", "auc", "balanced_accuracy")
    truth = {"accuracy": 0.6, "auc": 0.6, "balanced_accuracy": 0.6, "advantage": 0.36}
    covered = {(name, known): 0 for name in names for known in (True, False)}
    people = np.repeat(np.arange(200), 5)
    rows = np.arange(len(people))
    for run in range(300):
        generator = np.random.default_rng(run)
        if numeric:
            s = generator.normal(size=200)
            told = 0.36 * s + 0.48 * generator.normal(size=200)  # E[S | told] = told: R^2 = 0.36
            values, test = s[people], told[people]
        else:
            bit = generator.integers(0, 2, 200)
            said = np.where(generator.random(200) < 0.6, bit, 1 - bit)
            values, test = (
                np.array(["f", "m"])[bit[people]],
                np.stack([0.7 - 0.4 * said, 0.3 + 0.4 * said], axis=1)[people],
            )
        target = make_target("S", read_targets(values, "S")["S"])
        for known in (True, False):
            parts = Parts(rows, rows, rows, people=people if known else None)
            found = scores(Attempt("a", "values", test, test), Truth.of(target, parts), 0.95)
            for name in names:
                covered[name, known] += found[name].low <= truth[name] <= found[name].high
    for name in names:
        assert covered[name, True] >= 0.94 * 300
        assert covered[name, False] < 0.8 * 300


def warns(frame) -> bool:
    return repeats_too_often(read_release(frame, "released"))


@pytest.mark.parametrize("name", INDEPENDENT)
def test_the_warning_is_for_rows_of_people_and_not_for_frequent_values(name):
    found = [warns(independent(name, seed, 4000)[0]) for seed in range(20)]
    assert sum(found) == (20 if name == "clustered" else 0)


@pytest.mark.parametrize("each", [2, 3, 5])
def test_an_identifier_with_several_rows_warns(each):
    generator = np.random.default_rng(0)
    person = np.repeat(generator.permutation(10**6)[:800], each)
    assert warns(pd.DataFrame({"person": person, "x": generator.normal(size=len(person))}))


def test_tables_of_few_or_skewed_values_do_not_warn():
    generator = np.random.default_rng(0)
    for levels in (2, 5, 20, 60, 200):
        frame = pd.DataFrame(generator.integers(0, levels, (5000, 3)), columns=list("abc"))
        assert not warns(frame)
    assert not warns(pd.DataFrame({"a": generator.zipf(1.5, 5000), "b": generator.geometric(0.01, 5000)}))
    assert not warns(load_adult("I")[0].X)
