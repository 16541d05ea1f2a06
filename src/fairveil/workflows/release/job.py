"""One release of a table: its options, its summary, and the checks before a row is read."""

import hashlib
import json
import math
import os
import secrets
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from fairveil._utils.atomic import sha256_of
from fairveil._utils.errors import InputError
from fairveil._utils.stores import Location, locate
from fairveil.data.columns import shown
from fairveil.data.marginals import ColumnDrift
from fairveil.data.schema import Schema
from fairveil.data.sensitive import Sensitive
from fairveil.data.table_codec import Codec, EncodedRows, HandleUnknown
from fairveil.estimators import FairEncoder, load
from fairveil.estimators.parameters import CUSTOM
from fairveil.objectives.distortion import Distortion, make_distortion
from fairveil.veil import Veil
from fairveil.workflows.reading import NULL_WORDS, TableFile
from fairveil.workflows.writing import is_folder_target, is_formula

#: Copies of a batch in memory at once while it is encoded, drawn and decoded (measured, rounded up).
_COPIES = 8
#: Bytes of a batch with all its copies, and limits of its rows. They depend on nothing but the veil: draws are keyed by
#: batch, and the same release must have the same batches on any machine.
_BATCH_BYTES = 32 * 2**20
_MOST_BATCH, _LEAST_BATCH = 65_536, 1024
_MOST_BUCKETS = 1024
#: For a release of many files: bytes of one in memory, and how many there may be.
_FILE_BYTES, _MOST_FILES = 128 * 2**20, 16_384
#: Batches in one part, where parts are drawn by tasks of a cluster.
SPAN = 16
#: Unfinished work of another format cannot be resumed.
PLAN_FORMAT = 4
#: Releases of fewer rows need a confirmation; below the second number, figures of single rows are not reported.
FEWEST_RELEASED, FEWEST_TOLD = 50, 200
#: A release is refused if it has less than this share of its veil's stated distortion or changed rows.
_LEAST_OF_PROMISED = 0.5
#: Approximate bytes of a released cell in memory.
_CELL_BYTES = 24


@dataclass(frozen=True)
class Options:
    """The options of a release.

    keep_order: rows keep their order, which may reveal information. again: allow rows that were released before to be
    released once more. seed: makes draws reproducible, and reversible by anyone who knows it; for tests. memory:
    megabytes for batches and buckets. remember_order: store the private order of the rows in the ledger, for audits.
    person: a column that identifies the person of a row: equal rows of one person get the same draw. few_rows: allow a
    release of very few rows. unverified: write the release even if it contradicts what the veil states. known: columns
    that an attacker knows of a person, for the card's statement on presence and absence; chosen by default.
    keep_secret: keep the secret of the draws in the ledger; whoever has it can repeat the release. engine: where the
    work runs, "local" or "ray". address: of a running Ray cluster. scratch: a private folder for unfinished work that
    all workers can reach; by default next to the target.
    """

    keep_order: bool = False
    again: bool = False
    resume: bool = False
    seed: int | None = None
    memory: int = 1024
    workers: int = 0
    remember_order: bool = True
    show_progress: bool = True
    person: str | None = None
    few_rows: bool = False
    unverified: bool = False
    known: tuple[str, ...] = ()
    keep_secret: bool = False
    engine: str = "local"
    address: str | None = field(default=None, repr=False)
    scratch: str | None = field(default=None, repr=False)


@dataclass
class ReleaseSummary:
    """The summary of a release.

    distortion: the mean over all rows as written, by kind of column; empty if it cannot be measured. floor: for few
    rows, the part of it that does not depend on the draw. changed: the share of rows in which a category or a bin
    changed. drift: how the distribution of each column of a table changed. original: a keyed digest of the input rows
    in their order. warnings: for the curator. contradictions: where the release contradicts its veil. presence: what
    matching rows tell about people; None if not measured.
    """

    rows: int = 0
    distortion: dict[str, float] = field(default_factory=dict)
    floor: dict[str, float] = field(default_factory=dict)
    changed: float | None = None
    drift: tuple[ColumnDrift, ...] = ()
    original: str = ""
    sha256: str = ""
    neutralised: int = 0
    clipped: dict[str, int] = field(default_factory=dict)
    earlier_releases: int = 0
    overlap: float = 0.0
    warnings: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    presence: str | None = None

    @property
    def total(self) -> float | None:
        """The distortion summed over kinds of column."""
        return sum(self.distortion.values()) if self.distortion else None


def open_veil(path: str | Path) -> FairEncoder:
    """Open a veil that releases data."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no veil {path}." if not path.exists() else f"{path} is not a veil file.")
    encoder = load(path)
    if not isinstance(encoder, FairEncoder):
        raise InputError(f"{path.name} is a classifier, which makes predictions and does not release data.")
    return encoder


@lru_cache(maxsize=4)
def _loaded(veil: bytes) -> FairEncoder:
    """A veil from its bytes, read once per process."""
    encoder: FairEncoder = load(veil)
    return encoder


class TableJob:
    """One release of a table, whatever makes its rows: the columns that are read, written and measured."""

    source: TableFile
    target: Path | Location
    options: Options

    @property
    def schema(self) -> Schema:
        """The columns."""
        raise NotImplementedError  # abstract

    @property
    def sensitive(self) -> Sensitive:
        """S."""
        raise NotImplementedError  # abstract

    @property
    def sees_sensitive(self) -> bool:
        """Whether S is needed to make the rows."""
        raise NotImplementedError  # abstract

    @property
    def handle_unknown(self) -> HandleUnknown:
        """How categories that the schema does not list are read."""
        raise NotImplementedError  # abstract

    @property
    def distortion(self) -> Distortion | None:
        """The distortion measure; None if it is a custom function."""
        raise NotImplementedError  # abstract

    @cached_property
    def goal(self) -> Location:
        """Where the release is written."""
        return locate(self.target)

    @cached_property
    def codec(self) -> Codec:
        """The codec between tables and tensors."""
        return Codec(self.schema, self.handle_unknown)

    def encoded(self, table: pa.Table) -> EncodedRows:
        """The rows of a batch, encoded."""
        return self.codec.encode_rows(table.select([column.name for column in self.schema.seen]))

    @cached_property
    def secret_names(self) -> list[str]:
        """The sensitive columns that the encoder needs."""
        return [column.name for column in self.sensitive.columns] if self.sees_sensitive else []

    @cached_property
    def released_names(self) -> list[str]:
        """The columns written."""
        return [column.name for column in self.schema.released]

    @cached_property
    def columns(self) -> list[str]:
        """The columns read from the input."""
        person = [] if self.options.person is None else [self.options.person]
        return list(dict.fromkeys([*self.released_names, *self.secret_names, *self.sensitive_names, *person]))

    @cached_property
    def sensitive_names(self) -> list[str]:
        """The sensitive columns in the input, whether the encoder sees them or not."""
        return [column.name for column in self.sensitive.columns if column.name in self.source.names]

    @cached_property
    def held_as(self) -> dict[str, str]:
        """How each column of a CSV file is parsed."""
        known = {column.name: column.held_as for column in (*self.schema.columns, *self.sensitive.columns)}
        passed = {column.name for column in self.schema.columns if column.role == "pass" and column.type is None}
        plain = {*passed, self.options.person} - set(self.secret_names)
        return {name: "string" if name in plain else held for name, held in known.items()}

    @cached_property
    def batch_rows(self) -> int:
        """Rows per batch."""
        return min(max(_BATCH_BYTES // self._row_bytes, _LEAST_BATCH), _MOST_BATCH)

    @property
    def _row_bytes(self) -> int:
        return 4 * max(self.schema.layout.width, 1) * _COPIES


@dataclass(frozen=True)
class Job(TableJob):
    """One release: the input, the veil, the target. Pickled, it holds the veil's bytes, and no seed."""

    source: TableFile
    encoder: FairEncoder
    veil_path: Path
    target: Path | Location
    options: Options

    def __getstate__(self) -> dict[str, Any]:
        return {
            "source": self.source, "veil_path": self.veil_path.read_bytes(), "target": self.target,
            "options": replace(self.options, seed=None), "batch_rows": self.batch_rows, "buckets": self.buckets,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        veil = state.pop("veil_path")
        self.__dict__.update(state, veil_path=Path(), encoder=_loaded(veil))

    @property
    def is_folder(self) -> bool:
        """Whether the release is a folder of many files."""
        return is_folder_target(self.goal.name)

    @cached_property
    def span(self) -> int:
        """Batches in one part."""
        return SPAN if self.options.engine == "ray" else 1

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

    @property
    def sensitive(self) -> Sensitive:
        """S as the veil knows it."""
        return self.veil.sensitive

    @property
    def sees_sensitive(self) -> bool:
        """Whether the encoder sees S."""
        return self.veil.sees_sensitive

    @property
    def handle_unknown(self) -> HandleUnknown:
        """How the veil reads categories that the schema does not list."""
        return self.veil.handle_unknown

    @cached_property
    def workers(self) -> int:
        """Number of batches drawn at the same time: one per core, as far as half of the memory allows."""
        fitting = self.options.memory * 2**20 // 2 // (self.batch_rows * self._row_bytes)
        return self.options.workers or max(1, min(os.cpu_count() or 1, fitting))

    @cached_property
    def buckets(self) -> int:
        """Number of buckets that rows are dealt to, so that one bucket fits the memory."""
        if self.options.keep_order:
            return 1
        expected = _CELL_BYTES * len(self.columns) * self.source.expected
        room = self.options.memory * 2**20 // 4
        if self.is_folder:  # one file per bucket
            return min(max(1, math.ceil(expected / min(room, _FILE_BYTES))), _MOST_FILES)
        return min(max(1, math.ceil(expected / room)), _MOST_BUCKETS)

    @cached_property
    def distortion(self) -> Distortion | None:
        """The distortion measure; None if the encoder was fitted with a custom function."""
        named = self.encoder.distortion
        known = isinstance(named, str) and named != CUSTOM
        return make_distortion(named, self.schema.layout, "sampled") if known else None

    def plan(self) -> dict[str, Any]:
        """What must be unchanged for a later run to resume this one; the rows are compared part by part."""
        return {
            "columns": list(self.source.names),
            "veil": sha256_of(self.veil_path),
            "batch_rows": self.batch_rows,
            "buckets": self.buckets,
            "keep_order": self.options.keep_order,
            "seed": self.options.seed,
            "person": self.options.person,
            "keep_secret": self.options.keep_secret,
            "span": self.span,
            "files": len(self.source.files),
            "scratch": self.options.scratch,
            "format": PLAN_FORMAT,
            "private": {"release": secrets.token_hex(8)},
        }


def contradictions(told: ReleaseSummary, encoder: FairEncoder) -> list[str]:
    """Where a release contradicts its veil: more distortion than the budget, or far fewer changes.

    A veil is a file and may be forged, and rows may differ from those it was fitted on. For few rows only the part that
    does not depend on the draw is checked: other figures describe single rows, and publishing only favourable draws
    would reveal information about them.
    """
    found = []
    held = encoder.distortion_
    few = told.rows < FEWEST_TOLD
    measured = told.floor if few else told.distortion
    if measured:
        spent = {**measured, "total": sum(measured.values())}
        budget = encoder.budget_
        limits = budget if isinstance(budget, dict) else {"total": budget}
        found += [
            f"Its distortion ({_kind(name)}) is {spent.get(name, 0.0):.4g}, above the budget of {limit:g}."
            for name, limit in limits.items() if spent.get(name, 0.0) > limit
        ]  # fmt: skip
        if not few and told.total is not None and told.total < _LEAST_OF_PROMISED * held.mean:
            found.append(f"Its distortion is {told.total:.4g}, but the veil states about {held.mean:.4g}.")
    if not few and told.changed is not None and held.changed is not None:
        error = math.sqrt(held.changed * (1.0 - held.changed) / told.rows)
        if told.changed == 0.0 or told.changed < _LEAST_OF_PROMISED * held.changed - 4.0 * error:
            found.append(f"{100 * told.changed:.1f} % of its rows are changed, but the veil states about "
                         f"{100 * held.changed:.1f} %.")  # fmt: skip
    return found


def refuse_contradictions(told: ReleaseSummary, encoder: FairEncoder, options: Options) -> None:
    """Raise for a release that contradicts its veil, unless `unverified` is set."""
    told.contradictions = contradictions(told, encoder)
    if told.contradictions and not options.unverified:
        raise InputError([
            *told.contradictions,
            "Nothing was written. The rows differ from those the veil was fitted on, or the veil is not what it says. "
            "Fit a veil to them, or pass --unverified: the card then says so.",
        ])  # fmt: skip


def refuse_few(rows: int, options: Options, what: str) -> None:
    """Raise for a release of so few rows that its figures would reveal single rows."""
    if rows < FEWEST_RELEASED and not options.few_rows:
        raise InputError(
            f"There are {rows} {what}, fewer than {FEWEST_RELEASED}. Such a small release can reveal single "
            "people to anyone who knows who is in it. Release more rows together, or pass --few-rows to release them "
            "anyway. Nothing was written."
        )


def _kind(name: str) -> str:
    return "all columns" if name == "total" else f"{name} columns"


def plan_digest(plan: dict[str, Any]) -> str:
    """A digest of the plan, by which a finished release is recognised."""
    return hashlib.sha256(json.dumps({**plan, "private": None}).encode()).hexdigest()


def refuse_unmet(encoder: FairEncoder, options: Options) -> None:
    """Raise InputError for a veil whose budget held-out rows did not confirm."""
    if not encoder.distortion_.met and not options.unverified:
        raise InputError("The budget of this veil was not verified on held-out rows (unmet='warn'). Fit one that meets "
                         "its budget, or pass --unverified.")  # fmt: skip


def check_release(job: Job) -> None:
    """Check everything that can be checked before a row is read; reports all problems at once."""
    if job.encoder.release != "sampled":
        raise InputError(
            "This veil releases probabilities, which carry S in their fine structure. Fit one with release='sampled'."
        )
    refuse_unmet(job.encoder, job.options)
    check_columns(job)


def check_columns(job: TableJob) -> None:
    """Check the columns of the input and of the target; reports all problems at once."""
    file = job.source.path.name
    missing = [name for name in job.columns if name not in job.source.names]
    # If columns are missing, the first line may be data instead of a header: then its cells are not shown.
    problems = [
        f"Column {f'number {i + 1}' if missing else repr(name)} of {file} has no role in the schema. Remove it from "
        "the file, or give it a role and fit again."
        for i, name in enumerate(job.source.names)
        if name not in job.schema.names and name not in job.secret_names and name != job.options.person
    ]
    problems += [f"Column {name!r} is missing from {file}." for name in missing]
    problems += [f"The known column {name!r} is not among the released columns." for name in job.options.known
                 if name not in job.released_names]  # fmt: skip
    if job.source.rows == 0:
        problems.append(f"{job.source.path.name} has no rows.")
    if job.goal.suffix.lower() == ".csv":
        problems += [f"A spreadsheet would run the name of column {shown(name)}. Rename it, or write a .parquet file."
                     for name in job.released_names if is_formula(name)]  # fmt: skip
        words = ", ".join(NULL_WORDS[1:])
        problems += [f"Column {column.name!r} has a category that means 'no value' in a CSV file ({words}). Write a "
                     ".parquet file, or rename the category."
                     for column in job.schema.seen if set(column.categories) & set(NULL_WORDS)]  # fmt: skip
    told = [name for name in (c.name for c in job.sensitive.columns) if name in job.released_names]
    problems += [f"The veil would release the sensitive column {name!r}. Fit one that does not." for name in told]
    if problems:
        raise InputError(problems[:20] + ([f"... and {len(problems) - 20} more."] if len(problems) > 20 else []))
