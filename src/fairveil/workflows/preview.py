"""What a veil does to a table, shown on a sample of its rows: for the curator's eyes only, nothing is written."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import pandas as pd
import pyarrow as pa

from fairveil._utils.errors import ClippedWarning, InputError
from fairveil._utils.randomness import SystemRandom
from fairveil.auditing.columns import compare_columns
from fairveil.data.frames import read_table
from fairveil.workflows.reading import TableFile, open_table
from fairveil.workflows.release.job import Job, Options, open_veil
from fairveil.workflows.sampling import sample_rows
from fairveil.workflows.tables import as_told


@dataclass(frozen=True)
class Preview:
    """Rows before and after, with the changes of all columns. columns, marginals: see `auditing.columns`."""

    names: tuple[str, ...]
    before: list[list[Any]]
    after: list[list[Any]]
    columns: pd.DataFrame
    marginals: pd.DataFrame
    rows: int


def preview_veil(source: str | Path, veil: str | Path, *, rows: int = 4000, shown: int = 8) -> Preview:
    """Draw a release of a sample of rows in memory. shown: how many rows to return; the figures use all of them."""
    path = Path(veil)
    file, encoder = open_table(source), open_veil(path)
    job = Job(file, encoder, path, file.path, Options())
    absent = [name for name in job.columns if name not in file.names]
    if absent:
        raise InputError([f"Column {name!r} is missing from {file.path.name}." for name in absent])
    table = _sampled(file, tuple(job.columns), tuple(job.held_as.items()), rows)
    secret = table.select(job.secret_names) if job.secret_names else None
    before = table.select(job.released_names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedWarning)
        after = job.veil.apply_to(before, job.encoded(table), secret, SystemRandom())[0]
    types = {column.name: column.type for column in job.schema.columns}
    old, new = (as_told(part.select(job.released_names), types) for part in (before, after))
    columns, marginals = compare_columns(read_table(old), read_table(new))
    return Preview(tuple(job.released_names), _rows(old, shown), _rows(new, shown), columns, marginals, table.num_rows)


#: A sample of the table looked at last, in memory only, so that a large file is not read again for every point.
_latest: dict[tuple[Any, ...], pa.Table] = {}
_reading = Lock()


def _sampled(file: TableFile, columns: tuple[str, ...], held_as: tuple[tuple[str, str], ...], rows: int) -> pa.Table:
    """A sample of the rows; one request at a time reads."""
    status = file.path.stat()
    key = (str(file.path.absolute()), status.st_mtime_ns, status.st_size, status.st_ino, columns, held_as, rows)
    with _reading:
        if key not in _latest:
            table = sample_rows(file, columns, dict(held_as), rows, seed=0).table
            _latest.clear()
            _latest[key] = table
        return _latest[key]


def _rows(table: pa.Table, count: int) -> list[list[Any]]:
    return [[_plain(value) for value in row.values()] for row in table.slice(0, count).to_pylist()]


def _plain(value: Any) -> Any:
    """Whole numbers without decimals, whatever their type in the table."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
