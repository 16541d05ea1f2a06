"""Keyed hashes of the rows an encoder was fitted on, in memory only: a certificate needs other rows."""

import math
import secrets
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.errors import InputError

#: Standard errors by which rows may equal fitted ones more often than those equal each other.
_TOLERANCE = 4.0
#: If a larger share of the fitted rows has duplicates, equality does not identify them.
_MOST_TWINS = 0.5


@dataclass(frozen=True)
class FittedRows:
    """Hashes of the encoded fitted rows under a random key; and the share that has a duplicate among them."""

    key: str
    hashes: NDArray[np.uint64]
    twins: float

    @classmethod
    def of(cls, rows: Tensor) -> "FittedRows":
        """Store encoded rows (rows, width)."""
        key = secrets.token_hex(8)
        hashes, counts = np.unique(_hash(rows, key), return_counts=True)
        return cls(key, hashes, float(counts[counts > 1].sum() / counts.sum()))

    def refuse(self, rows: Tensor) -> str:
        """Raise if these rows were fitted, or if that cannot be determined; otherwise describe the comparison.

        A row may equal a fitted one by chance, in a table of few categories even often: as often as a fitted row equals
        another. If it happens more often, the table contains fitted rows.
        """
        if self.twins > _MOST_TWINS:
            raise InputError(
                f"{100 * self.twins:.0f} % of the fitted rows have a duplicate among them, so equality does not show "
                "whether these rows were used in training. If they were not, pass unseen_rows=True."
            )
        seen = float(np.isin(_hash(rows, self.key), self.hashes).mean())
        chance = self.twins + _TOLERANCE * math.sqrt(self.twins * (1 - self.twins) / len(rows))
        if seen > chance:
            raise InputError(
                f"{100 * seen:.1f} % of these {len(rows)} rows equal rows that the encoder was fitted on, while "
                f"{100 * self.twins:.1f} % are expected by chance: nothing can be certified from rows used in training."
            )
        return (
            f"{len(rows):,} rows, which equal fitted rows no more often ({100 * seen:.1f} %) than those equal each "
            f"other ({100 * self.twins:.1f} %)."
        )


def _hash(rows: Tensor, key: str) -> NDArray[np.uint64]:
    frame = pd.DataFrame(rows.numpy())
    return np.asarray(pd.util.hash_pandas_object(frame, index=False, hash_key=key), dtype=np.uint64)
