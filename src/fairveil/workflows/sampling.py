"""Rows of a file of any size for fitting: all of them, or a uniform sample in bounded memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairveil._utils.errors import InputError
from fairveil._utils.progress import progress
from fairveil.workflows.reading import TableFile

#: Maximum rows of a file that are inspected, fitted or audited.
MOST_ROWS = 200_000
_BATCH = 65_536


@dataclass(frozen=True)
class Sample:
    """Rows of a file, in its order. places: their positions in the file. rows: how many rows the file has."""

    table: pa.Table
    places: NDArray[np.int64]
    rows: int


def sample_rows(
    source: TableFile, columns: Sequence[str], held_as: Mapping[str, str], most: int, seed: int, *,
    show_progress: bool = False,
) -> Sample:  # fmt: skip
    """A uniform sample of at most `most` rows.

    Each row draws a key; the rows with the smallest keys are kept. The same file and seed give the same rows.
    """
    generator = np.random.default_rng(seed)
    kept: pa.Table | None = None
    keys, places = np.empty(0), np.empty(0, dtype=np.int64)
    rows = 0
    total = max(source.rows or source.expected, 1)
    with progress(total, f"Reading {source.path.name}", show_progress, unit="rows") as report:
        for table in source.batches(columns, held_as, _BATCH):
            places = np.concatenate([places, np.arange(rows, rows + table.num_rows)])
            rows += table.num_rows
            keys = np.concatenate([keys, generator.random(table.num_rows)])
            kept = table if kept is None else pa.concat_tables([kept, table])
            if len(keys) > 2 * most:
                kept, keys, places = _smallest(kept, keys, places, most)
            report(min(rows, total))  # the total may be an estimate
    if kept is None:
        raise InputError(f"{source.path.name} has no rows.")
    kept, _, places = _smallest(kept, keys, places, most)
    return Sample(kept.combine_chunks(), places, rows)


def _smallest(
    table: pa.Table, keys: np.ndarray, places: NDArray[np.int64], most: int
) -> tuple[pa.Table, np.ndarray, NDArray[np.int64]]:
    if len(keys) <= most:
        return table, keys, places
    chosen = np.sort(np.argpartition(keys, most)[:most])
    return table.take(pa.array(chosen)), keys[chosen], places[chosen]
