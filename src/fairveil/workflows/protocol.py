"""The protocol of what fit, release and audit take: a table on disk, or a folder of images."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from fairveil.data.schema import Schema
from fairveil.estimators import FairEncoder
from fairveil.workflows.recipe import Recipe
from fairveil.workflows.release.job import Options, ReleaseSummary
from fairveil.workflows.release.known import Known

#: Called when a release is complete, before it gets its name; with what it tells together with earlier releases.
Finish = Callable[[ReleaseSummary, dict[str, Any] | None], None]


@dataclass(frozen=True)
class Wanted:
    """What an audit needs of the original beside the released columns. person: says whose row it is."""

    sensitive: tuple[str, ...]
    targets: tuple[str, ...] = ()
    person: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """By name, each once."""
        return tuple(dict.fromkeys([*self.sensitive, *self.targets, *([] if self.person is None else [self.person])]))


@dataclass(frozen=True)
class Pair:
    """Released rows, and what is known of each of them."""

    released: Any
    secrets: pa.Table
    targets: Mapping[str, pa.ChunkedArray]
    original: Any
    clusters: pa.ChunkedArray | None = None


@dataclass(frozen=True)
class Data:
    """What an encoder is fitted on: a table that holds S, or images with S beside them."""

    x: Any
    secret: pa.Table | None
    schema: Schema | None
    rows: int


class Source(Protocol):
    """A table on disk, or a folder of images."""

    @property
    def path(self) -> Path:
        """Where it lies."""
        ...

    def digest(self) -> str:
        """A SHA-256 of its content."""
        ...

    def data(self, recipe: Recipe, seed: int, more: Sequence[str] = ()) -> Data:
        """The rows to learn from. more: columns to be read beside those of the schema."""
        ...

    def release(self, encoder: FairEncoder, veil: Path, target: Path, options: Options, finish: Finish) -> None:
        """Write a censored copy."""
        ...

    def pair(self, release: "Source", known: Known | None, wanted: Wanted) -> Pair:
        """The rows of a release beside those of this source, from which it was made."""
        ...
