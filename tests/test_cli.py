"""The demo end to end, and what the command line says when something is wrong."""

import json
import subprocess
import sys

import pandas as pd
import pytest

import fairveil as fv
from fairveil.datasets import load_adult


def run(*arguments, **settings):
    code = "from fairveil.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, **settings
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run("demo", "--output", str(folder), "--steps", "20", "--budgets", "3,9"), folder


def test_the_demo_writes_what_it_says(demo):
    done, folder = demo
    assert done.returncode == 0, done.stderr
    assert "What a fresh LightGBM finds" in done.stdout
    assert "original" in done.stdout
    assert sorted(p.name for p in folder.iterdir()) == [
        "audit.html",
        "audit.json",
        "censored.csv",
        "frontier.json",
        "frontier.png",
        "sex.veil",
    ]
    points = json.loads((folder / "frontier.json").read_text())
    assert [p["budget"] for p in points] == [None, 3.0, 9.0]
    assert points[0]["sex_auc"]["value"] > 0.92


def test_the_censored_table_is_valid_and_shuffled(demo):
    _, folder = demo
    train, _ = load_adult("I")
    censored = pd.read_csv(folder / "censored.csv", keep_default_na=False)
    assert list(censored.columns) == list(train.X.columns)
    assert len(censored) == len(train)
    for name in train.X.select_dtypes(exclude="number"):
        assert set(censored[name]) <= set(train.X[name])
    assert (censored["education"] == train.X["education"]).mean() < 0.5  # rows do not stand where they stood
    loaded = fv.load(folder / "sex.veil")
    assert loaded.distortion_.met


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--budgets", "one,two"], "--budgets must be numbers"),
        (["demo", "--budgets", "-1"], "'budget'"),
        (["demo", "--steps", "0"], "steps"),
        (["demo", "--output", __file__], "is a file"),
        (["nonsense"], "No such command"),
        (["reproduce", "everything"], "no experiment 'everything'"),
    ],
)
def test_bad_usage_is_one_message_and_exit_code_two(tmp_path, arguments, message):
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_version():
    assert run("version").stdout.strip() == fv.__version__
