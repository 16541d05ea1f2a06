"""A censored copy of a table on disk, of any size: read, drawn, shuffled and written in batches.

Two passes. The first draws each batch and stores it as a part, its rows dealt at random to buckets. The second takes
one bucket after another from all parts, shuffles its rows and writes them: together a uniform permutation of all rows,
in the memory of one bucket. Parts are whole files, so that an interrupted release goes on without drawing any of their
rows again.
"""

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fairveil.errors import ClippedWarning, InputError
from fairveil.objectives.distortion import KINDS, Release
from fairveil.progress import progress
from fairveil.randomness import random_keys
from fairveil.release.job import Job, Told, check_release, plan_digest, random_source
from fairveil.release.ledger import SKETCH, Entry, Ledger, Sketch, row_hashes
from fairveil.release.workplace import is_unfinished, workplace
from fairveil.release.writing import TableWriter, written_schema
from fairveil.whole import put_in_place, replacing, sha256_of

#: Where a released row stood in the input; only parts hold it.
_PLACE = "\x00place"
#: Rows of a batch whose distortion is measured: all of a small one, a random sample of a large one.
_MEASURED = 4096


def release_table(job: Job, before_naming: Callable[[Told], None]) -> Told | None:
    """Write a censored copy of a table. The target is whole or as it was.

    before_naming: called when the file is complete and has not yet its name: what it raises stops the release. None is
    returned if `resume` finds that the release was finished before it was interrupted.
    """
    check_release(job)
    ledger = Ledger(job.veil_path)
    asked = job.plan(ledger.key.hex())
    if job.options.resume and not is_unfinished(job.target) and _is_done(job, ledger, asked):
        return None
    with (
        workplace(job.target, asked, resume=job.options.resume) as (folder, plan),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ClippedWarning)  # they are counted, and told on the card
        own = str(plan["private"]["release"])
        ledger.hash_by(plan["private"]["key"])
        _draw_parts(job, folder, ledger, own)
        return _gather(job, folder, ledger, own, before_naming, plan_digest(asked))


def _is_done(job: Job, ledger: Ledger, asked: dict[str, Any]) -> bool:
    entry = ledger.find(sha256_of(job.target)) if job.target.is_file() else None
    return entry is not None and entry.plan == plan_digest(asked)


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
    problems = job.codec.check(table.select(job.released_names))
    if problems:
        raise InputError(problems)
    sketch = Sketch()
    sketch.add(row_hashes(_told_of(job, table), ledger.key))
    ledger.refuse_repeated(sketch.hashes, own, "rows")


def _told_of(job: Job, table: pa.Table) -> pa.Table:
    """What identifies a row: all columns that a release draws on."""
    return table.select([column.name for column in job.schema.seen])


def _draw_part(job: Job, table: pa.Table, index: int, folder: Path, key: bytes) -> None:
    source = random_source(job.options, 0, index)
    secret = table.select(job.secret_names) if job.secret_names else None
    released = job.veil.apply(table.select(job.released_names), secret, source)
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


def _gather(
    job: Job, folder: Path, ledger: Ledger, own: str, before_naming: Callable[[Told], None], digest: str
) -> Told:
    """The second pass: bucket after bucket in a random order, then the ledger, then the name."""
    paths = sorted(folder.glob("part-*.arrow"))
    told, sketch = _summary(paths)
    told.overlap, told.earlier_releases = ledger.earlier(sketch.hashes, own)
    if not job.options.again:
        ledger.refuse_repeated(sketch.hashes, own, "rows")
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
    entry = Entry(told.sha256, told.rows, shuffled, tuple(int(h) for h in sketch.hashes), own, digest)
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
