"""Releases under stress: killed at random moments, and streams larger than memory.

`kill`: SIGKILL at 100 random moments of `release` and of `fit`; after --resume no row is lost or doubled, nothing
partial bears the final name, and the weights are those of an uninterrupted fit.
`stream`: a file of several gigabytes within a memory ceiling; rows a second beside the in-memory `transform`.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch

import fairveil as fv
from fairveil._utils.atomic import sha256_of
from fairveil.veil.archive import read_archive
from fairveil.workflows import Options, Recipe, fit_file, release_file
from fairveil.workflows.release import job
from fairveil.workflows.release.ledger import Ledger

ROWS = 6000


def made_up(rows: int, seed: int = 0) -> pd.DataFrame:
    """A table of text, whole numbers and decimals; `row` is kept as it is, to find every row again."""
    generator = np.random.default_rng(seed)
    sex = generator.choice(["f", "m"], rows)
    return pd.DataFrame(
        {
            "role": np.where(generator.random(rows) < 0.7, np.where(sex == "f", "a", "b"), "c"),
            "town": generator.choice([f"town {i}" for i in range(20)], rows),
            "skill": generator.integers(0, 10, rows),
            "height": np.round(generator.normal(np.where(sex == "f", 165.0, 178.0), 7.0), 1),
            "sex": sex,
        }
    )


def in_child(work) -> int:
    """Run in a forked child, so that a trial does not pay for imports; gives its process number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        warnings.simplefilter("ignore")
        work()
        code = 0
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)


def seconds_of(work) -> float:
    start = time.monotonic()
    assert os.waitpid(in_child(work), 0)[1] == 0
    return time.monotonic() - start


def killed(work, after: float) -> bool:
    """Start, kill after so many seconds; whether it was still running."""
    child = in_child(work)
    time.sleep(after)
    done, _ = os.waitpid(child, os.WNOHANG)
    if done:
        return False
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def fit_briefly(folder: Path, target: str, *, resume: bool) -> None:
    recipe = Recipe(("sex",), architecture="feedforward", steps=60, seed=3, resume=resume, show_progress=False)
    fit_file(folder / "people.csv", folder / target, 100.0, recipe)


def release_slowly(folder: Path, target: Path, *, resume: bool) -> None:
    """Small batches, so that there are many moments at which to be killed."""
    job._MOST_BATCH = job._LEAST_BATCH = 250
    job._CELL_BYTES = 20_000
    options = Options(resume=resume, memory=64, workers=1, show_progress=False, again=not resume)
    release_file(folder / "people.csv", folder / "sex.veil", target, options)


def run_kill(trials: int) -> None:
    """Both verbs, killed."""
    generator = random.Random(0)
    folder = Path(tempfile.mkdtemp())
    made_up(ROWS).to_csv(folder / "people.csv", index=False)
    whole = seconds_of(lambda: fit_briefly(folder, "sex.veil", resume=False))
    reference = read_archive(folder / "sex.veil")[1]
    print(f"fit: {whole:.1f} s uninterrupted")
    interrupted = 0
    for trial in range(trials):
        target = f"trial{trial}.veil"
        interrupted += killed(lambda t=target: fit_briefly(folder, t, resume=False), generator.uniform(0.05, whole))
        seconds_of(lambda t=target: fit_briefly(folder, t, resume=True))
        weights = read_archive(folder / target)[1]
        assert all(torch.equal(weights[name], kept) for name, kept in reference.items()), (
            f"trial {trial}: other weights"
        )
        (folder / target).unlink()
    print(f"fit: {interrupted} of {trials} killed while running; after --resume all have the same weights, bit by bit.")

    whole = seconds_of(lambda: release_slowly(folder, folder / "first.csv", resume=False))
    print(f"release: {whole:.1f} s uninterrupted")
    interrupted = partial = 0
    for trial in range(trials):
        shutil.rmtree(folder / "sex.veil.ledger", ignore_errors=True)
        target = folder / f"out{trial}.csv"
        interrupted += killed(lambda t=target: release_slowly(folder, t, resume=True), generator.uniform(0.01, whole))
        if target.exists():
            partial += len(pd.read_csv(target)) != ROWS
        seconds_of(lambda t=target: release_slowly(folder, t, resume=True))
        ledger = Ledger.of(folder / "sex.veil")
        entry = ledger.find(sha256_of(target))
        assert entry is not None, f"trial {trial}: the ledger does not know the file"
        assert sorted(ledger.order(entry)) == list(range(ROWS)), f"trial {trial}: rows lost or doubled"
        assert len(pd.read_csv(target)) == ROWS
        assert not (folder / f".{target.name}.unfinished").exists()
        target.unlink()
    print(f"release: {interrupted} of {trials} killed while running; {partial} partial files under the final name; "
          f"after --resume every one of {ROWS:,} rows is there once.")  # fmt: skip
    shutil.rmtree(folder)


def run_stream(gigabytes: float, memory: int) -> None:
    """A CSV stream beside the in-memory transform. Each stage in a process of its own, whose peak memory is told."""
    folder = Path(tempfile.mkdtemp())
    frame = made_up(200_000)
    frame["town"] += ", in the district of the same name, beyond the river and seven hills, on the road to the capital"
    chunk = frame.to_csv(index=False, header=False).encode()
    copies = max(1, int(gigabytes * 1e9 / len(chunk)))
    rows = copies * len(frame)
    source, veil, target, noted = (folder / name for name in ("big.csv", "sex.veil", "out.parquet", "rate"))
    with source.open("wb") as file:
        file.write(",".join(frame.columns).encode() + b"\n")
        for _ in range(copies):
            file.write(chunk)

    def fit() -> None:
        training = fv.Training(steps=50, batch_size=512)
        schema = fv.Schema.infer(frame, sensitive=["sex"])
        encoder = fv.FairEncoder(
            100.0,
            architecture=fv.FeedForward(hidden=(64, 64)),
            sees_sensitive=True,
            schema=schema,
            training=training,
            random_state=0,
            verbose=False,
        )
        encoder.fit(frame.head(20_000)).save(veil)

    def transform() -> None:
        encoder = fv.load(veil)
        begun = time.monotonic()
        encoder.transform(frame)
        noted.write_text(str(len(frame) / (time.monotonic() - begun)))

    def release() -> None:
        begun = time.monotonic()
        release_file(source, veil, target, Options(memory=memory, show_progress=False))
        rate, whole = rows / (time.monotonic() - begun), float(noted.read_text())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(f"release of {source.stat().st_size / 1e9:.2f} GB of CSV ({rows:,} rows) with --memory {memory}: "
              f"{rate:,.0f} rows a second, {100 * rate / whole:.0f} % of the in-memory transform ({whole:,.0f}); "
              f"peak memory {peak:,.0f} MB", flush=True)  # fmt: skip

    for stage in (fit, transform, release):
        seconds_of(stage)
    assert pq.ParquetFile(target).metadata.num_rows == rows
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["kill", "stream", []], default=[])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--memory", type=int, default=512)
    chosen = parser.parse_args()
    if not chosen.what or "kill" in chosen.what:
        run_kill(chosen.trials)
    if not chosen.what or "stream" in chosen.what:
        run_stream(chosen.gigabytes, chosen.memory)


if __name__ == "__main__":
    main()
