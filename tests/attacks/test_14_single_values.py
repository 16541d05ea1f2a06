"""Values of single people became edges of bins: a bonus of 7321 that one row held stood in the release five times.

And veils made from Python listed categories that one row held.
"""

import json

import numpy as np
import pandas as pd
import pytest

import fairveil as fv
from fairveil._utils.errors import InputError
from fairveil.data.columns import FEWEST
from fairveil.veil.archive import read_archive
from fairveil.workflows import Recipe, fit_file
from helpers import QUICK
from releases import write


def staff(rows=2000, seed=0):
    """Bonuses of which one is 7321, wages that are all different, a count with rare values, a role of one row."""
    generator = np.random.default_rng(seed)
    sex = generator.choice(["f", "m"], rows)
    bonus = np.where(generator.random(rows) < 0.2, 500, 0)
    bonus[3] = 7321
    role = generator.choice(["clerk", "guard"], rows).astype(object)
    role[5] = "zyzzyva tamer"
    return pd.DataFrame({
        "bonus": bonus,
        "wage": np.round(generator.lognormal(8, 0.7, rows), 2),
        "trips": generator.integers(0, 3, rows) + generator.integers(0, 40, rows) * (generator.random(rows) < 0.01),
        "role": role,
    }), pd.Series(sex, name="sex")  # fmt: skip


def numbers_in(values):
    """Every number and text that a manifest holds."""
    if isinstance(values, dict):
        for value in values.values():
            yield from numbers_in(value)
    elif isinstance(values, list):
        for value in values:
            yield from numbers_in(value)
    else:
        yield values


@pytest.mark.parametrize("seed", range(3))
def test_no_value_of_a_few_rows_is_in_a_veil(tmp_path, seed):
    frame, sex = staff(seed=seed)
    encoder = fv.FairEncoder(
        1e4, architecture="feedforward", sees_sensitive=True, training=QUICK, random_state=0, verbose=False
    )
    encoder.fit(frame, sensitive_features=sex).save(tmp_path / "sex.veil")
    told = {
        value
        for value in numbers_in(read_archive(tmp_path / "sex.veil")[0]["schema"])
        if isinstance(value, (int, float, str)) and not isinstance(value, bool)
    }
    assert "zyzzyva tamer" not in told
    for name in ("bonus", "wage"):
        counts = frame[name].value_counts()
        rare = {float(v) for v in counts[counts < FEWEST].index}
        column = encoder.schema_[name]
        edges = {*column.starts, column.lower, column.upper, column.center}
        assert len(edges & rare) <= 2, name  # a round number may be somebody's wage by chance
    assert 7321.0 not in told


def test_the_bonus_of_one_person_is_not_released():
    frame, sex = staff()
    encoder = fv.FairEncoder(
        1e4, architecture="feedforward", sees_sensitive=True, training=QUICK, random_state=0, verbose=False
    )
    released = encoder.fit(frame, sensitive_features=sex).transform(frame, sensitive_features=sex)
    assert (released["bonus"] == 7321).sum() == 0
    assert (released["role"] == "zyzzyva tamer").sum() == 0
    # The control: with a schema of all that occurs they are.
    loose = fv.Schema.infer(frame, fewest=1)
    again = fv.FairEncoder(
        1e4,
        architecture="feedforward",
        sees_sensitive=True,
        training=QUICK,
        random_state=0,
        verbose=False,
        schema=loose,
    )
    released = again.fit(frame, sensitive_features=sex).transform(frame, sensitive_features=sex)
    assert (released["bonus"] == 7321).any()
    assert "zyzzyva tamer" in json.dumps(loose.to_dict())


@pytest.mark.parametrize("seed", range(5))
def test_every_bin_holds_enough_rows_or_none_of_its_edges_is_a_value_of_few(seed):
    frame, _ = staff(3000, seed)
    for name in ("bonus", "wage", "trips"):
        column = fv.Schema.infer(frame[[name]])[name]
        if column.kind == "categorical":
            continue
        values = frame[name].clip(column.lower, column.upper).to_numpy(dtype=float)
        counts = np.bincount(
            np.searchsorted(column.starts, values + column.grid / 2, side="right") - 1, minlength=len(column.starts)
        )
        for i, count in enumerate(counts):
            if 0 < count < FEWEST:  # only between two values that many rows hold
                start, stop = column.starts[i], column.starts[i + 1]
                assert (values == stop).sum() >= FEWEST or (np.isclose(values, start - column.grid)).sum() >= FEWEST, (
                    name,
                    start,
                )


def test_no_file_lists_a_value_of_s_that_few_rows_hold(tmp_path):
    frame, sex = staff()
    sex = sex.mask(np.arange(len(sex)) < 9, "x")
    encoder = fv.FairEncoder(1e4, training=QUICK, random_state=0, verbose=False).fit(frame, sensitive_features=sex)
    with pytest.raises(InputError, match=r"'sex' has values held by fewer than 10 rows"):
        encoder.save(tmp_path / "sex.veil")
    path = write(tmp_path, frame.assign(sex=sex))
    recipe = Recipe(("sex",), architecture="feedforward", steps=10**6, show_progress=False)
    with pytest.raises(InputError, match=r"'sex' has 1 group\(s\) of fewer than 20 rows"):  # before it is trained
        fit_file(path, tmp_path / "sex.veil", 1e5, recipe)
    assert [p.name for p in tmp_path.iterdir()] == ["people.csv"]


def test_what_is_rare_is_read_as_the_most_frequent_without_an_error_and_counted():
    frame, sex = staff()
    encoder = fv.FairEncoder(1e4, architecture="feedforward", training=QUICK, random_state=0, verbose=False).fit(
        frame, sensitive_features=sex
    )
    assert encoder.schema_["role"].rare
    assert encoder.transform(frame).shape == frame.shape
    assert encoder.distortion_.lost > 0
    # A column without rare values still refuses what it does not know.
    plain = frame.assign(role=frame["role"].replace("zyzzyva tamer", "clerk"))
    strict = fv.FairEncoder(1e4, architecture="feedforward", training=QUICK, random_state=0, verbose=False).fit(
        plain, sensitive_features=sex
    )
    with pytest.raises(InputError, match="has not seen"):
        strict.transform(frame)


def test_the_least_of_ten_different_bonuses_is_not_told():
    bonus = np.zeros(2000)
    bonus[:10] = 7321 + 100 * np.arange(10)
    column = fv.Schema.infer(pd.DataFrame({"bonus": bonus}))["bonus"]
    assert 7321.0 not in (*column.categories, *column.starts, column.lower, column.upper)


def test_a_rule_does_not_tell_what_one_row_holds():
    grade = np.repeat(["a", "b", "c"], 300).astype(object)
    pay = np.repeat([2000, 3000, 5200], 300)
    grade[0], pay[0] = None, 4321
    rules = fv.Schema.infer(pd.DataFrame({"grade": grade, "pay": pay})).dependencies
    assert rules
    assert not any(4321 in rule.values for rule in rules)
