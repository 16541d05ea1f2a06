"""A censored copy of a table on disk, of any size: read, drawn, shuffled and written in batches.

Two passes. The first draws each batch and stores it as a part, its rows dealt at random to buckets. The second takes
one bucket after another from all parts, shuffles its rows and writes them: together a uniform permutation of all rows,
in the memory of one bucket. Parts are complete files, so that an interrupted release resumes without drawing any of
their rows again.
"""

import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.atomic import replacing, sha256_of
from fairveil._utils.errors import ClippedWarning, InputError
from fairveil._utils.progress import progress
from fairveil._utils.randomness import ByteSource, RowStream, whole_number_bytes
from fairveil.data.marginals import Marginals
from fairveil.data.table_codec import EncodedRows
from fairveil.objectives.distortion import KINDS
from fairveil.objectives.released import ReleasedBatch
from fairveil.workflows.reading import is_text
from fairveil.workflows.release.finish import BeforeNaming, hand_over
from fairveil.workflows.release.job import (
    FEWEST_TOLD,
    Job,
    Options,
    ReleaseSummary,
    check_release,
    plan_digest,
    random_source,
    refuse_contradictions,
    refuse_few,
)
from fairveil.workflows.release.ledger import FittedInput, Ledger
from fairveil.workflows.release.parts import PLACE, metadata_of, open_part, rows_of_bucket, summarise
from fairveil.workflows.release.presence import PresenceCount
from fairveil.workflows.release.sketch import Hashes, Sketch, ordered_digest, row_hashes
from fairveil.workflows.release.workspace import is_unfinished, workspace
from fairveil.workflows.writing import TableWriter, as_written

#: A passed column is taken for a person identifier if this share of a batch has repeated values, and if there are more
#: distinct values than the second number.
_REPEATED, _FEWEST_PEOPLE = 0.01, 100
_CHANGED = "{name} is not the file from which the interrupted release was made. Omit --resume to start again."


def release_table(job: Job, before_naming: BeforeNaming) -> ReleaseSummary | None:
    """Write a censored copy of a table. The target is written atomically.

    Returns None if `resume` finds that the release was finished before it was interrupted.
    """
    check_release(job)
    ledger = Ledger.of(job.veil_path)
    asked = job.plan()
    if job.options.resume and not is_unfinished(job.target) and _is_done(job, ledger, asked):
        return None
    ledger.prepare()
    with (
        workspace(job.target, asked, resume=job.options.resume) as (folder, plan),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ClippedWarning)  # counted, and reported on the card
        private = plan["private"]
        release = TableRelease(job, folder, ledger, str(private["release"]), bytes.fromhex(private["secret"]))
        _draw_parts(release)
        return _gather(release, before_naming, plan_digest(asked))


@dataclass(frozen=True)
class TableRelease:
    """A release in progress: its parts, its name, and the secret for drawing rows of one person."""

    job: Job
    folder: Path
    ledger: Ledger
    name: str
    secret: bytes

    def part_path(self, index: int) -> Path:
        """The path of a part."""
        return self.folder / f"part-{index:08d}.arrow"


def _is_done(job: Job, ledger: Ledger, asked: dict[str, Any]) -> bool:
    """Whether the target is a finished release of exactly this input."""
    entry = ledger.find(sha256_of(job.target)) if job.target.is_file() else None
    if entry is None or entry.plan != plan_digest(asked):
        return False
    return entry.original == original_digest(job, ledger.key)


def original_digest(job: Job, key: bytes) -> str:
    """The digest of all input rows in their order, as recorded for a release."""
    digest = OriginalDigest(job, key)
    for table in job.source.batches(job.columns, job.held_as, job.batch_rows):
        digest.add(table)
    return digest.hex()


def fitted_input(job: Job, fitted: NDArray[np.bool_], key: bytes) -> FittedInput:
    """What a ledger records about an input, some rows of which the encoder was fitted on; in one pass over it."""
    digest, sketch, start = OriginalDigest(job, key), Sketch.empty(), 0
    for table in job.source.batches(job.columns, job.held_as, job.batch_rows):
        rows = digest.add(table)
        sketch += Sketch.of(row_hashes(rows.codes, key)[fitted[start : start + table.num_rows]])
        start += table.num_rows
    return FittedInput.of(digest.hex(), sketch, fitted)


class OriginalDigest:
    """The digest of input rows in their order, as recorded for a release, computed table by table."""

    def __init__(self, job: Job, key: bytes) -> None:
        self._job, self._key, self._rows = job, key, 0
        self._total = np.zeros(2, dtype=np.uint64)

    def add(self, table: pa.Table) -> EncodedRows:
        """Add the next rows; returns them encoded."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClippedWarning)
            rows = self._job.encoded(table)
        self._total += ordered_digest(_identities(self._job, table, rows, self._key), self._rows)
        self._rows += table.num_rows
        return rows

    def hex(self) -> str:
        """The digest of all rows so far."""
        return self._total.tobytes().hex()


def _draw_parts(release: TableRelease) -> None:
    """The first pass: draw and store every batch that is missing; for the others, compare the rows."""
    job = release.job
    done = {int(path.stem.removeprefix("part-")) for path in release.folder.glob("part-*.arrow")}
    total = max(1, job.source.expected)
    begun = time.monotonic()
    with progress(total, f"Drawing {job.source.path.name}", job.options.show_progress, unit="rows") as report:
        seen = 0

        def drawn(numbered: tuple[int, pa.Table]) -> int:
            index, table = numbered
            try:
                rows = job.encoded(table)
                hashes = row_hashes(rows.codes, release.ledger.key)
                identities = _identities(job, table, rows, release.ledger.key)
                if index == 0 and not job.options.again:  # a repeated file is rejected after its first batch
                    release.ledger.refuse_repeated(Sketch.of(hashes), release.name, "rows")
                if index in done:
                    _refuse_changed(release, index, identities)
                else:
                    _draw_part(release, table, rows, index, hashes, identities)
            except InputError as error:
                start = index * job.batch_rows
                where = f"(Rows are counted from row {start} of {job.source.path.name}.)" if start else ""
                raise InputError([*error.problems, *([where] if where else [])]) from None
            return int(table.num_rows)

        batches = enumerate(job.source.batches(job.columns, job.held_as, job.batch_rows))
        count = 0
        for rows in _concurrently(drawn, batches, job.workers):
            seen, count = seen + rows, count + 1
            rate = seen / (time.monotonic() - begun)
            report(min(seen, total), f"{rate:,.0f} rows per second")
        report(total)
    if not seen:
        raise InputError(f"{job.source.path.name} has no rows.")
    if any(index >= count for index in done):
        raise InputError(_CHANGED.format(name=job.source.path.name))
    refuse_few(seen, job.options, "rows")


def _refuse_changed(release: TableRelease, index: int, identities: Hashes) -> None:
    """Raise if a part drawn before an interruption is not of the rows that are there now."""
    stored = metadata_of(open_part(release.part_path(index)))[b"rows_digest"]
    if stored != ordered_digest(identities, index * release.job.batch_rows).tobytes():
        raise InputError(_CHANGED.format(name=release.job.source.path.name))


def _concurrently(
    work: Callable[[tuple[int, pa.Table]], int], items: Iterator[tuple[int, pa.Table]], workers: int
) -> Iterator[int]:
    """Yield results as they complete; no more items are read ahead than there are workers."""
    # Each batch uses its share of the cores: encoding and decoding do not parallelise by themselves.
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


def _identities(job: Job, table: pa.Table, rows: EncodedRows, key: bytes) -> Hashes:
    """Keyed hashes of each row's encoded values and S: an audit must be of these rows, in this order."""
    known = [_value_codes(table[name]) for name in job.sensitive_names]
    return row_hashes(np.column_stack([rows.codes, *known]), key)


def _value_codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """An integer for each value, the same for files of any kind."""
    if not is_text(column.type):
        numbers = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(numbers + 0.0).view(np.int64)
    coded = column.combine_chunks().dictionary_encode()
    words = [hashlib.blake2b(value.encode(), digest_size=8).digest() for value in coded.dictionary.to_pylist()]
    codes = np.frombuffer(b"".join([*words, bytes(8)]), dtype=np.int64)
    return np.asarray(codes[pc.fill_null(coded.indices, len(words)).to_numpy(zero_copy_only=False).astype(np.int64)])


def _source(release: TableRelease, table: pa.Table, rows: EncodedRows, index: int) -> ByteSource:
    """The random source of a batch; with `person`, equal rows of one person get the same draw."""
    job = release.job
    if job.options.person is None:
        return random_source(job.options, 0, index)
    secret = release.secret if job.options.seed is None else whole_number_bytes(job.options.seed)
    whose = [
        str(value).encode() if value is not None else _nobody(job.options, index * job.batch_rows + row)
        for row, value in enumerate(table[job.options.person].to_pylist())
    ]
    shown = [] if not job.secret_names else [job.veil.sensitive.classes_of(table.select(job.secret_names)).numpy()]
    codes = np.column_stack([rows.codes, *shown])
    keys = [hashlib.sha256(b"%d:%b" % (len(person), person) + code.tobytes()).digest()
            for person, code in zip(whose, codes, strict=True)]  # fmt: skip
    return RowStream(secret, np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1))


def _nobody(options: Options, place: int) -> bytes:
    """A unique identifier for a row without a person."""
    return b"\x00" + (os.urandom(16) if options.seed is None else whole_number_bytes(place))


def _draw_part(
    release: TableRelease, table: pa.Table, rows: EncodedRows, index: int, hashes: Hashes, identities: Hashes
) -> None:
    job = release.job
    secret = table.select(job.secret_names) if job.secret_names else None
    released, values = job.veil.apply_to(
        table.select(job.released_names), rows, secret, _source(release, table, rows, index)
    )
    released = as_written(released, job.schema)
    start = index * job.batch_rows
    released = released.append_column(PLACE, pa.array(start + np.arange(table.num_rows)))
    bucket = np.zeros(table.num_rows, dtype=np.int64)
    if job.buckets > 1:
        keys = random_source(job.options, 2, index).keys(table.num_rows)
        bucket = (keys % np.uint64(job.buckets)).astype(np.int64)
    by_bucket = released.take(pa.array(np.argsort(bucket, kind="stable"))).combine_chunks()
    ends = np.cumsum(np.bincount(bucket, minlength=job.buckets))
    sketch = Sketch.of(hashes)
    metadata = {
        "release": release.name,
        "index": str(index),
        "rows": str(table.num_rows),
        "rows_digest": ordered_digest(identities, start).tobytes(),
        "distortion": _measured(job, rows, values).tobytes(),
        "before": Marginals.of(job.schema.layout, rows.x).counts.tobytes(),
        "after": Marginals.of(job.schema.layout, values).counts.tobytes(),
        "sketch": sketch.hashes.tobytes(),
        "counts": sketch.counts.tobytes(),
        "clipped": json.dumps(_clipped(job, table)),
        "repeats": json.dumps(_repeats(job, table)),
    }
    with replacing(release.part_path(index)) as partial:
        schema = by_bucket.schema.with_metadata(metadata)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
            for begin, end in zip([0, *ends[:-1]], ends, strict=True):
                piece = by_bucket.slice(int(begin), int(end - begin)).combine_chunks()
                batches = piece.to_batches() or [pa.RecordBatch.from_pylist([], schema=by_bucket.schema)]
                writer.write_batch(batches[0].replace_schema_metadata(metadata))


def _measured(job: Job, rows: EncodedRows, values: Tensor) -> NDArray[np.float64]:
    """Sums over rows as written: the distortion by kind, the numbers of measured and of changed rows; and for few rows
    the part that does not depend on the draw.
    """
    layout = job.schema.layout
    grouped = layout.grouped if layout.group_width else slice(None)
    changed = float((values[:, grouped] != rows.x[:, grouped]).any(dim=1).sum())
    if job.distortion is None:
        return np.array([0.0] * len(KINDS) + [0.0, changed, 0.0, 0.0])
    # A kept number is released exactly, while a tensor rounds it.
    written = torch.where(torch.from_numpy(layout.kept), rows.original, values) if layout.kept.any() else values
    parts = job.distortion.realised(ReleasedBatch(written, written[..., layout.grouped]), rows.original)
    floor = [0.0] * len(KINDS)
    if len(written) < FEWEST_TOLD and job.distortion.is_additive:
        floor = job.distortion.unchanged(rows.x, rows.original).double().sum(dim=0).tolist()
    return np.array([*parts.double().sum(dim=0).tolist(), float(len(written)), changed, *floor])


def _repeats(job: Job, table: pa.Table) -> list[str]:
    """Passed columns of which many rows of a batch share a value: possibly several rows of one person."""
    if job.options.person is not None:
        return []
    found = []
    for column in job.schema.columns:
        if column.role == "pass" and table.num_rows:
            distinct = pc.count_distinct(table[column.name], mode="only_valid").as_py()
            if 2 <= distinct < (1.0 - _REPEATED) * table.num_rows and distinct > _FEWEST_PEOPLE:
                found.append(column.name)
    return found


def _clipped(job: Job, table: pa.Table) -> dict[str, int]:
    """How many numbers of each column lie outside the schema's range."""
    found = {}
    for column in job.schema.layout.numbers:
        values = table[column.name].to_numpy(zero_copy_only=False).astype(np.float64)
        low = -math.inf if column.lower is None else column.lower
        high = math.inf if column.upper is None else column.upper
        outside = int(((values < low) | (values > high)).sum())
        if outside:
            found[column.name] = outside
    return found


def _gather(release: TableRelease, before_naming: BeforeNaming, digest: str) -> ReleaseSummary:
    """The second pass: write bucket after bucket in random order, then update the ledger, then rename."""
    job, ledger = release.job, release.ledger
    paths = sorted(release.folder.glob("part-*.arrow"))
    told, sketch = summarise(paths, release.name, job.batch_rows, job.schema.layout)
    refuse_contradictions(told, job.encoder, job.options)
    suffix = job.target.suffix.lower()
    finished = release.folder / f"finished{suffix}"
    remembered = not job.options.keep_order and job.options.remember_order
    presence = PresenceCount.of(job, told.rows)
    try:
        with (
            progress(job.buckets, f"Writing {job.target.name}", job.options.show_progress, unit="parts") as report,
            ledger.order_file(release.name) if remembered else nullcontext() as places,
            TableWriter(finished, suffix, job.schema) as writer,
        ):
            for bucket in range(job.buckets):
                for rows in rows_of_bucket(paths, bucket, job.options):
                    if places is not None:
                        places.write(rows[PLACE].to_numpy().tobytes())
                    writer.write(rows.drop_columns([PLACE]))
                    if presence is not None:
                        presence.add(rows)
                report(bucket + 1)
    except BaseException:
        ledger.forget_order(release.name)
        raise
    told.neutralised = writer.neutralised
    told.presence = None if presence is None else presence.told()
    told.sha256 = sha256_of(finished)
    hand_over(told, sketch, finished, job.target, ledger, release.name, digest, job.options, "rows", before_naming)
    return told
