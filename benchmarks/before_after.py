"""Case I of UCI Adult with an earlier version and with this one, by the same fresh models on the same test rows.

    python benchmarks/before_after.py [--before COMMIT] [--seeds 3] [--architectures transport,feedforward]

The two versions run side by side, each in a process with one thread. What changes is the package; data, split,
attackers and downstream model are those of the version under test, which must be alike in both.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
BUDGETS = (1.05, 1.8, 2.3)


def rows_of(architecture: str, seeds: int) -> None:
    """Print a row for each seed and budget, with whatever version is imported."""
    import fairveil as fv
    from fairveil.auditing import probe
    from fairveil.datasets import load_adult

    train, test = load_adult("I")
    for seed in range(seeds):
        chosen = {"architecture": architecture, "sees_sensitive": True, "random_state": seed}
        if architecture == "transport" and "toward" in getattr(fv.Transport, "__dataclass_fields__", {}):
            chosen["architecture"] = fv.Transport(toward="cheapest")  # the only target of earlier versions
        if hasattr(fv.FairFrontier, "at"):
            frontier = fv.FairFrontier(fv.FairEncoder(**chosen, verbose=False), list(BUDGETS))
            at = frontier.at
        else:  # the names of earlier versions
            frontier = fv.FairFrontier(list(BUDGETS), **chosen, progress=False)
            at = frontier.encoder
        frontier.fit(train.X, sensitive_features=train.S)
        for budget in BUDGETS:
            point = {"architecture": architecture, "budget": budget, "seed": seed}
            try:
                encoder = at(budget)
            except fv.BudgetNotMet:
                print(json.dumps({**point, "met": False}), flush=True)
                continue
            x, x_test = (encoder.transform(part.X, sensitive_features=part.S) for part in (train, test))
            secret = probe(x, train.S["sex"], x_test, test.S["sex"])
            task = probe(x, train.targets["salary"], x_test, test.targets["salary"], groups=test.S["sex"])
            row = {**point, "met": True,
                   "distortion": encoder.distortion_.mean, "salary": task.accuracy.value, "ΔDemP": task.gap.value,
                   "sex": secret.accuracy.value, "AUC": secret.auc.value}  # fmt: skip
            print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="d4335af")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--architectures", default="transport,feedforward")
    parser.add_argument("--only", help="run with the version that is imported, and print rows")
    chosen = parser.parse_args()
    if chosen.only:
        rows_of(chosen.only, chosen.seeds)
        return
    with tempfile.TemporaryDirectory() as temporary:
        archive = subprocess.run(["git", "-C", ROOT, "archive", chosen.before, "src"], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", temporary], input=archive.stdout, check=True)
        versions = {"before": Path(temporary) / "src", "after": ROOT / "src"}
        found = []
        for architecture in chosen.architectures.split(","):
            command = [sys.executable, __file__, "--only", architecture, "--seeds", str(chosen.seeds)]
            running = {
                name: subprocess.Popen(
                    command, stdout=subprocess.PIPE, text=True,
                    env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
                )
                for name, source in versions.items()
            }  # fmt: skip
            for name, process in running.items():
                lines, _ = process.communicate()
                found += [{"version": name, **json.loads(line)} for line in lines.splitlines()]
    frame = pd.DataFrame(found)
    print(frame.round(4).to_string(index=False))
    columns = ["met", "distortion", "salary", "ΔDemP", "sex", "AUC"]
    print("\nMean over seeds:\n")
    print(frame.groupby(["architecture", "budget", "version"], sort=False)[columns].mean().round(4).to_string())


if __name__ == "__main__":
    main()
