"""Releases on a Ray cluster of several nodes in processes of this machine: kills, and the rate beside the local path.

`kill`: random SIGKILLs of workers and nodes during one release, then of the driver with --resume. Afterwards every
released row is compared with the row that the secret of the release gives for its input row: none is lost, doubled, or
drawn with other noise.
`speed`: rows per second of the local path and of Ray with as many workers, in turn, in one run.
`cost`: CPU time and bytes per row of each step.
`memory`: peak memory of what reads a whole table, for a tenth of the rows and for all of them.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import fairveil as fv
from fairveil._utils.errors import ClippedWarning
from fairveil._utils.stores import locate
from fairveil.workflows import Options, Recipe, open_veil, release_file
from fairveil.workflows.many_files import MANIFEST, digest_of, open_tables
from fairveil.workflows.protocol import Wanted
from fairveil.workflows.release import job as asking
from fairveil.workflows.release.drawing import BatchKeys, Read, draw_batch, file_key
from fairveil.workflows.release.job import Job
from fairveil.workflows.release.known import find_known
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.parts import summarise
from fairveil.workflows.release.tasks import (
    BucketTask,
    Stretch,
    Work,
    check_some,
    draw_stretches,
    gather_bucket,
    stretches,
)
from fairveil.workflows.sources import open_source
from release import made_up

FILES = 8


def prepare(folder: Path, rows: int) -> None:
    """Input files and a veil."""
    (folder / "in").mkdir(parents=True)
    for number in range(FILES):
        made_up(rows // FILES, number).to_parquet(folder / "in" / f"{number}.parquet", index=False)
    frame = made_up(20_000)
    encoder = fv.FairEncoder(
        100.0, architecture=fv.FeedForward(hidden=(64, 64)), sees_sensitive=True,
        schema=fv.Schema.infer(frame, sensitive=["sex"]), training=fv.Training(steps=50, batch_size=512),
        random_state=0, verbose=False,
    )  # fmt: skip
    encoder.fit(frame).save(folder / "sex.veil")


def small_batches(rows: int) -> None:
    """Batches of at most so many rows, so that there are many moments at which to be killed."""
    asking._MOST_BATCH = asking._LEAST_BATCH = rows


def release(folder: Path, target: str, batch: int, **options) -> None:
    small_batches(batch)
    chosen = Options(show_progress=False, keep_secret=True, again=True, **options)
    release_file(folder / "in", folder / "sex.veil", folder / target, chosen)


def check(folder: Path, target: str, batch: int) -> int:
    """Compare every released row with the one that the secret gives; the number of rows."""
    small_batches(batch)
    released = open_tables(folder / target)
    assert (folder / target / MANIFEST).is_file()
    ledger = Ledger.of(folder / "sex.veil")
    entry = ledger.find(digest_of(released))
    assert entry is not None, "the ledger does not know the files"
    order, secret = ledger.order(entry), ledger.secret(entry.release)
    assert order is not None
    assert secret is not None
    assert np.array_equal(np.sort(order), np.arange(entry.rows)), "rows lost or doubled"
    job = Job(open_tables(folder / "in"), open_veil(folder / "sex.veil"), folder / "sex.veil", folder / "x", Options())
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedWarning)
        for place, table in job.source.placed_batches(job.columns, job.held_as, job.batch_rows):
            read = Read.of(job, place, table, ledger.key)
            drawn.append(draw_batch(job, read, BatchKeys.of(file_key(secret, place.file), place), b"").rows)
    expected = pa.concat_tables(drawn).select(list(released.names)).take(pa.array(order))
    found = pa.concat_tables([pq.read_table(file.path) for file in released.files])
    assert found.num_rows == expected.num_rows == entry.rows
    different = [name for name in released.names
                 if not found[name].combine_chunks().equals(expected[name].combine_chunks())]  # fmt: skip
    assert not different, f"rows with other noise: {different}"
    return int(entry.rows)


class Cluster:
    """A head without CPUs for tasks, and nodes of one CPU each, as processes."""

    def __init__(self, nodes: int) -> None:
        from ray.cluster_utils import Cluster as Nodes

        self._nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.workers = [self._nodes.add_node(num_cpus=1) for _ in range(nodes)]
        self.address = self._nodes.address

    def kill_node(self, generator: random.Random) -> None:
        """Kill a node at random, and start another."""
        node = self.workers.pop(generator.randrange(len(self.workers)))
        self._nodes.remove_node(node, allow_graceful=False)
        self.workers.append(self._nodes.add_node(num_cpus=1))

    def kill_worker(self, generator: random.Random) -> bool:
        """Kill the process of a task at random: a child of one of our nodes."""
        parents = {process.process.pid for node in self.workers
                   for process in node.all_processes.get("raylet", [])}  # fmt: skip
        running = [pid for pid, parent, command in _processes() if parent in parents and command.startswith("ray::")]
        busy = [pid for pid in running if "_attempt" in _command(pid)]
        if not busy:
            return False
        os.kill(generator.choice(busy), signal.SIGKILL)
        return True

    def close(self) -> None:
        self._nodes.shutdown()


def _processes() -> list[tuple[int, int, str]]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found.append((int(path.name), parent, _command(int(path.name))))
        except (OSError, ValueError, IndexError):
            continue
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def driver(folder: Path, target: str, batch: int, address: str, *, resume: bool) -> "subprocess.Popen[bytes]":
    """A release in a process of its own."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path; import cluster; "
        "cluster.release(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), engine='ray', address=sys.argv[5], "
        "resume=sys.argv[6] == '1')"
    )
    arguments = [str(Path(__file__).parent), str(folder), target, str(batch), address, str(int(resume))]
    return subprocess.Popen([sys.executable, "-c", code, *arguments])


@dataclass
class Kills:
    """How many of each are still to be killed, and were; kept in a file, so that the benchmark can go on later."""

    path: Path
    left: dict[str, int]
    killed: dict[str, int]
    seconds: float = 0.0

    @classmethod
    def at(cls, path: Path, left: dict[str, int]) -> "Kills":
        if path.exists():
            return cls(path, **json.loads(path.read_text()))
        return cls(path, left, dict.fromkeys(left, 0))

    def draw(self, generator: random.Random) -> str | None:
        """What to kill next; None if all were."""
        names = [name for name, count in self.left.items() for _ in range(count)]
        return generator.choice(names) if names else None

    def count(self, what: str) -> None:
        self.left[what] -= 1
        self.killed[what] += 1
        self.save()

    def save(self) -> None:
        self.path.write_text(json.dumps({"left": self.left, "killed": self.killed, "seconds": self.seconds}))


def run_kill(chosen: argparse.Namespace) -> None:
    """One release with kills. With --folder, stop after --minutes (a kill of the driver and of the cluster) and go on
    with the same command.
    """
    folder = Path(tempfile.mkdtemp()) if chosen.folder is None else chosen.folder
    begins = not (folder / "sex.veil").exists()
    if begins:
        prepare(folder, chosen.rows)
    left = {"workers": chosen.workers, "nodes": chosen.nodes, "drivers": chosen.drivers}
    kills = Kills.at(folder / "kills.json", left)
    cluster = Cluster(2)
    try:
        finished = _release_with_kills(folder, chosen, kills, cluster, begins=begins)
    finally:
        cluster.close()
    told = ", ".join(f"{number} {what}" for what, number in kills.killed.items())
    if not finished:
        print(f"Not finished: {told} killed in {kills.seconds:.0f} s. The same command goes on.", flush=True)
        return
    count = check(folder, "out", chosen.batch)
    print(f"{told} killed in {kills.seconds:.0f} s; of {count:,} rows each is there once, as the secret gives it, and "
          "nothing was visible before the end.", flush=True)  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)


def _release_with_kills(
    folder: Path, chosen: argparse.Namespace, kills: Kills, cluster: Cluster, *, begins: bool
) -> bool:
    """Whether the release was finished before the time was up."""
    generator = random.Random(sum(kills.killed.values()))
    begun = time.monotonic()
    before = kills.seconds
    process = driver(folder, "out", chosen.batch, cluster.address, resume=not begins)
    try:
        while (what := kills.draw(generator)) and process.poll() is None:
            time.sleep(generator.uniform(0.2, 1.8) * chosen.pause)
            kills.seconds = before + time.monotonic() - begun
            if process.poll() is not None:
                break
            assert not (folder / "out").exists() or (folder / "out" / MANIFEST).exists(), "an unfinished release"
            if time.monotonic() - begun > 60.0 * chosen.minutes:
                process.kill()
                process.wait()
                kills.count("drivers")
                return False
            if what == "workers" and not cluster.kill_worker(generator):
                continue
            if what == "nodes":
                cluster.kill_node(generator)
            if what == "drivers":
                process.kill()
                process.wait()
                assert not (folder / "out").exists(), "a release is visible before it is finished"
                process = driver(folder, "out", chosen.batch, cluster.address, resume=True)
            kills.count(what)
        assert process.wait() == 0, "the release failed"
        kills.seconds = before + time.monotonic() - begun
        kills.save()
        return True
    finally:
        process.kill()
        process.wait()


def run_speed(rows: int, repeats: int) -> None:
    import ray

    folder = Path(tempfile.mkdtemp())
    prepare(folder, rows)
    rates: dict[str, list[float]] = {"local": [], "ray": []}
    begun = time.monotonic()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    started = time.monotonic() - begun
    for trial in range(repeats + 1):  # the first is a warm-up, in which workers import torch
        for engine, measured in rates.items():
            begun = time.monotonic()
            release(folder, f"{engine}{trial}", 65_536, engine=engine, workers=2)
            measured.append(rows / (time.monotonic() - begun))
            print(f"run {trial}, {engine}: {measured[-1]:,.0f} rows per second", file=sys.stderr, flush=True)
    ray.shutdown()
    pair = [pd.read_parquet(folder / f"{engine}0").shape[0] for engine in rates]
    assert pair == [rows // FILES * FILES] * 2
    local, cluster = (np.array(measured[1:]) for measured in rates.values())
    print(f"{rows:,} rows, two workers each, {repeats} runs in turn: local {np.median(local):,.0f} rows a second, Ray "
          f"{np.median(cluster):,.0f}; Ray / local {np.median(cluster / local):.2f} "
          f"({(cluster / local).min():.2f} to {(cluster / local).max():.2f}). Start of the cluster: {started:.0f} s; "
          f"the first run, with the start of workers: {rates['ray'][0]:,.0f} rows per second.", flush=True)  # fmt: skip
    shutil.rmtree(folder)


def run_cost(rows: int) -> None:
    """CPU seconds and bytes of each step of a release in one thread: what sizes a cluster, on a busy machine, too."""
    folder = Path(tempfile.mkdtemp())
    prepare(folder, rows)
    source = open_tables(folder / "in")
    options = Options(show_progress=False, engine="ray")
    job = Job(source, open_veil(folder / "sex.veil"), folder / "sex.veil", folder / "out", options)
    torch.set_num_threads(1)
    (folder / "work").mkdir()
    work = Work(job, locate(folder / "work"), "0" * 16, bytes(16), b"")
    rows = int(source.rows or 0)

    def seconds(what) -> float:
        begun = time.process_time()
        what()
        return time.process_time() - begun

    tasks = [[Stretch(*stretch, bytes([stretch[0]])) for stretch in task] for task in stretches(job)]
    read = seconds(lambda: [None for _ in source.placed_batches(job.columns, job.held_as, job.batch_rows)])
    drawn = seconds(lambda: [draw_stretches(work, task) for task in tasks])
    again = seconds(lambda: [draw_stretches(work, task) for task in tasks])
    indices = tuple(index for task in tasks for index in draw_stretches(work, task)[0])
    counted = summarise([check_some(work, indices)[1]], len(source.files), job.schema.layout)
    buckets = [BucketTask(b, indices, int(n), bytes([b % 256])) for b, n in enumerate(counted.bucket_rows)]
    gathered = seconds(lambda: [gather_bucket(work, task) for task in buckets])
    part_bytes = sum(work.part(index).size() for index in indices)
    out_bytes = sum(work.bucket(task.bucket).size() for task in buckets)
    steps = {"read": read, "read and draw": drawn, "compare on resume": again, "gather": gathered}
    told = ", ".join(f"{name} {1e6 * spent / rows:.2f}" for name, spent in steps.items())
    sizes = {"input": source.size, "parts": part_bytes, "output": out_bytes}
    print(f"{rows:,} rows of {len(source.names)} columns in batches of {job.batch_rows:,}. CPU microseconds per row: "
          f"{told}; {rows / (drawn + gathered):,.0f} rows per second and core. Bytes per row: "
          f"{', '.join(f'{name} {size / rows:.0f}' for name, size in sizes.items())}.", flush=True)  # fmt: skip
    shutil.rmtree(folder)


MEMORY = """
import re, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import cluster

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text()).group(1)) // 1024

Path("/proc/self/clear_refs").write_text("5")  # forget the peak that was inherited
begun = peak()
getattr(cluster, "memory_" + sys.argv[3])(Path(sys.argv[2]))
print(begun, peak())
"""


def memory_release(folder: Path) -> None:
    options = Options(show_progress=False, memory=512, workers=2)
    release_file(folder / "in", folder / "sex.veil", folder / "out", options)


def memory_fit(folder: Path) -> None:
    """What fit and frontier read: the schema and a uniform sample of 200,000 rows."""
    open_source(folder / "in").data(Recipe(("sex",), show_progress=False), 0)


def memory_audit(folder: Path) -> None:
    """What an audit reads: the same 200,000 rows of both tables, and all rows for presence and absence."""
    before, after = open_source(folder / "in"), open_source(folder / "out")
    known = find_known(after.digest(), after.path, before.path, folder / "sex.veil", same_order=False)
    pair = before.pair(after, known, Wanted(("sex",)))
    rows = sum(table.num_rows for table in pair.whole_release or ())
    assert rows == known.entry.rows or len(pair.secrets) == known.entry.rows


def run_memory(rows: int) -> None:
    """The peak memory of what reads the whole table, for a tenth of the rows and for all of them."""
    for count in (rows // 10, rows):
        folder = Path(tempfile.mkdtemp())
        prepare(folder, count)
        for step in ("fit", "release", "audit"):
            begun = time.monotonic()
            arguments = [sys.executable, "-c", MEMORY, str(Path(__file__).parent), str(folder), step]
            said = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
            print(f"{count:,} rows, {step}: {int(said[1]):,} MB at most, {int(said[0]):,} MB of them imports; "
                  f"{time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["kill", "speed", "cost", "memory", []], default=[])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--batch", type=int, default=4096, help="rows per batch, for kill")
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--drivers", type=int, default=10)
    parser.add_argument("--pause", type=float, default=3.0, help="mean seconds between two kills")
    parser.add_argument("--folder", type=Path, help="for kill: keep the work here, to go on with it later")
    parser.add_argument("--minutes", type=float, default=120.0, help="for kill, stop after this time")
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    if not chosen.what or "kill" in chosen.what:
        run_kill(chosen)
    if not chosen.what or "speed" in chosen.what:
        run_speed(chosen.rows, chosen.repeats)
    if not chosen.what or "cost" in chosen.what:
        run_cost(chosen.rows)
    if "memory" in chosen.what:
        run_memory(chosen.rows)


if __name__ == "__main__":
    main()
