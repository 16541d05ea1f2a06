"""Numeric S, S of mixed types and S with small groups, from Python and from the command line."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import fairveil as fv
from fairveil.auditing import AuditResult
from fairveil.data.sensitive import OTHERS, describe_sensitive, merge_groups
from fairveil.workflows import inspect_file, open_table
from helpers import QUICK, people


def table(rows=900, seed=0):
    """People whose weight depends on age; some groups of `origin` are small."""
    generator = np.random.default_rng(seed)
    frame, s, _ = people(rows, seed)
    age = generator.integers(18, 95, rows)
    origin = generator.choice(["here", "there"], rows).astype(object)
    origin[:15], origin[15:30], origin[30:33] = "far", "farther", "farthest"
    weight = np.round(60 + 0.3 * age + generator.normal(size=rows), 1)
    return frame.assign(weight=weight, sex=s["sex"].to_numpy(), age=age, origin=origin)


def test_numbers_are_cut_into_ranges_of_equally_many_rows():
    numbers = np.random.default_rng(0).gamma(3.0, 20.0, 5000)
    found = describe_sensitive(pa.table({"income": numbers}), discrete=True)
    counts = np.bincount(found.classes_of(pa.table({"income": numbers})).numpy())
    assert len(counts) == 8
    assert counts.min() > 5000 / 8 / 2
    assert counts.max() < 5000 / 8 * 2
    [column] = found.columns
    assert not set(column.starts[1:]) & set(numbers)  # round numbers, not values from the data
    # Values far above the training range fall into the last range.
    assert found.classes_of(pa.table({"income": [1e6]})).tolist() == [7]
    assert [values[0].split()[0] for values in found.joint_values()][::7] == ["below", "from"]


def test_ranges_survive_a_file(tmp_path):
    frame = table()
    X = frame[["role", "weight"]]
    encoder = fv.FairEncoder(1e6, sees_sensitive=True, training=QUICK, verbose=False, random_state=0)
    encoder.fit(X, sensitive_features=frame[["sex", "age"]]).save(tmp_path / "both.veil")
    again = fv.load(tmp_path / "both.veil").set_params(random_state=0)
    assert again.veil_.sensitive == encoder.veil_.sensitive
    assert len(again.veil_.sensitive.joint) == 16
    pd.testing.assert_frame_equal(
        again.transform(X, sensitive_features=frame[["sex", "age"]]),
        encoder.transform(X, sensitive_features=frame[["sex", "age"]]),
    )


def test_hiding_ranges_hides_the_number():
    """Weight predicts age. After training, its correlation with age is much lower."""
    frame = table(4000)
    X, age = frame[["weight"]], frame["age"]
    encoder = fv.FairEncoder(3.0, sees_sensitive=True, verbose=False, random_state=0, architecture="feedforward",
                             training=fv.Training(steps=300))  # fmt: skip
    released = encoder.fit(X, sensitive_features=age).transform(X, sensitive_features=age)
    before, after = (abs(np.corrcoef(frame["weight"] if x is X else x["weight"], age)[0, 1]) for x in (X, released))
    assert before > 0.9
    assert after < 0.5


def test_mixed_s_from_the_command_line(tmp_path, run):
    frame = table()[["role", "weight", "sex", "age"]]
    frame.to_csv(tmp_path / "people.csv", index=False)
    at = tmp_path / "people.csv"
    code, told = run("inspect", at, "-s", "sex,age", "--json")
    assert code == 0
    notes = {column["name"]: column["notes"] for column in json.loads(told)["columns"]}
    assert "--loss squared" in notes["age"][0]
    code, told = run("fit", at, "-s", "sex,age", "--budget", "1e6", "--steps", 5, "-o", tmp_path / "a.veil", "--quiet")
    assert code == 0, told
    code, told = run("release", at, "--veil", tmp_path / "a.veil", "-o", tmp_path / "out.csv", "--quiet")
    assert code == 0, told
    assert list(pd.read_csv(tmp_path / "out.csv").columns) == ["role", "weight"]
    code, told = run("audit", tmp_path / "out.csv", "--original", at, "-s", "sex,age", "--quiet", "--json")
    assert code in (0, 1), told
    again = ["release", at, "--veil", tmp_path / "a.veil", "-o", tmp_path / "more.csv", "--quiet", "--again"]
    code, told = run(*again)  # what both releases reveal together is measured
    assert code == 0, told
    assert "from all 2 together" in told
    code, told = run("frontier", at, "-s", "sex,age", "--budgets", "1e5", "--steps", 3, "-o", tmp_path / "veils",
                     "--quiet")  # fmt: skip
    assert code == 0, told


def test_a_number_by_squared_loss_from_the_command_line(tmp_path, run):
    table()[["role", "weight", "age"]].to_csv(tmp_path / "people.csv", index=False)
    code, told = run("fit", tmp_path / "people.csv", "-s", "age", "--loss", "squared", "--budget", "1e6", "--steps", 5,
                     "-o", tmp_path / "age.veil", "--quiet")  # fmt: skip
    assert code == 0, told
    assert not fv.load(tmp_path / "age.veil").veil_.sensitive.discrete
    code, told = run("fit", tmp_path / "people.csv", "-s", "age", "--loss", "cubic", "-o", tmp_path / "b.veil")
    assert code == 2
    assert "loss" in told


def test_small_groups_are_told_and_merged(tmp_path, run):
    frame = table()[["role", "weight", "origin"]]
    frame.to_csv(tmp_path / "people.csv", index=False)
    at, schema = tmp_path / "people.csv", tmp_path / "schema.yaml"
    [found] = [f for f in inspect_file(open_table(at), ("origin",)).found if f.column.name == "origin"]
    assert "3 group(s) of fewer than 20 rows (33 rows" in found.notes[0]
    assert "farthest" not in str(found)  # values of only three rows are not reported
    assert run("inspect", at, "-s", "origin", "-o", schema)[0] == 0
    code, told = run("fit", at, "--schema", schema, "--budget", "1e6", "--steps", 5, "-o", tmp_path / "a.veil",
                     "--quiet")  # fmt: skip
    assert code == 0, told
    veil = fv.load(tmp_path / "a.veil").veil_
    assert veil.sensitive.joint_values() == [(OTHERS,), ("here",), ("there",)]
    assert run("release", at, "--veil", tmp_path / "a.veil", "-o", tmp_path / "out.csv", "--quiet")[0] == 0
    code, told = run("audit", tmp_path / "out.csv", "--original", at, "-s", "origin", "--quiet", "--json")
    assert code in (0, 1), told
    assert set(AuditResult.from_json(told).groups["group"]) == {OTHERS, "here", "there"}


def test_a_handful_of_rows_joins_the_largest_group(tmp_path):
    frame = table()[["role", "weight"]].assign(kind=["a"] * 500 + ["b"] * 396 + ["c"] * 4)
    frame.to_csv(tmp_path / "people.csv", index=False)
    column = inspect_file(open_table(tmp_path / "people.csv"), ("kind",)).schema()["kind"]
    assert column.categories == ("a", "b")
    merged = merge_groups(pa.table({"kind": ["a", "c", None]}), {"kind": column})
    assert merged["kind"].to_pylist() == ["a", "a", None]


def test_small_groups_from_python_are_refused_only_when_saved(tmp_path):
    frame = table()
    encoder = fv.FairEncoder(1e6, training=QUICK, verbose=False, random_state=0)
    encoder.fit(frame[["role", "weight"]], sensitive_features=frame["origin"])
    with pytest.raises(fv.InputError, match="fewer than 10 rows"):
        encoder.save(tmp_path / "a.veil")
