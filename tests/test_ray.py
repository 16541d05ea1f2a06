"""Releases on a Ray cluster: the same rows as on one machine, whatever dies. `make test-ray` installs Ray first.

Each test runs in a process of its own: a cluster must not be left behind in the test process. `benchmarks/cluster.py`
has more kills and more rows.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fairveil._utils.errors import InputError
from fairveil.workflows import Options, release_file
from fairveil.workflows.engines import ray as engine
from fairveil.workflows.reading import TableFile
from fairveil.workflows.release.job import Job
from fairveil.workflows.release.tasks import stretches

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
BENCHMARK = Path(__file__).parent.parent / "benchmarks" / "cluster.py"


def test_without_ray_one_line_says_how_to_install_it(place, run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, said = run(
        "release", place / "people.csv", "--veil", place / "sex.veil", "-o", place / "out", "--engine", "ray"
    )
    assert code == 2
    assert said.strip().splitlines() == [f"fairveil: {engine.INSTALL}"]
    assert "pip install 'fairveil[ray]'" in said
    assert not (place / "out").exists()
    assert not list(place.glob(".*"))


def test_a_folder_named_ray_is_not_ray(tmp_path, monkeypatch):
    """Python takes any folder for a package without content."""
    (tmp_path / "ray").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    with pytest.raises(InputError, match="not installed"):
        engine.require_ray()


def test_an_unknown_engine_is_refused(place):
    with pytest.raises(InputError, match="Unknown engine 'spark'"):
        release_file(place / "people.csv", place / "sex.veil", place / "out", Options(engine="spark"))


def test_a_cluster_needs_a_private_place_for_unfinished_work_of_a_store(place, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin="ray/__init__.py"))
    with pytest.raises(InputError, match="needs --scratch"):
        release_file(place / "people.csv", place / "sex.veil", "memory://out", Options(engine="ray"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tasks_cover_every_batch_once_with_growing_indices(kind):
    """By brute force over files of many sizes."""
    sizes = [1, 99, 100, 101, 5000, 0, 1600, 3, 1601, 40_000]
    groups = [(700,) * (rows // 700) + (rows % 700,) for rows in sizes]
    files = tuple(TableFile(Path(f"{i}"), kind, ("a",), 3 * rows, rows, rows, groups=groups[i])
                  for i, rows in enumerate(sizes))  # fmt: skip
    source = TableFile(Path("in"), kind, ("a",), 0, None, 0, pieces=files)
    job = object.__new__(Job)
    job.__dict__.update(source=source, batch_rows=100)
    tasks = stretches(job)
    covered, indices = [], []
    for file, first, last, index in (stretch for task in tasks for stretch in task):
        batches = -(-sizes[file] // 100)
        numbers = range(first, batches if last is None else last)
        covered += [(file, number) for number in numbers]
        indices += sorted({index + (number - first) // 16 for number in numbers})
    assert covered == [(file, number) for file, rows in enumerate(sizes) for number in range(-(-rows // 100))]
    assert indices == sorted(set(indices))


@needs_ray
@pytest.mark.timeout(600)
def test_killed_workers_nodes_and_drivers_lose_and_double_nothing(tmp_path):
    """Every released row is the one that the secret gives for its input row."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "kill", "--rows", "40000", "--batch", "256", "--workers", "1", "--nodes", "1",
         "--drivers", "1", "--pause", "1.5"],
        capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "of 40,000 rows each is there once" in done.stdout


@needs_ray
@pytest.mark.timeout(600)
def test_any_number_of_workers_gives_the_same_files(place, tmp_path):
    """One worker, two and eight, and threads without Ray; errors of workers reach the user without data."""
    code = """
import logging, os, sys
from dataclasses import replace
from pathlib import Path
import pandas as pd, ray
from fairveil._utils.errors import InputError
from fairveil.workflows import Options, release_file
from fairveil.workflows.release import job as asking
asking._MOST_BATCH = asking._LEAST_BATCH = 20
asking._CELL_BYTES = 2**17
place = Path(sys.argv[1])
frame = pd.read_csv(place / "people.csv")
(place / "in").mkdir()
for i in range(3):
    frame.iloc[300 * i : 300 * i + 300].to_csv(place / "in" / f"{i}.csv", index=False)
options = Options(show_progress=False, seed=3, again=True)
release_file(place / "in", place / "sex.veil", place / "threads", options)
for workers in (1, 2, 8):
    ray.init(num_cpus=workers, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    release_file(place / "in", place / "sex.veil", place / f"ray{workers}", replace(options, engine="ray"))
    if workers == 2:
        frame.iloc[600:].assign(skill="hush hush").to_csv(place / "in" / "2.csv", index=False)
        try:
            release_file(place / "in", place / "sex.veil", place / "bad", replace(options, engine="ray"))
        except InputError as error:
            print(error)
        frame.iloc[600:].to_csv(place / "in" / "2.csv", index=False)
    ray.shutdown()
"""
    done = subprocess.run([sys.executable, "-c", code, str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    contents = {(place / name / "_manifest.json").read_bytes() for name in ("threads", "ray1", "ray2", "ray8")}
    assert len(contents) == 1
    assert "Column 'skill' of 2.csv holds text where the schema has a" in done.stdout
    assert "hush" not in done.stdout + done.stderr
    assert not (place / "bad").exists()
    assert not list(place.glob(".*"))
