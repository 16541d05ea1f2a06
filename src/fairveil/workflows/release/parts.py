"""Parts of a release of a table: drawn rows, dealt to buckets, with metadata; what `--resume` reuses."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from fairveil._utils.errors import InputError
from fairveil.data.layout import Layout
from fairveil.data.marginals import Marginals, collapse_message
from fairveil.objectives.distortion import KINDS
from fairveil.workflows.release.job import FEWEST_TOLD, Options, ReleaseSummary, random_source
from fairveil.workflows.release.sketch import Sketch, tells_rows_apart

#: The position of a released row in the input; stored only in parts.
PLACE = "\x00place"
DAMAGED = "The interrupted work holds a damaged or foreign part. Omit --resume to start again."


def rows_of_bucket(paths: list[Path], bucket: int, options: Options) -> Iterator[pa.Table]:
    """The rows of a bucket, shuffled; if not shuffled, part by part, so that only one is in memory."""
    parts = (open_part(path).get_batch(bucket) for path in paths)
    if options.keep_order:
        yield from (pa.Table.from_batches([part]).replace_schema_metadata(None) for part in parts)
        return
    rows = pa.concat_tables([pa.Table.from_batches([part]).replace_schema_metadata(None) for part in parts])
    yield rows.take(pa.array(np.argsort(random_source(options, 1, bucket).keys(rows.num_rows), kind="stable")))


def open_part(path: Path) -> pa.ipc.RecordBatchFileReader:
    """A part, read from disk as needed."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (pa.ArrowException, OSError):
        raise InputError(DAMAGED) from None


def metadata_of(part: pa.ipc.RecordBatchFileReader) -> dict[bytes, bytes]:
    """The metadata of a part."""
    return dict(part.schema.metadata or {})


def summarise(paths: list[Path], release: str, batch_rows: int, layout: Layout) -> tuple[ReleaseSummary, Sketch]:
    """Combine the metadata of all parts; each must belong to this release, at its index, with all its rows once."""
    told, sketch, sums = ReleaseSummary(), Sketch.empty(), np.zeros(2 * len(KINDS) + 2)
    digest, repeats = np.zeros(2, dtype=np.uint64), set()
    marginals = Marginals.of(layout, torch.zeros(0, layout.width))
    before, after = marginals.counts.copy(), marginals.counts.copy()
    for index, path in enumerate(paths):
        metadata = metadata_of(open_part(path))
        try:
            right = metadata[b"release"] == release.encode() and int(metadata[b"index"]) == index
            rows = int(metadata[b"rows"])
            sums += np.frombuffer(metadata[b"distortion"], dtype=np.float64)
            before += np.frombuffer(metadata[b"before"], dtype=np.float64)
            after += np.frombuffer(metadata[b"after"], dtype=np.float64)
            digest += np.frombuffer(metadata[b"rows_digest"], dtype=np.uint64)
            hashes = np.frombuffer(metadata[b"sketch"], dtype=np.uint64)
            counts = np.frombuffer(metadata[b"counts"], dtype=np.int64)
            clipped = json.loads(metadata[b"clipped"])
            repeats |= set(json.loads(metadata[b"repeats"]))
        except (KeyError, ValueError):
            raise InputError(DAMAGED) from None
        if not right or not _has_its_rows(path, index * batch_rows, rows):
            raise InputError(DAMAGED)
        sketch = sketch + Sketch.of(hashes, counts)
        told.rows += rows
        for name, count in clipped.items():
            told.clipped[name] = told.clipped.get(name, 0) + count
    told.original = digest.tobytes().hex()
    kinds, (counted, changed), floor = sums[: len(KINDS)], sums[len(KINDS) : len(KINDS) + 2], sums[len(KINDS) + 2 :]
    if counted:
        told.distortion = dict(zip(KINDS, (kinds / counted).tolist(), strict=True))
        told.floor = dict(zip(KINDS, (floor / counted).tolist(), strict=True))
    told.changed = float(changed / told.rows)
    told.drift = replace(marginals, counts=before).drift(after)
    if told.rows >= FEWEST_TOLD and (message := collapse_message(told.drift)):
        told.warnings.append(message)
    told.warnings += [
        f"Column {name!r} is passed on, and many rows share its values. If it identifies people, several draws of a "
        f"person reveal more than a single one: pass --person {name}." for name in sorted(repeats)
    ]  # fmt: skip
    if not tells_rows_apart(sketch):
        told.warnings.append("Nearly all rows equal others, so the ledger can recognise this complete input, but not a "
                             "part of it. Release each row only once.")  # fmt: skip
    return told, sketch


def _has_its_rows(path: Path, start: int, rows: int) -> bool:
    """Whether a part holds the rows from `start` on, each of them once."""
    schema = open_part(path).schema
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(PLACE)])
    part = pa.ipc.open_file(pa.memory_map(str(path)), options=options)
    batches = [part.get_batch(i).column(0).to_numpy() for i in range(part.num_record_batches)]
    return np.array_equal(np.sort(np.concatenate(batches)), start + np.arange(rows))
