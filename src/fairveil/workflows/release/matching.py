"""Release by matching: a table and its schema to a publication, without a veil.

The whole table is read: rows exchange values with each other (`fairveil.matching.publication`). The ledger lies next to
the schema, and belongs to it by the SHA-256 of the schema's file.
"""

import secrets
import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fairveil._utils.atomic import put_in_place, refuse_overwriting, sha256_of
from fairveil._utils.errors import ClippedWarning, InputError
from fairveil._utils.progress import progress
from fairveil._utils.randomness import KeyedStream, ReleaseSecret
from fairveil._utils.stores import is_url
from fairveil.auditing import Certificate
from fairveil.data.batch import refuse_other_types
from fairveil.data.marginals import collapse_message
from fairveil.data.schema import Schema
from fairveil.data.sensitive import Sensitive, describe_sensitive
from fairveil.data.table_codec import HandleUnknown
from fairveil.data.written import as_written
from fairveil.matching.exchange import check_limits, publication_certificate
from fairveil.matching.publication import People, Published, number_of_chunks, publish, refuse_exact_numbers
from fairveil.objectives.distortion import KINDS, Distortion, make_distortion
from fairveil.workflows.inspect import read_schema
from fairveil.workflows.many_files import open_tables
from fairveil.workflows.reading import TableFile
from fairveil.workflows.release.card import Card, card_path, matching_card, write_card
from fairveil.workflows.release.drawing import Read, clipped_numbers
from fairveil.workflows.release.finish import hand_over
from fairveil.workflows.release.job import (
    FEWEST_TOLD,
    Options,
    ReleaseSummary,
    TableJob,
    check_columns,
    plan_digest,
    refuse_few,
)
from fairveil.workflows.release.ledger import Ledger
from fairveil.workflows.release.presence import PresenceCount
from fairveil.workflows.release.secret import abandon, release_secret
from fairveil.workflows.release.sketch import Sketch
from fairveil.workflows.release.workspace import workspace
from fairveil.workflows.writing import GROUP_ROWS, TableWriter, check_target

#: Approximate bytes of memory per cell: the table as read, as released and as shuffled.
_CELL_BYTES = 60
#: Names of schemas end in one of these: an audit tells the ledger of a schema from that of a veil by them.
SCHEMA_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(frozen=True)
class MatchingJob(TableJob):
    """One release by matching. given: the schema, in the order of the file."""

    source: TableFile
    given: Schema
    target: Path
    options: Options

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self.given

    @cached_property
    def sensitive(self) -> Sensitive:
        """The columns with that role."""
        return Sensitive(tuple(column for column in self.given.columns if column.role == "sensitive"))

    @property
    def sees_sensitive(self) -> bool:
        """Rows of different groups exchange values."""
        return True

    @property
    def handle_unknown(self) -> HandleUnknown:
        """Rare categories are read as the most frequent one."""
        return "most_frequent"

    @cached_property
    def distortion(self) -> Distortion:
        """The default distortion."""
        return make_distortion("auto", self.schema.layout, "sampled")

    @classmethod
    def of(cls, source: TableFile, schema: Path, target: Path, options: Options) -> "MatchingJob":
        """Open a schema; a file of the same columns may have them in another order."""
        found = read_schema(schema)
        if not any(column.role == "sensitive" for column in found.columns):
            raise InputError(f"Nothing to hide: give a column of {schema.name} the role 'sensitive'.")
        known = [found[name] for name in source.names if name in found.names]
        absent = [column for column in found.columns if column.name not in source.names]
        return cls(source, Schema((*known, *absent), found.dependencies), target, options)


def release_by_matching(
    source: str | Path, schema: str | Path, target: str | Path, options: Options, *,
    certified: float | None = 0.05, budget: float | None = None,
) -> Card:  # fmt: skip
    """Write a publication of a table, and its card; returns the card. certified, budget: as for `fairveil.exchange`."""
    check_limits(certified, budget)
    if is_url(schema) or is_url(target):
        raise InputError("A release by matching needs its schema and its target on this machine.")
    schema, target = Path(schema), check_target(Path(target))
    if not schema.is_file():
        raise InputError(f"There is no schema {schema}.")
    if schema.suffix.lower() not in SCHEMA_SUFFIXES:
        raise InputError(f"The name of the schema {schema.name!r} must end in {', '.join(SCHEMA_SUFFIXES)}.")
    file = open_tables(source)
    card = card_path(target)
    refuse_overwriting(
        {"release": target, "card": card, "card's text": card.with_suffix(".md")},
        {"input": None if is_url(source) else Path(source), "schema": schema},
    )
    job = MatchingJob.of(file, schema, target, options)
    if file.kind == "parquet":  # CSV cells are read by the schema
        refuse_other_types(job.schema, file.names, file.types)
    check_columns(job)
    refuse_exact_numbers(job.schema)
    ledger = Ledger.of(schema)
    ledger.prepare()
    name = secrets.token_hex(8)
    plan = {"schema": sha256_of(schema), "certified": certified, "budget": budget, "columns": list(file.names),
            "seed": options.seed, "keep_secret": options.keep_secret, "private": {"release": name}}  # fmt: skip
    with (
        workspace(target, plan, resume=False, abandoned=partial(abandon, ledger)) as (folder, _),
        warnings.catch_warnings(),
        release_secret(ledger, name, options, resumed=False) as secret,
    ):
        warnings.simplefilter("ignore", ClippedWarning)  # counted, and reported on the card
        rows = _read(job, ledger)
        refuse_few(rows.table.num_rows, options, "rows")
        if not options.again:
            ledger.refuse_repeated(rows.sketch, name, "rows")
        found, certificate = _published(job, rows, secret, certified, budget)
        return _written(job, ledger, name, plan, rows, found, certificate, secret, folder, budget, schema)


@dataclass(frozen=True)
class _Rows:
    """The input: all rows, their digest in their order, their sketch, and how many numbers are out of range."""

    table: pa.Table
    digest: bytes
    sketch: Sketch
    clipped: dict[str, int]


def _read(job: MatchingJob, ledger: Ledger) -> _Rows:
    tables, digest, sketch, clipped = [], np.zeros(2, dtype=np.uint64), Sketch.empty(), dict[str, int]()
    _refuse_large(job, job.source.expected)
    for place, table in job.source.placed_batches(job.columns, job.held_as, job.batch_rows):
        read = Read.of(job, place, table, ledger.key)
        digest, sketch = digest + read.digest, sketch + Sketch.of(read.hashes)
        for name, count in clipped_numbers(job, table).items():
            clipped[name] = clipped.get(name, 0) + count
        tables.append(table)
    if not tables:
        raise InputError(f"{job.source.path.name} has no rows.")
    return _Rows(pa.concat_tables(tables).combine_chunks(), digest.tobytes(), sketch, clipped)


def _refuse_large(job: MatchingJob, rows: int) -> None:
    needed = _CELL_BYTES * rows * len(job.columns) // 2**20
    if needed > job.options.memory:
        raise InputError(
            f"{job.source.path.name} needs about {needed:,} MB of memory, because all rows are matched with each "
            f"other, and --memory allows {job.options.memory:,}. Raise it, release the file in parts, or fit a veil."
        )


def _published(
    job: MatchingJob, rows: _Rows, secret: ReleaseSecret, certified: float | None, budget: float | None
) -> tuple[Published, Certificate]:
    people = _people(job, rows.table)
    chunks = number_of_chunks(people.parts)
    with progress(chunks * (2 if budget is None else 4), "Exchanging", job.options.show_progress) as report:
        done = 0

        def step(note: str) -> None:
            nonlocal done
            done += 1
            report(done, note)

        # The stream depends on the rows, too: other rows with the same secret get unrelated draws.
        source = KeyedStream(secret.key("exchange"), rows.digest)
        found = publish(rows.table, job.schema, people, certified=certified, budget=budget, source=source, step=step)
    return found, publication_certificate(found, people)


def _people(job: MatchingJob, table: pa.Table) -> People:
    secret = table.select(job.sensitive_names)
    given = {column.name: column for column in job.sensitive.columns}
    described = describe_sensitive(secret, discrete=True, given=given)
    groups = described.classes_of(described.merged(secret)).numpy()
    names = [" & ".join(map(str, values)) for values in described.joint_values()]
    return People(groups, np.zeros(len(groups), dtype=np.int64), names)


def _written(
    job: MatchingJob, ledger: Ledger, name: str, plan: dict[str, Any], rows: _Rows, found: Published,
    certificate: Certificate, secret: ReleaseSecret, folder: Path, budget: float | None, schema: Path,
) -> Card:  # fmt: skip
    """Write the shuffled rows, then update the ledger, then publish."""
    order = np.argsort(KeyedStream(secret.key("shuffle")).keys(found.rows.num_rows), kind="stable")
    presence = PresenceCount.of(job, found.rows.num_rows)
    finished = folder / f"finished{job.target.suffix.lower()}"
    told = ReleaseSummary(
        rows=found.rows.num_rows, distortion=dict(zip(KINDS, found.distortion.tolist(), strict=True)),
        changed=found.changed, drift=found.drift, original=rows.digest.hex(), clipped=rows.clipped,
    )  # fmt: skip
    if told.rows >= FEWEST_TOLD and (message := collapse_message(found.drift)):
        told.warnings.append(message)
    made = Card()

    def before_naming(told: ReleaseSummary) -> None:
        made.update(matching_card(job.target.name, job.schema, sha256_of(schema), told, job.options, budget, found,
                                  certificate))  # fmt: skip
        write_card(card_path(job.target), made)

    try:
        with TableWriter(finished, job.target.suffix.lower(), job.schema) as writer:
            for start in range(0, len(order), GROUP_ROWS):
                some = as_written(found.rows.take(pa.array(order[start : start + GROUP_ROWS])), job.schema)
                writer.write(some)
                if presence is not None:
                    presence.add(some)
        if job.options.remember_order:
            with ledger.order_file(name) as places:
                places.write(order.astype(np.int64).tobytes())
        told.neutralised, told.sha256 = writer.neutralised, sha256_of(finished)
        told.presence = None if presence is None else presence.told()
    except BaseException:
        ledger.forget_order(name)
        raise
    publish_file = partial(put_in_place, finished, job.target)
    hand_over(told, rows.sketch, publish_file, ledger, name, plan_digest(plan), job.options, "rows", before_naming)
    return made
