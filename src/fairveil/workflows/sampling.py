"""Rows of a file of any size for fitting: all of them, or a uniform sample in bounded memory."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from fairveil._utils.errors import InputError
from fairveil.workflows.reading import TableFile

#: Maximum rows of a file that are inspected, fitted or audited.
MOST_ROWS = 200_000
_BATCH = 65_536


def sample_rows(
    source: TableFile, columns: Sequence[str], held_as: Mapping[str, str], most: int, seed: int
) -> tuple[pa.Table, int]:
    """A uniform sample of at most `most` rows, in the order of the file; and how many rows the file has.

    Each row draws a key; the rows with the smallest keys are kept. The same file and seed give the same rows.
    """
    generator = np.random.default_rng(seed)
    kept: pa.Table | None = None
    keys = np.empty(0)
    rows = 0
    for table in source.batches(columns, held_as, _BATCH):
        rows += table.num_rows
        keys = np.concatenate([keys, generator.random(table.num_rows)])
        kept = table if kept is None else pa.concat_tables([kept, table])
        if len(keys) > 2 * most:
            kept, keys = _smallest(kept, keys, most)
    if kept is None:
        raise InputError(f"{source.path.name} has no rows.")
    return _smallest(kept, keys, most)[0].combine_chunks(), rows


def _smallest(table: pa.Table, keys: np.ndarray, most: int) -> tuple[pa.Table, np.ndarray]:
    if len(keys) <= most:
        return table, keys
    chosen = np.sort(np.argpartition(keys, most)[:most])
    return table.take(pa.array(chosen)), keys[chosen]
