"""Tables on disk: read for fitting, released, and paired with their releases for an audit."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil._utils.errors import ClippedWarning, InputError
from fairveil._utils.randomness import SystemRandom
from fairveil._utils.stores import locate
from fairveil.data.batch import refuse_other_types
from fairveil.data.columns import family_of
from fairveil.data.kinds import with_guessed_type
from fairveil.data.schema import Schema
from fairveil.data.sensitive import merge_groups, rare_values
from fairveil.data.types import arrow_type, from_numbers, stands_for_number, to_numbers
from fairveil.data.written import as_written
from fairveil.estimators import FairEncoder
from fairveil.objectives.distortion import KINDS
from fairveil.objectives.released import ReleasedBatch
from fairveil.workflows.inspect import inspect_rows, read_schema
from fairveil.workflows.many_files import digest_of, open_tables
from fairveil.workflows.protocol import Data, Finish, Pair, Source, Wanted
from fairveil.workflows.reading import Place, TableFile, is_text
from fairveil.workflows.recipe import Recipe
from fairveil.workflows.release.job import Job, Options, ReleaseSummary, TableJob, open_veil
from fairveil.workflows.release.known import Known
from fairveil.workflows.release.ledger import FittedInput
from fairveil.workflows.release.matching import SCHEMA_SUFFIXES, MatchingJob
from fairveil.workflows.release.tables import OriginalDigest, fitted_input, release_table
from fairveil.workflows.release.together import together
from fairveil.workflows.sampling import MOST_ROWS, sample_rows
from fairveil.workflows.writing import check_release_target, neutralised

_BATCH = 65_536


@dataclass(frozen=True)
class TableSource:
    """A CSV or Parquet file, or many that form one table."""

    file: TableFile

    @classmethod
    def at(cls, path: str | Path) -> "TableSource":
        """Open a file, or many."""
        return cls(open_tables(path))

    @property
    def path(self) -> Path:
        """The path."""
        return self.file.path

    def digest(self) -> str:
        """The SHA-256 of its content."""
        return digest_of(self.file)

    def data(self, recipe: Recipe, seed: int, more: Sequence[str] = ()) -> Data:
        """The rows for fitting, with the schema, in one pass over the file; raises if a column has no role."""
        absent = [name for name in more if name not in self.file.names]
        if absent:
            raise InputError([f"{self.path.name} has no column {name!r} to be a target." for name in absent])
        if recipe.schema is not None:
            schema = schema_for(self.file, recipe)
            sample = sample_rows(self.file, _used(schema, more), _held_as(schema), recipe.rows, seed)
            table, places = sample.table, sample.places
        else:
            readable = [name for name in self.file.names if name not in self.file.nested]
            sample = sample_rows(self.file, readable, {}, max(recipe.rows, MOST_ROWS), seed)
            text, places = sample.table, sample.places
            schema = schema_for(self.file, recipe, text, sample.rows)
            if text.num_rows > recipe.rows:
                chosen = np.sort(np.random.default_rng(seed).choice(text.num_rows, recipe.rows, replace=False))
                text, places = text.take(pa.array(chosen)), places[chosen]
            table = self.file.typed(text.select(_used(schema, more)), _held_as(schema))
        sensitive = {column.name: column for column in schema.columns if column.role == "sensitive"}
        rare = rare_values(merge_groups(table.select(list(sensitive)), sensitive))
        if rare:
            raise InputError(rare)
        # Numbers that represent dates are converted back: an estimator compares types with the schema's.
        table = as_told(table, {column.name: column.type for column in schema.columns})
        return Data(table, None, schema, places, sample.rows)

    def release(self, encoder: FairEncoder, veil: Path, target: str | Path, options: Options, finish: Finish) -> None:
        """Write a censored copy."""
        if not isinstance(encoder.veil_.schema, Schema):
            raise InputError("This veil was fitted to images: give a folder of them.")
        if self.file.kind == "parquet":  # CSV cells are read by the schema
            refuse_other_types(encoder.veil_.schema, self.file.names, self.file.types)
        goal = check_release_target(locate(target))
        job = Job(self.file, encoder, veil, goal.local or goal, options)

        def named(told: ReleaseSummary) -> None:
            finish(told, together(job, told.earlier_releases + 1) if told.earlier_releases else None)

        release_table(job, named)

    def seen_by(self, encoder: FairEncoder, veil: Path, fitted: NDArray[np.bool_], key: bytes) -> FittedInput:
        """What a ledger records about the rows of this file, some of which the encoder was fitted on."""
        return fitted_input(Job(self.file, encoder, veil, veil, Options()), fitted, key)

    def pair(self, release: Source, known: Known | None, wanted: Wanted) -> Pair:
        """The rows of a release paired with the rows of this file from which it was made; each file is read once."""
        if not isinstance(release, TableSource):
            raise InputError(f"{release.path} is a folder, but {self.path.name} is a table. Give two of the same kind.")
        absent = [name for name in wanted.columns if name not in self.file.names]
        if absent:
            raise InputError([f"{self.path.name} has no column {name!r}." for name in absent])
        after, before = release.file, self.file
        shared = [name for name in after.names if name in before.names]
        columns = list(dict.fromkeys([*shared, *wanted.columns]))
        found = _sampled(after, before, columns) if known is None else _known_rows(after, before, columns, known)
        truth = found.truth
        hidden = {*wanted.sensitive, wanted.person}
        return Pair(
            found.released,
            truth.select(list(wanted.sensitive)),
            {name: truth[name] for name in wanted.targets},
            truth.select([name for name in shared if name not in hidden]) if shared else None,
            None if wanted.person is None else truth[wanted.person],
            found.fitted,
            # A release with persons repeats the draws of their equal rows, which a further draw would not.
            found.draw if wanted.person is None else None,
            _all_rows(after, shared, found.released) if found.released.num_rows >= MOST_ROWS else None,
        )


def _all_rows(file: TableFile, columns: Sequence[str], sample: pa.Table) -> Iterator[pa.Table]:
    """All rows of a file in batches, with the types of a sample of them; dates, times and decimals as numbers."""
    families = {name: family_of(sample[name].type) for name in columns}
    moments = [name for name in columns if stands_for_number(sample[name].type)]
    held_as = {name: family for name, family in families.items() if family is not None and name not in moments}
    for table in file.batches(columns, held_as, _BATCH):
        if file.kind == "csv":
            table = _with(table, pa.table({name: to_numbers(with_guessed_type(table[name])) for name in moments}))
        yield table


def schema_for(file: TableFile, recipe: Recipe, text: pa.Table | None = None, rows: int = 0) -> Schema:
    """The schema of a file with the sensitive columns marked; every column must have a role.

    text, rows: rows to propose a schema from, if the recipe has none, and how many rows the file has.
    """
    if recipe.schema is not None:
        schema = read_schema(recipe.schema)
        for name in recipe.sensitive:
            schema = schema.edit(name, role="sensitive")
    else:
        assert text is not None
        inspection = inspect_rows(file, text, rows, recipe.sensitive)
        undecided = [f"Column {f.column.name!r} has {note}" for f in inspection.found if f.column.role is None
                     for note in f.notes[-1:]]  # fmt: skip
        # The curator decides whether to merge groups, by editing or accepting a schema.
        undecided += [f"The sensitive column {f.column.name!r} has {f.notes[0]}" for f in inspection.found
                      if f.column.role == "sensitive" and f.column.rare]  # fmt: skip
        if undecided:
            advice = f"Run: fairveil inspect {file.path.name} -o schema.yaml, decide, and pass --schema schema.yaml."
            raise InputError([*undecided, advice])
        schema = inspection.schema()
    problems = [f"Column {name!r} of {file.path.name} has no role: it is not in the schema." for name in file.names
                if name not in schema.names]  # fmt: skip
    problems += [f"The schema has a column {column.name!r}, which {file.path.name} lacks." for column in schema.columns
                 if column.role != "drop" and column.name not in file.names]  # fmt: skip
    if not any(column.role == "sensitive" for column in schema.columns):
        problems.append("Nothing to hide: name a column with --sensitive, or give one that role in the schema.")
    if problems:
        raise InputError(problems)
    # In the order of the file, which is also the order of the release.
    return Schema(tuple(schema[name] for name in file.names), schema.dependencies)


def _used(schema: Schema, more: Sequence[str]) -> list[str]:
    """The columns read for fitting."""
    used = [column.name for column in schema.columns if column.role != "drop"]
    return [*used, *(name for name in more if name not in used)]


def _held_as(schema: Schema) -> dict[str, str]:
    return {column.name: column.held_as for column in schema.columns}


def as_told(table: pa.Table, types: Mapping[str, str | None]) -> pa.Table:
    """Convert numbers that represent dates, times or decimals back to these types."""
    return pa.table({
        name: from_numbers(table[name], arrow_type(kind)) if (kind := types.get(name)) else table[name]
        for name in table.column_names
    })  # fmt: skip


@dataclass(frozen=True)
class _Matched:
    """Rows of a release and the rows they were made from. fitted, draw: as in `Pair`."""

    released: pa.Table
    truth: pa.Table
    fitted: NDArray[np.bool_] | None = None
    draw: Callable[[NDArray[np.int64]], pa.Table] | None = None


def _sampled(after: TableFile, before: TableFile, columns: Sequence[str]) -> _Matched:
    """The same sample of rows from two files in the same order."""
    released = sample_rows(after, after.names, {}, MOST_ROWS, seed=0)
    truth = sample_rows(before, columns, {}, MOST_ROWS, seed=0)
    if released.rows != truth.rows:
        raise InputError(_UNEQUAL.format(after.path.name, before.path.name))
    return _Matched(_guessed(after, released.table), _guessed(before, truth.table))


_UNEQUAL = "{} and {} do not have the same number of rows."


def _known_rows(after: TableFile, before: TableFile, columns: Sequence[str], known: Known) -> _Matched:
    """Rows of a release in a ledger, and the rows from which they were made.

    Raises if the original holds other rows than those of the release, or in another order: the ledger holds a digest of
    them, and the distance of the release from them.
    """
    job = _job_of(before, after, known)
    if any(name not in before.names for name in job.columns):
        raise InputError(_OTHER_ROWS.format(before.path.name, after.path.name))
    rows = known.entry.rows
    everything = rows <= MOST_ROWS
    some = np.arange(rows) if everything else np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
    held_as = {name: held for name, held in job.held_as.items() if name not in _passed(job.schema)}
    digest = OriginalDigest(job, known.ledger.key)
    wanted = list(dict.fromkeys([*columns, *job.columns]))
    try:
        truth, found = take_from(before, wanted, known.order[some], held_as, digest.add)
    except InputError as error:
        raise InputError([_OTHER_ROWS.format(before.path.name, after.path.name), *error.problems]) from None
    if digest.hex() != known.entry.original:
        raise InputError(_OTHER_ROWS.format(before.path.name, after.path.name))
    released, count = take_from(after, after.names, some, held_as)
    if count != rows or found != rows:
        raise InputError(_UNEQUAL.format(after.path.name, before.path.name))
    if known.entry.distortion and job.distortion is not None:
        _refuse_other_distortion(known, job, after, released, truth)
    fitted, draw = known.fitted(some), _further_draws(job, truth) if isinstance(job, Job) else None
    truth = _with(truth, job.sensitive.merged(truth.select(job.sensitive_names)))
    types = {column.name: column.type for column in (*job.schema.columns, *job.sensitive.columns)}
    made, origin = (_guessed(file, as_told(table, types), set(held_as))
                    for file, table in ((after, released), (before, truth.select(list(columns)))))  # fmt: skip

    unchanged = {column.name for column in job.schema.columns if column.role in ("keep", "pass")}

    def draw_again(chosen: NDArray[np.int64]) -> pa.Table:
        assert draw is not None
        again, same = draw(chosen), made.take(pa.array(chosen))
        if after.kind == "csv":
            again, _ = neutralised(again)
        return pa.table({
            field.name: same[field.name] if field.name in unchanged else again[field.name].cast(field.type)
            for field in made.schema
        })  # fmt: skip

    return _Matched(made, origin, fitted, None if draw is None else draw_again)


def _job_of(before: TableFile, after: TableFile, known: Known) -> TableJob:
    """The job that made a release: by a veil, or by matching with a schema."""
    if known.veil.suffix.lower() in SCHEMA_SUFFIXES:
        return MatchingJob.of(before, known.veil, after.path, Options())
    return Job(before, open_veil(known.veil), known.veil, after.path, Options())


def _further_draws(job: Job, rows: pa.Table) -> Callable[[NDArray[np.int64]], pa.Table]:
    """Draws of some of these input rows by the veil, as a release would hold them."""

    def draw(chosen: NDArray[np.int64]) -> pa.Table:
        some = rows.take(pa.array(chosen))
        secret = some.select(job.secret_names) if job.secret_names else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClippedWarning)
            encoded = job.encoded(some)
        drawn = job.veil.apply_to(some.select(job.released_names), encoded, secret, SystemRandom())[0]
        return as_written(drawn, job.schema)

    return draw


def _with(table: pa.Table, columns: pa.Table) -> pa.Table:
    """A table with some of its columns replaced."""
    return pa.table({name: (columns if name in columns.column_names else table)[name] for name in table.column_names})


_OTHER_ROWS = (
    "{} is not the table from which {} was made, or its rows were changed or sorted since. Give the file that was "
    "released. Nothing was written."
)


def _passed(schema: Schema) -> set[str]:
    return {column.name for column in schema.columns if column.role == "pass" and column.type is None}


def _refuse_other_distortion(
    known: Known, job: TableJob, after: TableFile, released: pa.Table, truth: pa.Table
) -> None:
    """Raise if the distortion between the rows differs from the ledger's, for any kind of column."""
    assert job.distortion is not None
    seen = [column.name for column in job.schema.seen]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClippedWarning)
        written = job.encoded(_without_apostrophes(released.select(seen))).original
        exact = job.encoded(truth.select(seen)).original
    parts = job.distortion.realised(ReleasedBatch(written, written[:, job.schema.layout.grouped]), exact).double()
    for kind, spent in zip(KINDS, parts.T, strict=True):
        expected, found = known.entry.distortion[kind], float(spent.mean())
        error = float(spent.std()) / math.sqrt(len(spent)) if len(spent) < known.entry.rows else 0.0
        if abs(found - expected) > 5.0 * error + 1e-3 * (0.01 + expected):
            raise InputError(
                f"The distortion between {after.path.name} and {job.source.path.name} ({kind} columns) is {found:.4g}, "
                f"but the ledger states {expected:.4g}: the rows do not match. Nothing was written."
            )


def _without_apostrophes(table: pa.Table) -> pa.Table:
    """Text without the apostrophe that keeps spreadsheets from executing it."""
    return pa.table({
        name: pc.replace_substring_regex(table[name], r"^'(\s*[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}])", r"\1")
        if is_text(table[name].type) else table[name]
        for name in table.column_names
    })  # fmt: skip


def take_from(
    file: TableFile,
    columns: Sequence[str],
    places: NDArray[np.int64],
    held_as: Mapping[str, str] | None = None,
    see: Callable[[Place, pa.Table], Any] = lambda place, table: None,
) -> tuple[pa.Table, int]:
    """The rows of a file at these positions, in this order, and how many rows it has.

    held_as: how columns of CSV files are parsed; text by default. see: is called with all rows, table by table.
    """
    wanted = np.argsort(places, kind="stable")
    ordered = places[wanted]
    found, start = [], 0
    for place, table in file.placed_batches(columns, held_as or {}, _BATCH):
        see(place, table)
        low, high = np.searchsorted(ordered, [start, start + table.num_rows])
        found.append(table.take(pa.array(ordered[low:high] - start)))
        start += table.num_rows
    if not found or (len(ordered) and ordered[-1] >= start):
        raise InputError(f"{file.path.name} has fewer rows than the release was made from.")
    back = np.empty_like(wanted)
    back[wanted] = np.arange(len(wanted))
    return pa.concat_tables(found).take(pa.array(back)).combine_chunks(), start


def _guessed(file: TableFile, table: pa.Table, known: set[str] | None = None) -> pa.Table:
    """Infer the types of CSV columns from their cells, except known ones; for Parquet, use the types in the file."""
    if file.kind == "parquet":
        types = {name: str(kind) for name, kind in file.types.items() if name not in (known or ())}
        return as_told(table, types)
    return pa.table({
        name: table[name] if name in (known or ()) else with_guessed_type(table[name]) for name in table.column_names
    })  # fmt: skip
