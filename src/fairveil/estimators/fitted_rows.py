"""Which rows an encoder was fitted on, by keyed hashes that stay in memory: what is certified must be other rows."""

import math
import secrets
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor

from fairveil._utils.errors import InputError

#: Standard errors by which rows may resemble the fitted ones more than those resemble each other.
_TOLERANCE = 4.0
#: With more twins than this among the fitted rows, equality says nothing about who they are.
_MOST_TWINS = 0.5


@dataclass(frozen=True)
class FittedRows:
    """Hashes of the fitted rows, as encoded, under a random key; and the share that has a twin among the others."""

    key: str
    hashes: NDArray[np.uint64]
    twins: float

    @classmethod
    def of(cls, rows: Tensor) -> "FittedRows":
        """Remember encoded rows (rows, width)."""
        key = secrets.token_hex(8)
        hashes, counts = np.unique(_hash(rows, key), return_counts=True)
        return cls(key, hashes, float(counts[counts > 1].sum() / counts.sum()))

    def refuse(self, rows: Tensor) -> str:
        """Raise if these rows were fitted, or if that cannot be told; otherwise say what was compared.

        A row may equal a fitted one by chance, in a table of few categories even often: as often as a fitted row equals
        another. Beyond that the table holds fitted rows.
        """
        if self.twins > _MOST_TWINS:
            raise InputError(
                f"{100 * self.twins:.0f} % of the fitted rows have a twin among them, so equality does not tell "
                "whether these rows were used in training. If they were not, vouch for it with unseen_rows=True."
            )
        seen = float(np.isin(_hash(rows, self.key), self.hashes).mean())
        chance = self.twins + _TOLERANCE * math.sqrt(self.twins * (1 - self.twins) / len(rows))
        if seen > chance:
            raise InputError(
                f"{100 * seen:.1f} % of these {len(rows)} rows equal rows that the encoder was fitted on, where "
                f"{100 * self.twins:.1f} % would be chance: nothing can be certified from rows used in training."
            )
        return (
            f"{len(rows):,} rows, which equal rows of the fit no more often ({100 * seen:.1f} %) than those equal each "
            f"other ({100 * self.twins:.1f} %)."
        )


def _hash(rows: Tensor, key: str) -> NDArray[np.uint64]:
    frame = pd.DataFrame(rows.numpy())
    return np.asarray(pd.util.hash_pandas_object(frame, index=False, hash_key=key), dtype=np.uint64)
