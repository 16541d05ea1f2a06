"""Where data sets are found, and how files are verified."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairveil._utils.errors import DataNotFound, InputError

#: The environment variable that names the folder of data sets.
DATA_HOME = "FAIRVEIL_DATA"


@dataclass(frozen=True)
class Split:
    """Rows of a data set: X to be censored, the sensitive columns S, and targets that encoders do not see."""

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


@dataclass(frozen=True)
class ImageSplit:
    """Images of a data set: X (rows, height, width[, channels]), the sensitive columns S, and targets."""

    X: NDArray[np.generic]
    S: pd.DataFrame
    targets: dict[str, pd.Series]

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: NDArray[np.int64]) -> "ImageSplit":
        """Only these images, in this order, numbered from 0."""
        targets = {name: values.iloc[rows].reset_index(drop=True) for name, values in self.targets.items()}
        return ImageSplit(self.X[rows], self.S.iloc[rows].reset_index(drop=True), targets)


def data_homes() -> Iterator[Path]:
    """Folders that may hold data sets: `FAIRVEIL_DATA`, then the user's cache."""
    if os.environ.get(DATA_HOME):
        yield Path(os.environ[DATA_HOME])
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    yield Path(cache) / "fairveil"


def find_data(names: Sequence[str], what: str, source: str) -> Path:
    """The first of these files or folders that exists, in any home; else reports what is missing and its source."""
    for home in data_homes():
        for name in names:
            if (home / name).exists():
                return home / name
    raise DataNotFound(f"{what} was not found. {source} Put it in a folder and set {DATA_HOME} to that folder.")


def check_counts(what: str, found: Mapping[Any, int], expected: Mapping[Any, int]) -> None:
    """Reject data whose label counts are wrong."""
    if dict(found) != dict(expected):
        wrong = sorted(str(key) for key in {*found, *expected} if found.get(key, 0) != expected.get(key, 0))
        raise InputError(
            f"{what} is incomplete or altered: its counts differ from the published ones for {', '.join(wrong)}. "
            "Fetch it again, or pass verify=False to use it as it is."
        )


def sha256(content: bytes) -> str:
    """The checksum that identifies a file."""
    return hashlib.sha256(content).hexdigest()
