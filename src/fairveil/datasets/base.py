"""Where data sets are looked for, and how a file is known to be the right one."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

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


def data_homes() -> Iterator[Path]:
    """Folders that may hold data sets: `FAIRVEIL_DATA`, then the user's cache."""
    if os.environ.get(DATA_HOME):
        yield Path(os.environ[DATA_HOME])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield Path(cache) / "fairveil"


def sha256(content: bytes) -> str:
    """The checksum by which a file is known."""
    return hashlib.sha256(content).hexdigest()
