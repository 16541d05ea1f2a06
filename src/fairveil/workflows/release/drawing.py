"""Draw one batch of a table: released rows, dealt to buckets, and figures about them.

Everything random comes from two keys of the batch, and from nothing else: a batch that is drawn again, on another
machine or after an interruption, gives the same rows in the same buckets.
"""

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.errors import InputError
from fairveil._utils.randomness import (
    ByteSource,
    KeyedStream,
    ReleaseSecret,
    RowStream,
    derived_key,
    whole_number_bytes,
)
from fairveil.data.marginals import Marginals
from fairveil.data.table_codec import EncodedRows
from fairveil.data.written import as_written
from fairveil.objectives.distortion import KINDS
from fairveil.objectives.released import ReleasedBatch
from fairveil.workflows.reading import Place, is_text
from fairveil.workflows.release.job import FEWEST_TOLD, Job, TableJob
from fairveil.workflows.release.parts import PLACE, Figures
from fairveil.workflows.release.sketch import Hashes, Sketch, ordered_digest, row_hashes

#: A passed column is taken for a person identifier if this share of a batch has repeated values, and if there are more
#: distinct values than the second number.
_REPEATED, _FEWEST_PEOPLE = 0.01, 100


@dataclass(frozen=True)
class BatchKeys:
    """The keys of one batch: for its draws, and for dealing its rows to buckets."""

    draw: bytes = field(repr=False)
    deal: bytes = field(repr=False)

    @classmethod
    def of(cls, file_key: bytes, place: Place) -> "BatchKeys":
        """Derived from the key of the file, which is derived from the secret of the release (`file_key`)."""
        row = whole_number_bytes(place.row)
        return cls(derived_key(file_key, b"draw", row), derived_key(file_key, b"deal", row))


def file_key(secret: ReleaseSecret, file: int) -> bytes:
    """The key of a file. Whoever draws a file needs it, and not the secret of the release."""
    return secret.key("file", file)


@dataclass(frozen=True)
class Read:
    """A batch as read: its rows encoded, and their hashes. hashes: of what is encoded; identities: with S."""

    place: Place
    table: pa.Table
    rows: EncodedRows
    hashes: Hashes
    identities: Hashes
    codes: NDArray[np.int64]

    @property
    def digest(self) -> NDArray[np.uint64]:
        """A keyed digest of the rows and their positions in the input."""
        return ordered_digest(self.identities, self.place.start)

    @classmethod
    def of(cls, job: TableJob, place: Place, table: pa.Table, row_key: bytes) -> "Read":
        """Encode and hash a batch. row_key: of the ledger."""
        try:
            rows = job.encoded(table)
            known = [_value_codes(table[name]) for name in job.sensitive_names]
        except InputError as error:
            file = job.source.files[place.file].path.name
            counted = [f"(Rows are counted from row {place.row} of {file}.)"] if place.row else []
            raise InputError([*error.problems, *counted]) from None
        codes = np.column_stack([rows.codes, *known])
        return cls(place, table, rows, row_hashes(rows.codes, row_key), row_hashes(codes, row_key), codes)


@dataclass(frozen=True)
class Drawn:
    """Released rows with their places, the bucket of each, and figures about them."""

    rows: pa.Table
    bucket: NDArray[np.int64]
    figures: Figures


def draw_batch(job: Job, read: Read, keys: BatchKeys, person_key: bytes) -> Drawn:
    """Draw a batch and deal its rows to buckets. person_key: of the release, for equal rows of one person."""
    table, rows, count = read.table, read.rows, read.table.num_rows
    secret = table.select(job.secret_names) if job.secret_names else None
    released, values = job.veil.apply_to(
        table.select(job.released_names), rows, secret, _source(job, read, keys.draw, person_key)
    )
    released = as_written(released, job.schema)
    released = released.append_column(PLACE, pa.array(read.place.start + np.arange(count)))
    bucket = np.zeros(count, dtype=np.int64)
    if job.buckets > 1:
        bucket = (KeyedStream(keys.deal).keys(count) % np.uint64(job.buckets)).astype(np.int64)
    figures = Figures(
        count, read.digest, _measured(job, rows, values), Sketch.of(read.hashes), clipped_numbers(job, table),
        frozenset(_repeats(job, table)), Marginals.of(job.schema.layout, rows.x).counts,
        Marginals.of(job.schema.layout, values).counts,
    )  # fmt: skip
    return Drawn(released, bucket, figures)


def _source(job: Job, read: Read, key: bytes, person_key: bytes) -> ByteSource:
    """The random source of a batch; with `person`, equal rows of one person get the same draw.

    The stream depends on the rows, too: should other rows ever be drawn with the same key, their noise is unrelated.
    """
    if job.options.person is None:
        return KeyedStream(key, hashlib.sha256(read.codes.tobytes()).digest())
    whose = [
        str(value).encode() if value is not None else b"\x00" + whole_number_bytes(read.place.start + row)
        for row, value in enumerate(read.table[job.options.person].to_pylist())
    ]
    shown = [] if not job.secret_names else [job.sensitive.classes_of(read.table.select(job.secret_names)).numpy()]
    return RowStream.of_rows(person_key, whose, np.column_stack([read.rows.codes, *shown]))


def _value_codes(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """An integer for each value, the same for files of any kind."""
    if not is_text(column.type):
        numbers = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(numbers + 0.0).view(np.int64)
    coded = column.combine_chunks().dictionary_encode()
    words = [hashlib.blake2b(value.encode(), digest_size=8).digest() for value in coded.dictionary.to_pylist()]
    codes = np.frombuffer(b"".join([*words, bytes(8)]), dtype=np.int64)
    return np.asarray(codes[pc.fill_null(coded.indices, len(words)).to_numpy(zero_copy_only=False).astype(np.int64)])


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


def clipped_numbers(job: TableJob, table: pa.Table) -> dict[str, int]:
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
