"""One release of a table: what is asked for, what it tells of itself, and what can be known before a row is read."""

import hashlib
import json
import math
import os
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from fairveil.codec import Codec
from fairveil.errors import InputError
from fairveil.estimators import FairEncoder
from fairveil.objectives.distortion import Distortion, make_distortion
from fairveil.randomness import RandomSource, SystemRandom
from fairveil.release.reading import TableFile
from fairveil.schema import Schema
from fairveil.veil import Veil
from fairveil.whole import sha256_of

#: Copies of a batch that are in memory at once while it is encoded, drawn and decoded (measured, rounded up).
_COPIES = 8
_MOST_BATCH, _LEAST_BATCH = 65_536, 1024
_MOST_BUCKETS = 1024
#: Unfinished work of another format cannot be gone on with.
PLAN_FORMAT = 2
#: Of a released cell in memory, about.
_CELL_BYTES = 24


@dataclass(frozen=True)
class Options:
    """How a file is released.

    keep_order: rows stay where they stand, which tells what their order tells. again: rows that were released before
    may be released once more. seed: draws can be repeated, and undone by whoever knows it; for tests. memory: megabytes
    for batches and buckets. remember_order: keep the private order of the rows in the ledger, for audits.
    """

    keep_order: bool = False
    again: bool = False
    resume: bool = False
    seed: int | None = None
    memory: int = 1024
    workers: int = 0
    remember_order: bool = True
    show_progress: bool = True


@dataclass
class Told:
    """What a release tells of itself."""

    rows: int = 0
    distortion: dict[str, float] = field(default_factory=dict)
    measured_rows: int = 0
    sha256: str = ""
    neutralised: int = 0
    clipped: dict[str, int] = field(default_factory=dict)
    earlier_releases: int = 0
    overlap: float = 0.0


@dataclass(frozen=True)
class Job:
    """One release: the input, the veil, the target."""

    source: TableFile
    encoder: FairEncoder
    veil_path: Path
    target: Path
    options: Options

    @cached_property
    def veil(self) -> Veil:
        """The frozen encoder."""
        veil: Veil = self.encoder.veil_
        return veil

    @cached_property
    def schema(self) -> Schema:
        """The columns."""
        assert self.veil.table_schema is not None
        return self.veil.table_schema

    @cached_property
    def codec(self) -> Codec:
        """How tables become tensors."""
        return self.veil.codec

    @cached_property
    def secret_names(self) -> list[str]:
        """The sensitive columns that the encoder must see."""
        return [column.name for column in self.veil.sensitive.columns] if self.veil.sees_sensitive else []

    @cached_property
    def released_names(self) -> list[str]:
        """What is written."""
        return [column.name for column in self.schema.released]

    @cached_property
    def columns(self) -> list[str]:
        """What is read of the input."""
        return [*self.released_names, *(name for name in self.secret_names if name not in self.released_names)]

    @cached_property
    def families(self) -> dict[str, Any]:
        """What each column of a CSV file holds."""
        known = {column.name: column.family for column in (*self.schema.columns, *self.veil.sensitive.columns)}
        passed = {column.name for column in self.schema.columns if column.role == "pass"}
        return {name: "string" if name in passed else family for name, family in known.items()}

    @cached_property
    def workers(self) -> int:
        """Batches that are drawn at the same time."""
        return self.options.workers or max(1, min(os.cpu_count() or 1, 8))

    @cached_property
    def batch_rows(self) -> int:
        """Rows of a batch: as many as the memory holds for all workers."""
        bytes_each = 4 * max(self.schema.layout.width, 1) * _COPIES
        rows = self.options.memory * 2**20 // 2 // (bytes_each * self.workers)
        return int(min(max(rows, _LEAST_BATCH), _MOST_BATCH))

    @cached_property
    def buckets(self) -> int:
        """Into how many parts of the output rows are dealt, so that one fits the memory."""
        if self.options.keep_order:
            return 1
        expected = _CELL_BYTES * len(self.columns) * self.source.expected
        return min(max(1, math.ceil(4 * expected / (self.options.memory * 2**20))), _MOST_BUCKETS)

    @cached_property
    def distortion(self) -> Distortion | None:
        """How far released rows are from the originals; None if the encoder was fitted with a function of its own."""
        named = self.encoder.distortion
        return make_distortion(named, self.schema.layout, "sampled") if isinstance(named, str) else None

    def plan(self, key: str) -> dict[str, Any]:
        """What must be the same for a later run to go on with this one; key: by which rows are hashed."""
        status = self.source.path.stat()
        return {
            "input": [self.source.size, status.st_mtime_ns, list(self.source.names)],
            "veil": sha256_of(self.veil_path),
            "batch_rows": self.batch_rows,
            "buckets": self.buckets,
            "keep_order": self.options.keep_order,
            "seed": self.options.seed,
            "format": PLAN_FORMAT,
            "private": {"release": secrets.token_hex(8), "key": key},
        }


def random_source(options: Options, *place: int) -> RandomSource:
    """The randomness of one batch or bucket: the operating system's, unless a seed was asked for."""
    if options.seed is None:
        return SystemRandom()
    digest = hashlib.sha256(repr((options.seed, *place)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def plan_digest(plan: dict[str, Any]) -> str:
    """What was asked for, as one number: a release that is there is known by it."""
    return hashlib.sha256(json.dumps({**plan, "private": None}).encode()).hexdigest()


def check_release(job: Job) -> None:
    """Everything that can be known before a row is read; all problems at once."""
    if job.encoder.release != "sampled":
        raise InputError(
            "This veil releases probabilities, which carry S in their fine structure. Fit one with release='sampled'."
        )
    file = job.source.path.name
    missing = [name for name in job.columns if name not in job.source.names]
    # Where columns are missing the first line may be no header but data: then its cells are not shown.
    problems = [
        f"Column {f'number {i + 1}' if missing else repr(name)} of {file} has no role in the veil's schema. Remove it "
        "from the file, or give it a role and fit again."
        for i, name in enumerate(job.source.names)
        if name not in job.schema.names and name not in job.secret_names
    ]
    problems += [f"Column {name!r} is missing from {file}." for name in missing]
    if job.source.rows == 0:
        problems.append(f"{job.source.path.name} has no rows.")
    if problems:
        raise InputError(problems[:20] + ([f"... and {len(problems) - 20} more."] if len(problems) > 20 else []))
