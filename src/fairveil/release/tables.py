"""A censored copy of a table on disk, of any size: read, drawn, shuffled and written in batches.

Two passes. The first draws each batch and stores it as a part, its rows dealt at random to buckets. The second takes
one bucket after another from all parts, shuffles its rows and writes them: together a uniform permutation of all rows,
in the memory of one bucket. Parts are whole files, so that an interrupted release goes on without drawing any of their
rows again.
"""

import hashlib
import json
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fairveil.codec import Codec
from fairveil.errors import ClippedWarning, InputError
from fairveil.estimators import FairEncoder
from fairveil.objectives.distortion import KINDS, Distortion, Release, make_distortion
from fairveil.progress import progress
from fairveil.randomness import RandomSource, SystemRandom, random_keys
from fairveil.release.ledger import MOST_OVERLAP, SKETCH, Entry, Ledger, Sketch, row_hashes
from fairveil.release.reading import TableFile
from fairveil.release.workplace import is_unfinished, workplace
from fairveil.release.writing import TableWriter, written_schema
from fairveil.schema import Schema
from fairveil.veil import Veil
from fairveil.whole import put_in_place, replacing

#: Where a released row stood in the input; only parts hold it.
_PLACE = "\x00place"
#: Rows of a batch whose distortion is measured: all of a small one, a random sample of a large one.
_MEASURED = 4096
#: Copies of a batch that are in memory at once while it is encoded, drawn and decoded (measured, rounded up).
_COPIES = 8
_MOST_BATCH, _LEAST_BATCH = 65_536, 1024
_MOST_BUCKETS = 1024
#: Of a released cell in memory, about.
_CELL_BYTES = 24


@dataclass(frozen=True)
class Options:
    """How a file is released.

    keep_order: rows stay where they stand, which tells what their order tells. again: rows that were released before
    may be released once more. seed: draws can be repeated, and undone by whoever knows it; for tests. memory: megabytes
    for batches and buckets. remember_order: keep the private order of the rows in the ledger, for audits.
    """

    keep_order: bool = False
    again: bool = False
    resume: bool = False
    seed: int | None = None
    memory: int = 1024
    workers: int = 0
    remember_order: bool = True
    show_progress: bool = True


@dataclass
class Told:
    """What a release tells of itself."""

    rows: int = 0
    distortion: dict[str, float] = field(default_factory=dict)
    measured_rows: int = 0
    sha256: str = ""
    neutralised: int = 0
    clipped: dict[str, int] = field(default_factory=dict)
    earlier_releases: int = 0
    overlap: float = 0.0


@dataclass(frozen=True)
class Job:
    """One release: the input, the veil, the target."""

    source: TableFile
    encoder: FairEncoder
    veil_path: Path
    target: Path
    options: Options

    @cached_property
    def veil(self) -> Veil:
        """The frozen encoder."""
        veil: Veil = self.encoder.veil_
        return veil

    @cached_property
    def schema(self) -> Schema:
        """The columns."""
        assert self.veil.table_schema is not None
        return self.veil.table_schema

    @cached_property
    def codec(self) -> Codec:
        """How tables become tensors."""
        return self.veil.codec

    @cached_property
    def secret_names(self) -> list[str]:
        """The sensitive columns that the encoder must see."""
        return [column.name for column in self.veil.sensitive.columns] if self.veil.sees_sensitive else []

    @cached_property
    def columns(self) -> list[str]:
        """What is read of the input."""
        released = [column.name for column in self.schema.columns if column.released]
        return [*released, *(name for name in self.secret_names if name not in released)]

    @cached_property
    def families(self) -> dict[str, Any]:
        """What each column of a CSV file holds."""
        known = {column.name: column.family for column in (*self.schema.columns, *self.veil.sensitive.columns)}
        passed = {column.name for column in self.schema.columns if column.role == "pass"}
        return {name: "string" if name in passed else family for name, family in known.items()}

    @cached_property
    def workers(self) -> int:
        """Batches that are drawn at the same time."""
        return self.options.workers or max(1, min(os.cpu_count() or 1, 8))

    @cached_property
    def batch_rows(self) -> int:
        """Rows of a batch: as many as the memory holds for all workers."""
        bytes_each = 4 * max(self.schema.layout.width, 1) * _COPIES
        rows = self.options.memory * 2**20 // 2 // (bytes_each * self.workers)
        return int(min(max(rows, _LEAST_BATCH), _MOST_BATCH))

    @cached_property
    def buckets(self) -> int:
        """Into how many parts of the output rows are dealt, so that one fits the memory."""
        if self.options.keep_order:
            return 1
        expected = _CELL_BYTES * len(self.columns) * self.source.expected
        return min(max(1, math.ceil(4 * expected / (self.options.memory * 2**20))), _MOST_BUCKETS)

    @cached_property
    def distortion(self) -> Distortion | None:
        """How far released rows are from the originals; None if the encoder was fitted with a function of its own."""
        named = self.encoder.distortion
        return make_distortion(named, self.schema.layout, "sampled") if isinstance(named, str) else None

    def plan(self) -> dict[str, Any]:
        """What must be the same for a later run to go on with this one."""
        status = self.source.path.stat()
        return {
            "input": [self.source.size, status.st_mtime_ns, list(self.source.names)],
            "veil": sha256_of(self.veil_path),
            "batch_rows": self.batch_rows,
            "buckets": self.buckets,
            "keep_order": self.options.keep_order,
            "seed": self.options.seed,
            "private": {"release": secrets.token_hex(8)},
        }


def release_table(job: Job, before_naming: Callable[[Told], None]) -> Told | None:
    """Write a censored copy of a table. The target is whole or as it was.

    before_naming: called when the file is complete and has not yet its name: what it raises stops the release. None is
    returned if `resume` finds that the release was finished before it was interrupted.
    """
    check_release(job)
    ledger = Ledger(job.veil_path)
    if job.options.resume and not is_unfinished(job.target) and _is_done(job, ledger):
        return None
    with (
        workplace(job.target, job.plan(), resume=job.options.resume) as (folder, plan),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ClippedWarning)  # they are counted, and told on the card
        own = str(plan["private"]["release"])
        _draw_parts(job, folder, ledger, own)
        return _gather(job, folder, ledger, own, before_naming)


def random_source(options: Options, *place: int) -> RandomSource:
    """The randomness of one batch or bucket: the operating system's, unless a seed was asked for."""
    if options.seed is None:
        return SystemRandom()
    digest = hashlib.sha256(repr((options.seed, *place)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _is_done(job: Job, ledger: Ledger) -> bool:
    entry = ledger.find(sha256_of(job.target)) if job.target.is_file() else None
    return entry is not None and entry.plan == plan_digest(job.plan())


def plan_digest(plan: dict[str, Any]) -> str:
    """What was asked for, as one number: a release that is there is known by it."""
    return hashlib.sha256(json.dumps({**plan, "private": None}).encode()).hexdigest()


def check_release(job: Job) -> None:
    """Everything that can be known before a row is read; all problems at once."""
    if job.encoder.release != "sampled":
        raise InputError(
            "This veil releases probabilities, which carry S in their fine structure. Fit one with release='sampled'."
        )
    file = job.source.path.name
    missing = [name for name in job.columns if name not in job.source.names]
    # Where columns are missing the first line may be no header but data: then its cells are not shown.
    problems = [
        f"Column {f'number {i + 1}' if missing else repr(name)} of {file} has no role in the veil's schema. Remove it "
        "from the file, or give it a role and fit again."
        for i, name in enumerate(job.source.names)
        if name not in job.schema.names and name not in job.secret_names
    ]
    problems += [f"Column {name!r} is missing from {file}." for name in missing]
    if job.source.rows == 0:
        problems.append(f"{job.source.path.name} has no rows.")
    if problems:
        raise InputError(problems[:20] + ([f"... and {len(problems) - 20} more."] if len(problems) > 20 else []))


def _draw_parts(job: Job, folder: Path, ledger: Ledger, own: str) -> None:
    """The first pass: every batch that is not there yet is drawn and stored."""
    done = {int(path.stem.removeprefix("part-")) for path in folder.glob("part-*.arrow")}
    first_missing = next(i for i in range(len(done) + 1) if i not in done)
    batches = job.source.batches(job.columns, job.families, job.batch_rows, skip=first_missing)
    total = max(1, job.source.expected)
    begun = time.monotonic()
    with progress(total, f"Drawing {job.source.path.name}", job.options.show_progress, unit="rows") as report:
        seen = already = first_missing * job.batch_rows
        number = first_missing

        def drawn(numbered: tuple[int, pa.Table]) -> int:
            index, table = numbered
            try:
                if index == first_missing:
                    _refuse_repeated(job, table, ledger, own)
                _draw_part(job, table, index, folder, ledger.key)
            except InputError as error:
                start = index * job.batch_rows
                where = f"(Rows are counted from row {start} of {job.source.path.name}.)" if start else ""
                raise InputError([*error.problems, *([where] if where else [])]) from None
            return int(table.num_rows)

        def missing() -> Iterator[tuple[int, pa.Table]]:
            nonlocal number, seen
            for table in batches:
                if number in done:
                    seen += table.num_rows
                else:
                    yield number, table
                number += 1

        for count in _concurrently(drawn, missing(), job.workers):
            seen += count
            rate = (seen - already) / (time.monotonic() - begun)
            report(min(seen, total), f"{rate:,.0f} rows a second")
        report(total)
    if not seen:
        raise InputError(f"{job.source.path.name} has no rows.")


def _concurrently(
    work: Callable[[tuple[int, pa.Table]], int], items: Iterator[tuple[int, pa.Table]], workers: int
) -> Iterator[int]:
    """Results as they come; no more items are read ahead than there are workers."""
    # A batch on its share of the cores: encoding and decoding do not spread over several by themselves.
    threads = torch.get_num_threads()
    share = partial(torch.set_num_threads, max(1, (os.cpu_count() or 1) // workers))
    with ThreadPoolExecutor(workers, initializer=share) as pool:
        pending: set[Future[int]] = set()
        try:
            for item in items:
                pending.add(pool.submit(work, item))
                if len(pending) > workers:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            yield from (future.result() for future in pending)
        except BaseException:
            for future in pending:
                future.cancel()
            raise
        finally:
            torch.set_num_threads(threads)


def _refuse_repeated(job: Job, table: pa.Table, ledger: Ledger, own: str) -> None:
    """An early look: the same file again is refused after its first batch."""
    if job.options.again:
        return
    problems = job.codec.check(table.select(_released_names(job)))
    if problems:
        raise InputError(problems)
    sketch = Sketch()
    sketch.add(row_hashes(_told_of(job, table), ledger.key))
    _check_overlap(ledger, sketch, own)


def _check_overlap(ledger: Ledger, sketch: Sketch, own: str) -> None:
    share, _ = ledger.earlier(sketch.hashes, own)
    if share > MOST_OVERLAP:
        raise InputError(refusal(share, "rows"))


def refusal(share: float, what: str) -> str:
    """Why a second release of the same rows is not made."""
    return (
        f"About {100 * share:.0f} % of these {what} were released with this veil before. Releases of the same {what} "
        "average the noise away, so nothing was written. Hand on the earlier release, or say --again: what all of "
        "them tell together is then measured."
    )


def _told_of(job: Job, table: pa.Table) -> pa.Table:
    """What identifies a row: all columns that a release draws on."""
    return table.select([column.name for column in job.schema.seen])


def _draw_part(job: Job, table: pa.Table, index: int, folder: Path, key: bytes) -> None:
    source = random_source(job.options, 0, index)
    secret = table.select(job.secret_names) if job.secret_names else None
    released = job.veil.apply(table.select(_released_names(job)), secret, source)
    released = released.cast(written_schema(job.schema))
    measured, count = _measured(job, table, released)
    place = index * job.batch_rows + np.arange(table.num_rows)
    released = released.append_column(_PLACE, pa.array(place))
    bucket = np.zeros(table.num_rows, dtype=np.int64)
    if job.buckets > 1:
        bucket = (random_keys(source, table.num_rows) % np.uint64(job.buckets)).astype(np.int64)
    by_bucket = released.take(pa.array(np.argsort(bucket, kind="stable"))).combine_chunks()
    ends = np.cumsum(np.bincount(bucket, minlength=job.buckets))
    hashes = np.unique(row_hashes(_told_of(job, table), key))
    metadata = {
        "distortion": np.append(measured, count).astype(np.float64).tobytes(),
        "sketch": hashes[:SKETCH].tobytes(),
        "clipped": json.dumps(_clipped(job, table)),
        "rows": str(table.num_rows),
    }
    with replacing(folder / f"part-{index:08d}.arrow") as partial:
        schema = by_bucket.schema.with_metadata(metadata)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
            for start, end in zip([0, *ends[:-1]], ends, strict=True):
                piece = by_bucket.slice(int(start), int(end - start)).combine_chunks()
                batches = piece.to_batches() or [pa.RecordBatch.from_pylist([], schema=by_bucket.schema)]
                writer.write_batch(batches[0].replace_schema_metadata(metadata))


def _released_names(job: Job) -> list[str]:
    return [column.name for column in job.schema.columns if column.released]


def _measured(job: Job, table: pa.Table, released: pa.Table) -> tuple[NDArray[np.float64], int]:
    """The sum of the distortions of some rows as written, by kind, and how many rows they are."""
    if job.distortion is None:
        return np.zeros(len(KINDS)), 0
    some = pa.array(np.sort(np.random.default_rng().permutation(table.num_rows)[:_MEASURED]))
    seen = [column.name for column in job.schema.seen]
    before, after = (rows.select(seen).take(some) for rows in (table, released))
    original = job.codec.original(before, job.codec.encode(before))
    written = job.codec.original(after, job.codec.encode(after))
    parts = job.distortion.realised(Release(written, written[..., job.schema.layout.grouped]), original)
    return parts.double().sum(dim=0).numpy(), len(some)


def _clipped(job: Job, table: pa.Table) -> dict[str, int]:
    """How many numbers of each column lie beyond the schema's range."""
    found = {}
    for column in job.schema.layout.numbers:
        values = table[column.name].to_numpy(zero_copy_only=False).astype(np.float64)
        low = -math.inf if column.lower is None else column.lower
        high = math.inf if column.upper is None else column.upper
        outside = int(((values < low) | (values > high)).sum())
        if outside:
            found[column.name] = outside
    return found


def _gather(job: Job, folder: Path, ledger: Ledger, own: str, before_naming: Callable[[Told], None]) -> Told:
    """The second pass: bucket after bucket in a random order, then the ledger, then the name."""
    paths = sorted(folder.glob("part-*.arrow"))
    told, sketch = _summary(paths)
    told.overlap, told.earlier_releases = ledger.earlier(sketch.hashes, own)
    if not job.options.again:
        _check_overlap(ledger, sketch, own)
    shuffled = not job.options.keep_order
    suffix = job.target.suffix.lower()
    finished, order = folder / f"finished{suffix}", folder / "order"
    with (
        progress(job.buckets, f"Writing {job.target.name}", job.options.show_progress, unit="parts") as report,
        order.open("wb") as places,
        TableWriter(finished, suffix, written_schema(job.schema)) as writer,
    ):
        for bucket in range(job.buckets):
            for rows in _of_bucket(paths, bucket, job):
                places.write(rows[_PLACE].to_numpy().tobytes())
                writer.write(rows.drop_columns([_PLACE]))
            report(bucket + 1)
    told.neutralised = writer.neutralised
    told.sha256 = sha256_of(finished)
    before_naming(told)
    entry = Entry(told.sha256, told.rows, shuffled, tuple(int(h) for h in sketch.hashes), own, plan_digest(job.plan()))
    ledger.enter(entry, order if shuffled and job.options.remember_order else None)
    put_in_place(finished, job.target)
    return told


def _of_bucket(paths: list[Path], bucket: int, job: Job) -> Iterator[pa.Table]:
    """The rows of a bucket, shuffled; without shuffling part after part, so that memory holds one."""
    parts = (_part(path).get_batch(bucket) for path in paths)
    if job.options.keep_order:
        yield from (pa.Table.from_batches([part]).replace_schema_metadata(None) for part in parts)
        return
    rows = pa.concat_tables([pa.Table.from_batches([part]).replace_schema_metadata(None) for part in parts])
    yield rows.take(
        pa.array(np.argsort(random_keys(random_source(job.options, 1, bucket), rows.num_rows), kind="stable"))
    )


def _part(path: Path) -> pa.ipc.RecordBatchFileReader:
    return pa.ipc.open_file(pa.memory_map(str(path)))


def _summary(paths: list[Path]) -> tuple[Told, Sketch]:
    """What the parts tell of themselves."""
    told, sketch, sums = Told(), Sketch(), np.zeros(len(KINDS) + 1)
    for path in paths:
        metadata = _part(path).schema.metadata
        sums += np.frombuffer(metadata[b"distortion"], dtype=np.float64)
        sketch.add(np.frombuffer(metadata[b"sketch"], dtype=np.uint64))
        told.rows += int(metadata[b"rows"])
        for name, count in json.loads(metadata[b"clipped"]).items():
            told.clipped[name] = told.clipped.get(name, 0) + count
    told.measured_rows = int(sums[-1])
    if told.measured_rows:
        told.distortion = dict(zip(KINDS, (sums[:-1] / sums[-1]).tolist(), strict=True))
    return told, sketch


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
