"""Parts of a release of a table: drawn rows, dealt to buckets, with figures about them; what `--resume` reuses."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil._utils.randomness import KeyedStream
from fairveil._utils.stores import Location, StoreError, locate
from fairveil.data.layout import Layout
from fairveil.data.marginals import Marginals, collapse_message
from fairveil.objectives.distortion import KINDS
from fairveil.workflows.reading import file_and_row
from fairveil.workflows.release.job import FEWEST_TOLD, ReleaseSummary
from fairveil.workflows.release.sketch import Sketch, tells_rows_apart

#: The position of a released row in the input; stored only in parts.
PLACE = "\x00place"
DAMAGED = "The interrupted work holds a damaged or foreign part. Omit --resume to start again."
#: Sums over rows: the distortion by kind, the measured and the changed rows, and the floor by kind.
_SUMS = 2 * len(KINDS) + 2


@dataclass(frozen=True)
class Figures:
    """What is known about drawn rows.

    digest: of the input rows and their positions; sums of parts of an input add up. sums: see `_measured`. sketch: of
    the input rows. clipped: how many numbers of each column were out of range. repeats: passed columns in which many
    rows share values. before, after: counts of values (`Marginals`) of the input and of the release.
    """

    rows: int
    digest: NDArray[np.uint64]
    sums: NDArray[np.float64]
    sketch: Sketch
    clipped: dict[str, int]
    repeats: frozenset[str]
    before: NDArray[np.float64]
    after: NDArray[np.float64]

    @classmethod
    def none(cls) -> "Figures":
        """Figures of no rows."""
        return cls(0, np.zeros(2, dtype=np.uint64), np.zeros(_SUMS), Sketch.empty(), {}, frozenset(),
                   np.zeros(1), np.zeros(1))  # fmt: skip

    def __add__(self, other: "Figures") -> "Figures":
        names = {**self.clipped, **other.clipped}
        return Figures(
            self.rows + other.rows, self.digest + other.digest, self.sums + other.sums, self.sketch + other.sketch,
            {name: self.clipped.get(name, 0) + other.clipped.get(name, 0) for name in names},
            self.repeats | other.repeats, self.before + other.before, self.after + other.after,
        )  # fmt: skip

    def to_metadata(self) -> dict[str, str | bytes]:
        """As the metadata of a part."""
        return {
            "rows": str(self.rows),
            "rows_digest": self.digest.tobytes(),
            "distortion": self.sums.tobytes(),
            "sketch": self.sketch.hashes.tobytes(),
            "counts": self.sketch.counts.tobytes(),
            "clipped": json.dumps(self.clipped),
            "repeats": json.dumps(sorted(self.repeats)),
            "before": self.before.tobytes(),
            "after": self.after.tobytes(),
        }

    @classmethod
    def from_metadata(cls, metadata: dict[bytes, bytes]) -> "Figures":
        """Read the result of `to_metadata`; raises KeyError or ValueError."""
        hashes = np.frombuffer(metadata[b"sketch"], dtype=np.uint64)
        counts = np.frombuffer(metadata[b"counts"], dtype=np.int64)
        return cls(
            int(metadata[b"rows"]), np.frombuffer(metadata[b"rows_digest"], dtype=np.uint64),
            np.frombuffer(metadata[b"distortion"], dtype=np.float64), Sketch.of(hashes, counts),
            json.loads(metadata[b"clipped"]), frozenset(json.loads(metadata[b"repeats"])),
            np.frombuffer(metadata[b"before"], dtype=np.float64), np.frombuffer(metadata[b"after"], dtype=np.float64),
        )  # fmt: skip


def part_name(index: int) -> str:
    """The file name of a part."""
    return f"part-{index:08d}.arrow"


def part_index(name: str) -> int:
    """The index in the name of a part."""
    return int(name.removeprefix("part-").removesuffix(".arrow"))


def write_part(
    location: Location, release: str, index: int, start: int, rows: pa.Table, bucket: NDArray[np.int64],
    figures: Figures, buckets: int,
) -> None:  # fmt: skip
    """Store drawn rows, one record batch per bucket. start: the place of the first row."""
    counts = np.bincount(bucket, minlength=buckets)
    ends = np.cumsum(counts)
    by_bucket = rows.take(pa.array(np.argsort(bucket, kind="stable"))).combine_chunks()
    metadata = {
        "release": release, "index": str(index), "start": str(start), "buckets": counts.astype(np.int64).tobytes(),
        **figures.to_metadata(),
    }  # fmt: skip
    sink = pa.BufferOutputStream()
    schema = by_bucket.schema.with_metadata(metadata)
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for begin, end in zip([0, *ends[:-1]], ends, strict=True):
            piece = by_bucket.slice(int(begin), int(end - begin)).combine_chunks()
            batches = piece.to_batches() or [pa.RecordBatch.from_pylist([], schema=by_bucket.schema)]
            writer.write_batch(batches[0].replace_schema_metadata(metadata))
    location.write(sink.getvalue())


def rows_of_bucket(
    parts: Sequence[Location], bucket: int, key: bytes | None, release: str
) -> Iterator[pa.Table]:  # fmt: skip
    """The rows of a bucket, shuffled by a key; without one, part by part, so that only one is in memory.

    Parts are checked again: a task of an abandoned release could have replaced one after they were summarised.
    """
    tables = (_bucket_of(part, bucket, release) for part in parts)
    if key is None:
        yield from tables
        return
    rows = pa.concat_tables(list(tables))
    yield rows.take(pa.array(np.argsort(KeyedStream(key).keys(rows.num_rows), kind="stable")))


def _bucket_of(part: Location, bucket: int, release: str) -> pa.Table:
    opened = open_part(part)
    if metadata_of(opened).get(b"release") != release.encode():
        raise InputError(DAMAGED)
    return pa.Table.from_batches([opened.get_batch(bucket)]).replace_schema_metadata(None)


def open_part(part: Location | Path) -> pa.ipc.RecordBatchFileReader:
    """A part, read as needed."""
    try:
        return pa.ipc.open_file(_source(locate(part)))
    except StoreError:
        raise
    except (pa.ArrowException, OSError):
        raise InputError(DAMAGED) from None


def _source(part: Location) -> pa.NativeFile:
    return part.open() if part.local is None else pa.memory_map(str(part.local))


def metadata_of(part: pa.ipc.RecordBatchFileReader) -> dict[bytes, bytes]:
    """The metadata of a part."""
    return dict(part.schema.metadata or {})


@dataclass(frozen=True)
class Checked:
    """Consecutive parts of a release that were read and found in order, added up; sums of these add up, too.

    first, file_rows: of each input file, the first row and the number of rows in these parts. bucket_rows: rows of each
    bucket.
    """

    figures: Figures
    first: NDArray[np.int64]
    file_rows: NDArray[np.int64]
    bucket_rows: NDArray[np.int64]

    @classmethod
    def none(cls, files: int) -> "Checked":
        """No parts."""
        return cls(Figures.none(), np.zeros(files, dtype=np.int64), np.zeros(files, dtype=np.int64),
                   np.zeros(1, dtype=np.int64))  # fmt: skip

    def __add__(self, later: "Checked") -> "Checked":
        """Raises unless the later parts hold, of each file, the rows that follow."""
        both = (self.file_rows > 0) & (later.file_rows > 0)
        if np.any(later.first[both] != (self.first + self.file_rows)[both]):
            raise InputError(DAMAGED)
        return Checked(self.figures + later.figures, np.where(self.file_rows > 0, self.first, later.first),
                       self.file_rows + later.file_rows, self.bucket_rows + later.bucket_rows)  # fmt: skip


def check_parts(parts: Sequence[Location], release: str, files: int) -> Checked:
    """Read consecutive parts; each must belong to this release, by its name, and hold the next rows once."""
    return sum((_checked(part, release, files) for part in parts), Checked.none(files))


def _checked(part: Location, release: str, files: int) -> Checked:
    metadata = metadata_of(open_part(part))
    try:
        figures = Figures.from_metadata(metadata)
        start, buckets = int(metadata[b"start"]), np.frombuffer(metadata[b"buckets"], dtype=np.int64)
        right = metadata[b"release"] == release.encode() and int(metadata[b"index"]) == part_index(part.name)
    except (KeyError, ValueError):
        raise InputError(DAMAGED) from None
    rows = _rows_by_file(part, start, figures.rows, files) if right else None
    if rows is None:
        raise InputError(DAMAGED)
    return Checked(figures, *rows, buckets)


@dataclass(frozen=True)
class Summary:
    """All parts together.

    summary: for the card. sketch: of the input. file_rows: rows of each input file. bucket_rows: rows of each bucket.
    """

    summary: ReleaseSummary
    sketch: Sketch
    file_rows: NDArray[np.int64]
    bucket_rows: NDArray[np.int64]

    def positions(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The position of each row in the whole input, all files one after another."""
        file, row = file_and_row(places)
        return np.asarray((np.cumsum(self.file_rows) - self.file_rows)[file] + row)


def summarise(checked: Iterable[Checked], files: int, layout: Layout) -> Summary:
    """Combine the figures of all parts, in their order; together they must hold every row from the first."""
    found = sum(checked, Checked.none(files))
    if found.first.any():
        raise InputError(DAMAGED)
    told, figures = ReleaseSummary(), found.figures
    told.rows, told.clipped = figures.rows, figures.clipped
    told.original = figures.digest.tobytes().hex()
    sums, kinds = figures.sums, len(KINDS)
    distortion, (counted, changed), floor = sums[:kinds], sums[kinds : kinds + 2], sums[kinds + 2 :]
    if counted:
        told.distortion = dict(zip(KINDS, (distortion / counted).tolist(), strict=True))
        told.floor = dict(zip(KINDS, (floor / counted).tolist(), strict=True))
    told.changed = float(changed / told.rows)
    marginals = Marginals.of(layout, torch.zeros(0, layout.width))
    told.drift = replace(marginals, counts=figures.before).drift(figures.after)
    if told.rows >= FEWEST_TOLD and (message := collapse_message(told.drift)):
        told.warnings.append(message)
    told.warnings += [
        f"Column {name!r} is passed on, and many rows share its values. If it identifies people, several draws of a "
        f"person reveal more than a single one: pass --person {name}." for name in sorted(figures.repeats)
    ]  # fmt: skip
    if not tells_rows_apart(figures.sketch):
        told.warnings.append("Nearly all rows equal others, so the ledger can recognise this complete input, but not a "
                             "part of it. Release each row only once.")  # fmt: skip
    return Summary(told, figures.sketch, found.file_rows, found.bucket_rows)


def _rows_by_file(
    part: Location, start: int, rows: int, files: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The first row and the number of rows of each input file; None unless its rows are consecutive and distinct."""
    places = np.sort(places_of(part))
    file, row = file_and_row(places)
    if len(places) != rows or (rows and places[0] != start) or (rows and int(file[-1]) >= files):
        return None
    counts = np.bincount(file, minlength=files).astype(np.int64)
    begins = np.cumsum(counts) - counts
    first = np.where(counts > 0, row[np.minimum(begins, max(rows - 1, 0))] if rows else 0, 0)
    if not np.array_equal(row, first[file] + np.arange(rows) - begins[file]):
        return None
    return first, counts


def places_of(part: Location) -> NDArray[np.int64]:
    """The places of a part's rows."""
    schema = open_part(part).schema
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(PLACE)])
    reader = pa.ipc.open_file(_source(part), options=options)
    batches = [reader.get_batch(i).column(0).to_numpy() for i in range(reader.num_record_batches)]
    return np.concatenate(batches)
