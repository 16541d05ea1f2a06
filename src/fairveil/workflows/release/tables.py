"""A censored copy of a table of any size: read, drawn, shuffled and written in batches.

Two passes. The first draws each batch and stores it in a part, its rows dealt at random to buckets. The second takes
one bucket after another from all parts, shuffles its rows and writes them: together a uniform permutation of all rows,
in the memory of one bucket. Parts are complete files, so that an interrupted release resumes without drawing any of
their rows again; and every draw is keyed by the secret of the release, so that a batch that is drawn twice gets the
same noise.

On one machine, threads draw the batches that this process reads. On a cluster, tasks read, draw and gather.
"""

import hashlib
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairveil._utils.atomic import put_in_place, sha256_of
from fairveil._utils.errors import ClippedWarning, InputError
from fairveil._utils.progress import progress
from fairveil._utils.randomness import ReleaseSecret
from fairveil._utils.stores import Location, locate
from fairveil.auditing.facts import Matches
from fairveil.workflows.engines import check_engine
from fairveil.workflows.engines.local import concurrently
from fairveil.workflows.engines.ray import RayEngine
from fairveil.workflows.many_files import MANIFEST, digest_of, manifest_of, open_tables
from fairveil.workflows.reading import Place
from fairveil.workflows.release.drawing import BatchKeys, Read, draw_batch, file_key
from fairveil.workflows.release.finish import BeforeNaming, hand_over
from fairveil.workflows.release.job import (
    Job,
    ReleaseSummary,
    TableJob,
    check_release,
    plan_digest,
    refuse_contradictions,
    refuse_few,
)
from fairveil.workflows.release.ledger import FittedInput, Ledger
from fairveil.workflows.release.parts import PLACE, Summary, part_index, rows_of_bucket, summarise, write_part
from fairveil.workflows.release.presence import PresenceCount, people_of
from fairveil.workflows.release.secret import abandon, release_secret
from fairveil.workflows.release.sketch import Sketch
from fairveil.workflows.release.tasks import (
    CHANGED,
    BucketFile,
    BucketTask,
    Stretch,
    Work,
    check_some,
    draw_stretches,
    gather_bucket,
    refuse_changed,
    sample_people,
    stretches,
)
from fairveil.workflows.release.workspace import is_unfinished, workspace
from fairveil.workflows.writing import TableWriter

#: Parts that one task reads again. The sums of figures depend on it, so it is the same everywhere.
_CHECKED_TOGETHER = 64


def release_table(job: Job, before_naming: BeforeNaming) -> ReleaseSummary | None:
    """Write a censored copy of a table. A local target is written atomically; in a store, its manifest comes last.

    Returns None if `resume` finds that the release was finished before it was interrupted.
    """
    check_release(job)
    _check_engine(job)
    ledger = Ledger.of(job.veil_path)
    asked, local = job.plan(), _local_name(job, ledger)
    if job.options.resume and not is_unfinished(local) and _is_done(job, ledger, asked):
        return None
    ledger.prepare()
    with (
        workspace(local, asked, resume=job.options.resume, abandoned=partial(abandon, ledger)) as (folder, plan),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", ClippedWarning)  # counted, and reported on the card
        name = str(plan["private"]["release"])
        resumed = plan["private"] != asked["private"]
        if resumed and ledger.secret(name) is None and _is_done(job, ledger, asked):
            return None  # killed after the release was finished
        if not resumed:
            _refuse_existing(job)
        with release_secret(ledger, name, job.options, resumed=resumed) as secret, _engine(job) as engine:
            scratch = _scratch(job, folder, name)
            person_key = b"" if job.options.person is None else secret.key("person")
            work = Work(job, scratch, name, ledger.key, person_key)
            release = TableRelease(work, ledger, secret, folder, engine)
            _draw_parts(release)
            told = _gather(release, before_naming, plan_digest(asked))
        if scratch.local != folder:
            scratch.delete_folder()
        return told


@dataclass(frozen=True)
class TableRelease:
    """A release in progress on the driver, which alone has its secret. local: the workspace on this machine."""

    work: Work
    ledger: Ledger
    secret: ReleaseSecret = field(repr=False)
    local: Path
    engine: RayEngine | None

    @property
    def job(self) -> Job:
        """The job."""
        return self.work.job

    def parts(self) -> list[Location]:
        """All parts that exist, in their order."""
        return [found for found in self.work.folder.files() if found.name.startswith("part-")]

    def run(
        self, work: Callable[[Work, Any], Any], tasks: Iterable[Any], matches: Matches | None = None
    ) -> Iterator[Any]:
        """Run tasks on the engine; results as they complete. matches: for tasks that count matching rows."""
        shared = replace(self.work, matches=matches)
        if self.engine is not None:
            return self.engine.run(work, shared, tasks)
        return concurrently(partial(work, shared), tasks, self.job.workers)


def _engine(job: Job) -> Any:
    return RayEngine.started(job.options.address) if job.options.engine == "ray" else nullcontext()


def _local_name(job: Job, ledger: Ledger) -> Path:
    """The name of the workspace on this machine: next to a local target, in the ledger for one in a store."""
    if job.goal.local is not None:
        return job.goal.local
    return ledger.folder / hashlib.sha256(job.goal.shown.encode()).hexdigest()[:16]


def _scratch(job: Job, folder: Path, name: str) -> Location:
    """Where parts are kept. Their order tells which input row each released row was made from."""
    return locate(folder) if job.options.scratch is None else locate(job.options.scratch).child(f"fairveil-{name}")


def _check_engine(job: Job) -> None:
    check_engine(job.options.engine)
    if job.options.engine == "ray" and job.goal.local is None and job.options.scratch is None:
        raise InputError(
            "A release to a store on a cluster needs --scratch, a private folder that all workers can reach: "
            "unfinished work tells which row is which, and must not lie next to what is published."
        )


def _refuse_existing(job: Job) -> None:
    """Raise if files would be added to a folder."""
    goal = job.goal
    if job.is_folder and (goal.is_folder() or goal.is_file()):
        raise InputError(f"{goal.shown} already exists. Name a new folder.")


def _is_done(job: Job, ledger: Ledger, asked: dict[str, Any]) -> bool:
    """Whether the target is a finished release of exactly this input."""
    goal = job.goal
    if job.is_folder:
        finished = goal.child(MANIFEST).is_file()
        entry = ledger.find(digest_of(open_tables(goal.local or goal))) if finished else None
    else:
        entry = ledger.find(goal.sha256()) if goal.is_file() else None
    if entry is None or entry.plan != plan_digest(asked):
        return False
    return entry.original == original_digest(job, ledger.key)


def original_digest(job: Job, key: bytes) -> str:
    """The digest of all input rows in their order, as recorded for a release."""
    digest = OriginalDigest(job, key)
    for place, table in job.source.placed_batches(job.columns, job.held_as, job.batch_rows):
        digest.add(place, table)
    return digest.hex()


def fitted_input(job: Job, fitted: NDArray[np.bool_], key: bytes) -> FittedInput:
    """What a ledger records about an input, some rows of which the encoder was fitted on; in one pass over it."""
    digest, sketch, start = OriginalDigest(job, key), Sketch.empty(), 0
    for place, table in job.source.placed_batches(job.columns, job.held_as, job.batch_rows):
        read = digest.add(place, table)
        sketch += Sketch.of(read.hashes[fitted[start : start + table.num_rows]])
        start += table.num_rows
    return FittedInput.of(digest.hex(), sketch, fitted)


class OriginalDigest:
    """The digest of input rows in their order, as recorded for a release, computed table by table."""

    def __init__(self, job: TableJob, key: bytes) -> None:
        self._job, self._key = job, key
        self._total = np.zeros(2, dtype=np.uint64)

    def add(self, place: Place, table: pa.Table) -> Read:
        """Add rows; returns them encoded and hashed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClippedWarning)
            read = Read.of(self._job, place, table, self._key)
        self._total += read.digest
        return read

    def hex(self) -> str:
        """The digest of all rows so far."""
        return self._total.tobytes().hex()


def _draw_parts(release: TableRelease) -> None:
    """The first pass: draw and store every batch that is missing; for the others, compare the rows."""
    job = release.job
    done = {part_index(path.name) for path in release.parts()}
    total = max(1, job.source.expected)
    begun = time.monotonic()
    with progress(total, f"Drawing {job.source.path.name}", job.options.show_progress, unit="rows") as report:
        seen = 0
        drawn: set[int] = set()
        for index, rows in _drawn_on_cluster(release) if release.engine else _drawn_here(release, done):
            seen += rows
            drawn |= set(index)
            rate = seen / (time.monotonic() - begun)
            report(min(seen, total), f"{rate:,.0f} rows per second")
        report(total)
    if not seen:
        raise InputError(f"{job.source.path.name} has no rows.")
    if done - drawn:
        raise InputError(CHANGED.format(name=job.source.path.name))
    refuse_few(seen, job.options, "rows")


def _drawn_here(release: TableRelease, done: set[int]) -> Iterator[tuple[Sequence[int], int]]:
    """Read batches here and draw them in threads: the indices of parts, and their rows."""
    job, work = release.job, release.work

    def drawn(numbered: tuple[int, tuple[Place, pa.Table]]) -> tuple[Sequence[int], int]:
        index, (place, table) = numbered
        read = Read.of(job, place, table, work.row_key)
        if index == 0:
            _refuse_repeated(release, read)
        if index in done:
            _refuse_changed(release, index, read)
        else:
            _draw_part(release, read, place, index)
        return [index], int(table.num_rows)

    batches = enumerate(job.source.placed_batches(job.columns, job.held_as, job.batch_rows))
    return concurrently(drawn, batches, job.workers)


def _drawn_on_cluster(release: TableRelease) -> Iterator[tuple[Sequence[int], int]]:
    """Read and draw batches in tasks of the cluster: the indices of parts, and their rows."""
    job = release.job
    for place, table in job.source.placed_batches(job.columns, job.held_as, job.batch_rows):
        _refuse_repeated(release, Read.of(job, place, table, release.work.row_key))
        break
    tasks = (
        [Stretch(file, first, last, index, file_key(release.secret, file)) for file, first, last, index in task]
        for task in stretches(job)
    )
    yield from release.run(draw_stretches, tasks)


def _refuse_repeated(release: TableRelease, first: Read) -> None:
    """Reject a repeated file after its first batch."""
    if not release.job.options.again:
        release.ledger.refuse_repeated(Sketch.of(first.hashes), release.work.name, "rows")


def _refuse_changed(release: TableRelease, index: int, read: Read) -> None:
    refuse_changed(release.work, index, iter([read]))


def _draw_part(release: TableRelease, read: Read, place: Place, index: int) -> None:
    job, work = release.job, release.work
    keys = BatchKeys.of(file_key(release.secret, place.file), place)
    drawn = draw_batch(job, read, keys, work.person_key)
    write_part(work.part(index), work.name, index, place.start, drawn.rows, drawn.bucket, drawn.figures, job.buckets)


def _gather(release: TableRelease, before_naming: BeforeNaming, digest: str) -> ReleaseSummary:
    """The second pass: write bucket after bucket in random order, then update the ledger, then publish."""
    job, ledger, name = release.job, release.ledger, release.work.name
    found = _summarised(release)
    refuse_contradictions(found.summary, job.encoder, job.options)
    remembered = not job.options.keep_order and job.options.remember_order
    presence = _presence(release, found.summary.rows)
    try:
        with (
            progress(job.buckets, f"Writing {job.goal.name}", job.options.show_progress, unit="parts") as report,
            ledger.order_file(name) if remembered else nullcontext() as places,
        ):

            def remember(rows: np.ndarray) -> None:
                if places is not None:
                    places.write(found.positions(rows).tobytes())

            publish = (_many_files if job.is_folder else _one_file)(release, found, remember, presence, report)
    except BaseException:
        ledger.forget_order(name)
        raise
    found.summary.presence = None if presence is None else presence.told()
    hand_over(found.summary, found.sketch, publish, ledger, name, digest, job.options, "rows", before_naming)
    return found.summary


def _summarised(release: TableRelease) -> Summary:
    """Read all parts again, in tasks, and add up what they hold."""
    job = release.job
    indices = [part_index(part.name) for part in release.parts()]
    chunks = [indices[start : start + _CHECKED_TOGETHER] for start in range(0, len(indices), _CHECKED_TOGETHER)]
    found = dict(release.run(check_some, chunks))
    return summarise((found[chunk[0]] for chunk in chunks), len(job.source.files), job.schema.layout)


def _presence(release: TableRelease, rows: int) -> PresenceCount | None:
    """People of the input, sampled in tasks on a cluster."""
    if release.engine is None:
        return PresenceCount.of(release.job, rows)
    tasks = (([Stretch(*each, b"") for each in task], rows) for task in stretches(release.job))
    return PresenceCount.of(release.job, rows, lambda: people_of(release.run(sample_people, tasks)))


def _one_file(
    release: TableRelease, found: Summary, remember: Callable[[np.ndarray], None], presence: PresenceCount | None,
    report: Callable[[int], None],
) -> Callable[[], None]:  # fmt: skip
    """Write all buckets to one file on this machine; returns what publishes it."""
    job, suffix = release.job, release.job.goal.suffix.lower()
    finished = release.local / f"finished{suffix}"
    parts = release.parts()
    with TableWriter(finished, suffix, job.schema) as writer:
        for bucket in range(job.buckets):
            for rows in rows_of_bucket(parts, bucket, _shuffle_key(release, bucket), release.work.name):
                remember(rows[PLACE].to_numpy())
                writer.write(rows.drop_columns([PLACE]))
                if presence is not None:
                    presence.add(rows)
            report(bucket + 1)
    found.summary.neutralised = writer.neutralised
    found.summary.sha256 = sha256_of(finished)
    if job.goal.local is not None:
        return partial(put_in_place, finished, job.goal.local)
    return lambda: job.goal.write(finished.read_bytes())


def _many_files(
    release: TableRelease, found: Summary, remember: Callable[[np.ndarray], None], presence: PresenceCount | None,
    report: Callable[[int], None],
) -> Callable[[], None]:  # fmt: skip
    """Write each bucket to a file of its own; returns what publishes them with their manifest."""
    work = release.work
    indices = tuple(part_index(part.name) for part in release.parts())
    tasks = [BucketTask(bucket, indices, int(rows), _shuffle_key(release, bucket))
             for bucket, rows in enumerate(found.bucket_rows)]  # fmt: skip
    files: dict[int, BucketFile] = {}
    for file in release.run(gather_bucket, tasks, matches=None if presence is None else presence.matches):
        if presence is not None:
            presence.matches.include(file.matches)
        files[file.bucket] = replace(file, matches=None)
        report(len(files))
    for bucket in sorted(files):
        remember(np.frombuffer(work.order(bucket).read(), dtype=np.int64))
    names = {bucket: f"part-{bucket:05d}.parquet" for bucket in sorted(files)}
    manifest = manifest_of({names[bucket]: (files[bucket].size, files[bucket].sha256) for bucket in names})
    found.summary.sha256 = hashlib.sha256(manifest).hexdigest()
    sources = {names[bucket]: work.bucket(bucket) for bucket in names}
    return partial(_publish_folder, release.job.goal, release.local / "finished", sources, manifest)


def _publish_folder(goal: Location, finished: Path, files: dict[str, Location], manifest: bytes) -> None:
    """On this machine, fill a hidden folder and rename it; in a store, copy the files and write the manifest last."""
    target = goal
    if goal.local is not None:
        finished.mkdir(mode=0o755, exist_ok=True)
        target = locate(finished)
    for name, file in files.items():
        file.copy_to(target.child(name))
    target.child(MANIFEST).write(manifest)
    if goal.local is not None:
        finished.chmod(0o755)  # whatever the umask
        put_in_place(finished, goal.local)


def _shuffle_key(release: TableRelease, bucket: int) -> bytes | None:
    return None if release.job.options.keep_order else release.secret.key("shuffle", bucket)
