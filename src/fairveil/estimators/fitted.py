"""Which rows an encoder was fitted on, by keyed hashes that stay in memory: what is certified must be other rows."""

import math
import secrets
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.errors import InputError

#: Standard errors by which rows may resemble the fitted ones more than those resemble each other.
_TOLERANCE = 4.0


@dataclass(frozen=True)
class FittedRows:
    """Hashes of the fitted rows under a random key, and the share of them that has a twin among the others."""

    key: str
    hashes: NDArray[np.uint64]
    twins: float

    @classmethod
    def of(cls, table: pa.Table) -> "FittedRows":
        """Remember the rows of a table."""
        key = secrets.token_hex(8)
        hashes, counts = np.unique(_hash(table, key), return_counts=True)
        return cls(key, hashes, float(counts[counts > 1].sum() / counts.sum()))

    def refuse(self, table: pa.Table) -> str:
        """Raise if rows of this table were fitted; otherwise say what was compared.

        A row may equal a fitted one by chance, in a table of few categories even often: as often as a fitted row equals
        another. Beyond that the table holds fitted rows.
        """
        rows = table.num_rows
        seen = float(np.isin(_hash(table, self.key), self.hashes).mean())
        chance = self.twins + _TOLERANCE * math.sqrt(max(self.twins * (1 - self.twins), 1 / rows) / rows)
        if seen > chance:
            raise InputError(
                f"{100 * seen:.0f} % of these {rows} rows equal rows that the encoder was fitted on, where "
                f"{100 * self.twins:.0f} % would be chance: nothing can be certified from rows used in training."
            )
        return f"{rows:,} rows, compared with the rows of the fit: none of them was used in training."


def _hash(table: pa.Table, key: str) -> NDArray[np.uint64]:
    frame = table.to_pandas()
    return np.asarray(pd.util.hash_pandas_object(frame, index=False, hash_key=key), dtype=np.uint64)
