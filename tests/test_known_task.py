"""The comparison takes any table: nothing in it is specific to UCI Adult."""

import subprocess
import sys
from pathlib import Path

from fairveil import Schema
from helpers import people

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def run(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(BENCHMARKS / "known_task.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=BENCHMARKS)


def test_any_table_schema_and_target(tmp_path):
    X, S, y = people(600)
    X.assign(**S, hired=y.map({0: "no", 1: "yes"})).to_csv(tmp_path / "people.csv", index=False)
    Schema.infer(X).edit("town", role="drop").save(tmp_path / "schema.json")
    done = run("--table", tmp_path / "people.csv", "--schema", tmp_path / "schema.json", "--sensitive", "sex", "region",
               "--target", "hired", "--budgets", "40", "--seeds", 1, "--steps", 4, "--picture", tmp_path / "a.png",
               "--csv", tmp_path / "a.csv", "--methods", "universal", "task-aware", "FairClassifier-DP", "LAFTR-EO",
               "Zhang-DP", "ThresholdOptimizer-DP")  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("universal", "LAFTR-EO, its own predictor", "Zhang-DP", "ThresholdOptimizer-DP", "ΔDemP <= 0.05"):
        assert name in done.stdout
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert (tmp_path / "a.csv").exists()


def test_a_table_needs_its_columns_named(tmp_path):
    assert "--table needs" in run("--table", tmp_path / "none.csv").stderr
