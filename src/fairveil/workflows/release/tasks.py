"""The work of a release in pieces that can run in any process and any number of times: draw parts, gather buckets.

What a task writes depends on its arguments alone, byte for byte. A task that finds its file does not write it again.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairveil._utils.atomic import PRIVATE
from fairveil._utils.errors import ClippedWarning, InputError
from fairveil._utils.stores import Location
from fairveil.auditing.facts import Counts, Matches
from fairveil.workflows.reading import Place, TableFile
from fairveil.workflows.release.drawing import BatchKeys, Drawn, Read, draw_batch
from fairveil.workflows.release.job import SPAN, Job
from fairveil.workflows.release.parts import (
    PLACE,
    Checked,
    Figures,
    check_parts,
    metadata_of,
    open_part,
    part_name,
    rows_of_bucket,
    write_part,
)
from fairveil.workflows.release.presence import counted, people_among
from fairveil.workflows.writing import TableWriter

#: A table is divided into about as many tasks, if it has as many row groups.
_FEWEST_TASKS = 64
CHANGED = "{name} is not the file from which the interrupted release was made. Omit --resume to start again."


@dataclass(frozen=True)
class Work:
    """What all tasks of a release need.

    folder: for parts and buckets. row_key: of the ledger, for hashing rows. matches: counts released rows that match
    people of the input.
    """

    job: Job
    folder: Location
    name: str
    row_key: bytes = field(repr=False)
    person_key: bytes = field(repr=False)
    matches: Matches | None = field(default=None, repr=False)

    def part(self, index: int) -> Location:
        """The location of a part."""
        return self.folder.child(part_name(index))

    def bucket(self, number: int) -> Location:
        """The finished rows of a bucket. Tasks of an abandoned release may still run: theirs have other names."""
        return self.folder.child(f"bucket-{self.name}-{number:08d}.parquet")

    def order(self, number: int) -> Location:
        """The place of each row of a bucket in the input."""
        return self.folder.child(f"order-{self.name}-{number:08d}")


@dataclass(frozen=True)
class Stretch:
    """Consecutive batches of a file: `first` to `last`, without the last; None: to the end of the file.

    index: of the part of its first batches. key: of the file, from which the keys of its batches are derived.
    """

    file: int
    first: int
    last: int | None
    index: int
    key: bytes = field(repr=False)


def stretches(job: Job) -> list[list[tuple[int, int, int | None, int]]]:
    """Tasks for drawing all files: for each, consecutive (file, first, last, index) of about `SPAN` batches or more.

    Small tables are divided into more tasks, so that all workers have some. Indices of parts increase with files and
    rows, with gaps where the number of rows is not known.
    """
    tasks: list[list[tuple[int, int, int | None, int]]] = [[]]
    held = index = 0
    enough = min(SPAN, max(1, job.source.expected // job.batch_rows // _FEWEST_TASKS))
    for number, file in enumerate(job.source.files):
        if file.kind == "csv":  # one task reads it; a row has at least one byte per column
            most = 1 + file.size // (max(1, len(file.names) - len(file.fixed)) * job.batch_rows)
            cuts: list[tuple[int, int | None, int]] = [(0, None, most)]
        else:
            cuts = [(first, last, last - first) for first, last in _by_row_group(file, job.batch_rows)]
        for first, last, batches in cuts:
            tasks[-1].append((number, first, last, index))
            index += -(-batches // SPAN)
            held += batches
            if held >= enough:
                tasks.append([])
                held = 0
    return [task for task in tasks if task]


def _by_row_group(file: TableFile, batch_rows: int) -> list[tuple[int, int]]:
    """Stretches of at least `SPAN` batches that begin with the first batch of a row group: no group is read twice,
    except for its first rows, which may belong to the batch before.
    """
    ends = -(-np.cumsum([0, *file.groups, max(0, (file.rows or 0) - sum(file.groups))]) // batch_rows)
    cuts = [0]
    for end in ends:
        if end - cuts[-1] >= SPAN:
            cuts.append(int(end))
    if ends[-1] > cuts[-1]:
        cuts.append(int(ends[-1]))
    return list(pairwise(cuts))


def draw_stretches(work: Work, task: Sequence[Stretch]) -> tuple[list[int], int]:
    """Draw all parts of some stretches; for parts that exist, compare the rows. Returns the indices and the rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedWarning)  # counted, and reported on the card
        drawn = [span for stretch in task for span in _draw_stretch(work, stretch)]
    return [index for index, _ in drawn], sum(rows for _, rows in drawn)


def _draw_stretch(work: Work, stretch: Stretch) -> Iterator[tuple[int, int]]:
    batches = _batches(work.job, stretch)
    index = stretch.index
    while some := list(islice(batches, SPAN)):
        yield index, _draw_span(work, index, some, stretch.key)
        index += 1


def _batches(job: Job, stretch: Stretch) -> Iterator[tuple[Place, pa.Table]]:
    file = job.source.files[stretch.file]
    tables = file.batches(job.columns, job.held_as, job.batch_rows, first=stretch.first, last=stretch.last)
    for number, table in enumerate(tables, stretch.first):
        yield Place(stretch.file, number * job.batch_rows), table


def _draw_span(work: Work, index: int, batches: Sequence[tuple[Place, pa.Table]], key: bytes) -> int:
    job, part = work.job, work.part(index)
    if part.is_file():
        refuse_changed(work, index, (Read.of(job, place, table, work.row_key) for place, table in batches))
        return sum(table.num_rows for _, table in batches)
    drawn: list[Drawn] = [
        draw_batch(job, Read.of(job, place, table, work.row_key), BatchKeys.of(key, place), work.person_key)
        for place, table in batches
    ]
    figures = sum((each.figures for each in drawn), Figures.none())
    write_part(part, work.name, index, batches[0][0].start, pa.concat_tables([each.rows for each in drawn]),
               np.concatenate([each.bucket for each in drawn]), figures, job.buckets)  # fmt: skip
    return figures.rows


def refuse_changed(work: Work, index: int, batches: Iterator[Read]) -> None:
    """Raise if a part drawn before an interruption is not of the rows that are there now."""
    digest = sum((read.digest for read in batches), np.zeros(2, dtype=np.uint64))
    if metadata_of(open_part(work.part(index))).get(b"rows_digest") != digest.tobytes():
        raise InputError(CHANGED.format(name=work.job.source.path.name))


def check_some(work: Work, indices: Sequence[int]) -> tuple[int, Checked]:
    """Read some consecutive parts again: the first index, and what they hold."""
    parts = [work.part(index) for index in indices]
    return indices[0], check_parts(parts, work.name, len(work.job.source.files))


def sample_people(work: Work, task: tuple[Sequence[Stretch], int]) -> pa.Table | None:
    """The people of a sample who are in some stretches of the input, which has so many rows."""
    stretches, rows = task
    batches = (batch for stretch in stretches for batch in _batches(work.job, stretch))
    return people_among(work.job, batches, rows)


@dataclass(frozen=True)
class BucketTask:
    """A bucket to write. indices: of all parts. rows: how many it has. key: for the shuffle; None keeps the order."""

    bucket: int
    indices: tuple[int, ...]
    rows: int
    key: bytes | None = field(repr=False)


@dataclass(frozen=True)
class BucketFile:
    """A finished bucket: its size and SHA-256. matches: how often people of the input are matched by its rows."""

    bucket: int
    rows: int
    size: int
    sha256: str
    matches: Counts | None = None


def gather_bucket(work: Work, task: BucketTask) -> BucketFile:
    """Write the rows of a bucket as a Parquet file, and their places."""
    target, order = work.bucket(task.bucket), work.order(task.bucket)
    if target.is_file() and order.is_file():
        return BucketFile(task.bucket, task.rows, target.size(), target.sha256(), _matched_in(work, target))
    sink, places, matches = pa.BufferOutputStream(), [], None
    rows = 0
    with TableWriter(sink, ".parquet", work.job.schema) as writer:
        for table in rows_of_bucket([work.part(index) for index in task.indices], task.bucket, task.key, work.name):
            places.append(table[PLACE].to_numpy())
            rows += table.num_rows
            writer.write(table.drop_columns([PLACE]))
            matches = _added(matches, _matched(work, table))
    if rows != task.rows:
        raise InputError("The parts of the release changed while it was made. Omit --resume to start again.")
    content = sink.getvalue()
    target.write(content)
    order.write(np.concatenate(places).astype(np.int64).tobytes(), PRIVATE)
    return BucketFile(task.bucket, rows, len(content), hashlib.sha256(content).hexdigest(), matches)


def _matched(work: Work, rows: pa.Table) -> Counts | None:
    return None if work.matches is None else counted(work.matches, rows)


def _matched_in(work: Work, file: Location) -> Counts | None:
    if work.matches is None:
        return None
    with file.open() as stream:
        return _matched(work, pq.read_table(stream))


def _added(counts: Counts | None, more: Counts | None) -> Counts | None:
    if counts is None or more is None:
        return more
    return tuple(one + other for one, other in zip(counts, more, strict=True))
