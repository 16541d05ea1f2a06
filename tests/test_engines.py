"""Engines: any of them gives the same results, whatever the order of the tasks and the number of workers."""

import importlib.util
import io
import os
import pickle
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import fairveil as fv
from fairveil._utils.engine import HERE
from fairveil.auditing import attackers
from fairveil.workflows.engines import ray as engine
from fairveil.workflows.engines import started
from fairveil.workflows.engines.shipping import Shipping, unpack

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


FUNCTIONS = []


def function_at(number):
    return FUNCTIONS[number]


class FunctionPickler(pickle.Pickler):
    """Pickles any function, as Ray's pickler does, but within this process only."""

    def reducer_override(self, value):
        if not isinstance(value, types.FunctionType) or value is function_at:
            return NotImplemented
        FUNCTIONS.append(value)
        return function_at, (len(FUNCTIONS) - 1,)


class Backwards:
    """Runs tasks in reverse order, from their packed arguments, with arrays that cannot be written."""

    def __init__(self):
        self.stored = []
        self.shipping = Shipping(self._put, FunctionPickler)

    def _put(self, value):
        self.stored.append(value)
        return len(self.stored) - 1

    def _value(self, reference):
        value = self.stored[reference]
        if isinstance(value, np.ndarray):
            value = np.array(value)
            value.setflags(write=False)
        return value

    def map(self, work, tasks, told=None):
        found = [None] * len(tasks)
        for number in reversed(range(len(tasks))):
            content, used = self.shipping.pack((work, tasks[number]))
            function, arguments = unpack(content, [self._value(reference) for reference in used])
            buffer = io.BytesIO()
            FunctionPickler(buffer).dump(function(*arguments))
            found[number] = pickle.loads(buffer.getvalue())
            if told is not None:
                told(number)
        return found

    def together(self, stages):
        return [stage() for stage in reversed(stages)][::-1]


def test_large_values_are_stored_once_and_small_ones_travel():
    stored = []
    shipping = Shipping(lambda value: stored.append(value) or len(stored) - 1, FunctionPickler)
    array, tensor = np.arange(20_000.0), torch.arange(40_000.0)
    table = pa.table({"a": np.arange(20_000)})
    frame = pd.DataFrame({"a": np.arange(20_000)})
    views = {"again": array, "tensor": tensor, "table": table, "frame": frame, "small": np.arange(3)}
    packed = [shipping.pack((number, array, views, lambda: 7)) for number in range(3)]
    assert len(stored) == 4
    for number, (content, used) in enumerate(packed):
        assert len(content) < 10_000
        found = unpack(content, [stored[reference] for reference in used])
        assert found[0] == number
        assert found[1] is array
        assert found[2]["again"] is array
        assert torch.equal(found[2]["tensor"], tensor)
        assert found[2]["table"].equals(table)
        assert found[2]["frame"].equals(frame)
        assert found[2]["small"].tolist() == [0, 1, 2]
        assert found[3]() == 7


def test_without_an_engine_everything_runs_here():
    order = []
    assert HERE.map(lambda a, b: order.append(a) or a + b, [(1, 2), (3, 4)], order.append) == [3, 7]
    assert order == [0, 1, 1, 3]
    assert HERE.together([lambda: 1, lambda: 2]) == [1, 2]
    assert HERE.group(lambda a, rank, size: (a, rank, size), ("x",), 1) == [("x", 0, 1)]
    with pytest.raises(ValueError, match="cluster"):
        HERE.group(print, (), 2)
    with pytest.raises(fv.InputError, match="Unknown engine 'spark'"), started("spark"):
        pass


@pytest.fixture
def few(monkeypatch):
    """Three fast attackers."""
    chosen = {("linear", "values"), ("LightGBM", "values"), ("MLP 128-64", "values")}

    def battery(*args, **more):
        return [each for each in attackers.battery(*args, **more) if (each.name, each.view) in chosen]

    for module in ("audit", "tasks"):
        monkeypatch.setattr(sys.modules[f"fairveil.auditing.{module}"], "battery", battery)


def inputs(rows=500):
    generator = np.random.default_rng(0)
    s = generator.integers(0, 2, rows)
    frame = pd.DataFrame({"pay": generator.normal(0.8 * s), "town": generator.choice(list("abc"), rows),
                          "age": generator.integers(20, 60, rows)})  # fmt: skip
    secret = pd.DataFrame({"sex": np.where(s == 1, "m", "f"), "born": 1950 + 3 * s + generator.integers(0, 40, rows)})
    return frame, secret, {"rich": pd.Series(np.where(frame["pay"] > 0, "yes", "no"))}


def test_an_audit_does_not_depend_on_the_engine(few):
    frame, secret, targets = inputs()
    original = frame.assign(pay=frame["pay"] + (secret["sex"] == "m"))
    backwards = Backwards()
    results = [
        fv.audit(frame, secret, targets, original=original, verbose=False, engine=used).to_dict()
        for used in (HERE, backwards)
    ]
    seconds = [result.pop("seconds") for result in results]
    assert str(results[0]) == str(results[1])
    assert seconds[0].keys() == seconds[1].keys()
    again = fv.audit(frame, secret, targets, original=original, verbose=False, random_state=1).to_dict()
    assert str(again["attacks"]) != str(results[0]["attacks"])  # the control


def test_a_frontier_of_parts():
    frame, secret, _ = inputs(400)
    brief = fv.Training(steps=2, adversary_hidden=((4,),), rounds=1)
    encoder = fv.FairEncoder(training=brief, unmet="warn", verbose=False, random_state=0)
    parts = [fv.FairFrontier(encoder, [budget]).fit(frame, sensitive_features=secret["sex"]) for budget in (6.0, 9.0)]
    joined = fv.FairFrontier.of(encoder, parts)
    assert joined.points_["budget"].tolist() == [6.0, 9.0]
    assert joined.budgets == [6.0, 9.0]
    assert joined.at(9.0) is parts[1].estimators_[0]
    assert joined.transform(frame).shape == frame.shape


@pytest.mark.parametrize("verb", ["fit", "frontier", "audit", "reproduce"])
def test_without_ray_every_verb_says_how_to_install_it(place, run, monkeypatch, verb):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    words = {
        "fit": ["fit", place / "people.csv", "-s", "sex", "-o", place / "other.veil", "--processes", "2"],
        "frontier": ["frontier", place / "people.csv", "-s", "sex", "-o", place / "other"],
        "audit": ["audit", place / "people.csv", "--original", place / "people.csv", "-s", "sex", "--same-order"],
        "reproduce": ["reproduce", "gaussian", "--output", place / "other"],
    }[verb]  # fmt: skip
    code, said = run(*words, "--engine", "ray")
    assert code == 2
    assert said.strip().splitlines() == [f"fairveil: {engine.INSTALL}"]
    assert not list(place.glob("other*"))


def test_processes_need_a_cluster(place, run):
    code, said = run("fit", place / "people.csv", "-s", "sex", "-o", place / "other.veil", "--processes", "2")
    assert code == 2
    assert "--processes is for --engine ray" in said


CLUSTER = """
import logging, sys, warnings
from pathlib import Path
import numpy as np, pandas as pd, ray, torch
import fairveil as fv
from fairveil._utils.errors import InputError
from fairveil.workflows import Recipe, fit_file, fit_frontier
from fairveil.workflows.engines import started
from fairveil.workflows.engines.ray import WorkFailed
sys.path.insert(0, sys.argv[2])
from test_engines import inputs
warnings.simplefilter("ignore")
place = Path(sys.argv[1])
frame, secret, targets = inputs()
audits, weights = [], []

def audit(**engine):
    result = fv.audit(frame, secret, targets, original=frame.assign(pay=frame["pay"] + (secret["sex"] == "m")),
                      verbose=False, **engine).to_dict()
    result.pop("seconds")
    audits.append(str(result))

def fit(name, **engine):
    recipe = Recipe(("sex",), steps=6, seed=0, architecture="feedforward", show_progress=False)
    weights.append(fit_file(place / "people.csv", place / name, 1e6, recipe, **engine).veil_.encoder.state_dict())

def fail(value):
    raise KeyError("hush hush")

def refuse(value):
    raise InputError("not " + value)

audit()
fit("here.veil")
for workers in (1, 2, 8):
    ray.init(num_cpus=workers, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    with started("ray") as engine:
        audit(engine=engine)
    if workers == 2:
        with started("ray") as engine:
            assert engine.map(str, [(1,), (2,)]) == ["1", "2"]
            for work, kind, text in ((fail, WorkFailed, "KeyError in fail"), (refuse, InputError, "not x")):
                try:
                    engine.map(work, [("x",)])
                except kind as error:
                    assert text in str(error) and "hush" not in str(error)
                else:
                    raise AssertionError(work)
                try:
                    engine.group(work, ("x",), 1) if work is fail else None
                except (WorkFailed, InputError, TypeError) as error:
                    assert "hush" not in str(error)
        fit("one.veil", engine="ray", processes=1)
        fit("two.veil", engine="ray", processes=2)
        recipe = Recipe(("sex",), steps=6, seed=0, show_progress=False)
        points = fit_frontier(place / "people.csv", place / "veils", [1e5, 1e6], recipe, engine="ray")
        print(points[["budget", "met"]].to_dict("list"))
        try:
            fit("none.veil", engine="ray", processes=3)
        except InputError as error:
            print(error)
    ray.shutdown()
assert len(set(audits)) == 1, "an audit depends on the workers"
alone, one, two = weights
assert all(torch.equal(alone[name], one[name]) for name in alone)
assert all(torch.allclose(alone[name], two[name], atol=0.05) for name in alone)  # their dropout differs
assert not all(torch.equal(alone[name], two[name]) for name in alone)
"""


@needs_ray
@pytest.mark.timeout(900)
def test_audits_fits_and_frontiers_on_a_cluster(place):
    """1, 2 and 8 workers give the audit of this process, to the last bit; a game played by a task is the same."""
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER, str(place), os.path.dirname(__file__)], capture_output=True, text=True,
        check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "{'budget': [0.0, 100000.0, 1000000.0], 'met': [True, True, True]}" in done.stdout
    assert "fewer than 3 CPUs" in done.stdout
    assert {path.name for path in (place / "veils").glob("*.veil")} == {"sex-100000.veil", "sex-1e+06.veil"}
    assert "hush" not in done.stdout + done.stderr
