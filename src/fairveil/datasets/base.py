"""Where data sets are looked for, and how a file is known to be the right one."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

#: The environment variable that names the folder of data sets.
DATA_HOME = "FAIRVEIL_DATA"


@dataclass(frozen=True)
class Split:
    """Rows of a data set: X to be censored, the sensitive columns S, and targets nobody told the encoder about."""

    X: pd.DataFrame
    S: pd.DataFrame
    targets: dict[str, pd.Series]

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: NDArray[np.int64]) -> "Split":
        """Only these rows, in this order, numbered from 0."""
        frames = [frame.iloc[rows].reset_index(drop=True) for frame in (self.X, self.S)]
        targets = {name: values.iloc[rows].reset_index(drop=True) for name, values in self.targets.items()}
        return Split(frames[0], frames[1], targets)


def data_homes() -> Iterator[Path]:
    """Folders that may hold data sets: `FAIRVEIL_DATA`, then the user's cache."""
    if os.environ.get(DATA_HOME):
        yield Path(os.environ[DATA_HOME])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield Path(cache) / "fairveil"


def sha256(content: bytes) -> str:
    """The checksum by which a file is known."""
    return hashlib.sha256(content).hexdigest()
