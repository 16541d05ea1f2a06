"""How often a CSV file is parsed by `fit` and by `audit`, and how long that takes, beside an earlier version.

    python benchmarks/reading.py [--rows 400000] [--before COMMIT]

Both versions are measured in turn in one run, each in a process of its own; training and attacks are left out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def measure(folder: Path) -> dict[str, float]:
    """Parses and seconds of reading for a fit and for an audit, with whatever version is imported."""
    import pyarrow.csv as pacsv

    from fairveil.workflows import audit as auditing
    from fairveil.workflows import audit_file, fit_file
    from fairveil.workflows import fit as fitting

    parses = 0
    opened = pacsv.open_csv

    def counted(*arguments, **settings):
        nonlocal parses
        parses += 1
        return opened(*arguments, **settings)

    class Read(Exception):
        """Everything was read."""

    def stop(*arguments, **settings):
        raise Read

    pacsv.open_csv = counted
    recipe = fitting.Recipe(("sex",), show_progress=False, seed=0)
    found = {}
    fitting.FairEncoder.fit, auditing.audit = stop, stop
    jobs = {
        "fit": lambda: fit_file(folder / "people.csv", folder / "new.veil", 1.0, recipe),
        "audit": lambda: audit_file(folder / "out.csv", folder / "people.csv", ["sex"], veil=folder / "sex.veil"),
    }
    for name, job in jobs.items():
        parses, start = 0, time.perf_counter()
        try:
            job()
        except Read:
            found |= {f"{name} parses": parses, f"{name} seconds": time.perf_counter() - start}
    return found


def prepare(folder: Path, rows: int) -> None:
    """A table, a veil and a release of it, made by whatever version is imported."""
    import numpy as np
    import pandas as pd

    from fairveil.workflows import Options, fit_file, release_file
    from fairveil.workflows.fit import Recipe

    generator = np.random.default_rng(0)
    sex = generator.choice(["f", "m"], rows)
    frame = pd.DataFrame({"sex": sex, "town": generator.choice(list("abcdefgh"), rows)})
    for i in range(6):
        frame[f"x{i}"] = np.round(generator.normal(sex == "m", 2.0), 2)
    frame.to_csv(folder / "people.csv", index=False)
    recipe = Recipe(("sex",), architecture="feedforward", steps=2, show_progress=False, seed=0)
    fit_file(folder / "people.csv", folder / "sex.veil", 1e6, recipe)
    release_file(folder / "people.csv", folder / "sex.veil", folder / "out.csv", Options(show_progress=False))


def run(source: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, __file__, *arguments], env=environment, check=True, text=True,
                          capture_output=True).stdout  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--before", default="74f428e")
    parser.add_argument("--prepare", type=Path)
    parser.add_argument("--measure", type=Path)
    chosen = parser.parse_args()
    if chosen.prepare:
        prepare(chosen.prepare, chosen.rows)
        return
    if chosen.measure:
        print(json.dumps(measure(chosen.measure)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["FAIRVEIL_STATE_HOME"] = str(folder / "state")
        old = folder / "old"
        old.mkdir()
        archive = subprocess.run(["git", "-C", ROOT, "archive", chosen.before, "src"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", old], input=archive.stdout, check=True)
        versions = {"before": old / "src", "now": ROOT / "src"}
        found = {}
        for name, source in versions.items():
            (folder / name).mkdir()
            run(source, "--prepare", str(folder / name), "--rows", str(chosen.rows))
        for _ in range(3):  # in turn, the least time of each
            for name, source in versions.items():
                values = json.loads(run(source, "--measure", str(folder / name)))
                kept = found.setdefault(name, values)
                found[name] = {key: min(value, kept[key]) for key, value in values.items()}
        for key in found["now"]:
            print(f"{key:15} before {found['before'][key]:8.2f}   now {found['now'][key]:8.2f}")


if __name__ == "__main__":
    main()
