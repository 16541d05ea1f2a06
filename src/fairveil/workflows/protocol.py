"""The protocol of inputs to fit, release and audit: a table on disk, or a folder of images."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairveil.data.schema import Schema
from fairveil.estimators import FairEncoder
from fairveil.workflows.recipe import Recipe
from fairveil.workflows.release.job import Options, ReleaseSummary
from fairveil.workflows.release.known import Known
from fairveil.workflows.release.ledger import FittedInput

#: Called when a release is complete, before it gets its name; with its leakage together with earlier releases.
Finish = Callable[[ReleaseSummary, dict[str, Any] | None], None]


@dataclass(frozen=True)
class Wanted:
    """What an audit needs of the original besides the released columns. person: the column that identifies a person."""

    sensitive: tuple[str, ...]
    targets: tuple[str, ...] = ()
    person: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All names, each once."""
        return tuple(dict.fromkeys([*self.sensitive, *self.targets, *([] if self.person is None else [self.person])]))


@dataclass(frozen=True)
class Pair:
    """Released rows, with the true values for each of them.

    fitted: which of them the encoder was fitted on; None if the ledger does not say. draw: another release of some
    of these rows by the same veil; None if it is not available. whole_release: all rows of the release, in batches, if
    `released` is a sample of them.
    """

    released: Any
    secrets: pa.Table
    targets: Mapping[str, pa.ChunkedArray]
    original: Any
    clusters: pa.ChunkedArray | None = None
    fitted: NDArray[np.bool_] | None = None
    draw: Callable[[NDArray[np.int64]], Any] | None = None
    whole_release: Iterable[pa.Table] | None = None


@dataclass(frozen=True)
class Data:
    """The input for fitting: a table that contains S, or images with a separate S.

    places: the positions of these rows in the source, which has `total` rows.
    """

    x: Any
    secret: pa.Table | None
    schema: Schema | None
    places: NDArray[np.int64]
    total: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.places)


class Source(Protocol):
    """A table on disk, or a folder of images."""

    @property
    def path(self) -> Path:
        """The path."""
        ...

    def digest(self) -> str:
        """A SHA-256 of its content."""
        ...

    def data(self, recipe: Recipe, seed: int, more: Sequence[str] = ()) -> Data:
        """The rows for fitting. more: columns to read in addition to those of the schema."""
        ...

    def release(self, encoder: FairEncoder, veil: Path, target: str | Path, options: Options, finish: Finish) -> None:
        """Write a censored copy."""
        ...

    def seen_by(self, encoder: FairEncoder, veil: Path, fitted: NDArray[np.bool_], key: bytes) -> FittedInput:
        """What a ledger records about the rows of this source, some of which the encoder was fitted on."""
        ...

    def pair(self, release: "Source", known: Known | None, wanted: Wanted) -> Pair:
        """The rows of a release paired with the rows of this source from which it was made."""
        ...
