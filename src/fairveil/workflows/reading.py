"""Tables on disk, of any size, read in batches. Error messages never show a data value.

CSV cells are read as text and converted here, as the schema states: arrow's own conversion guesses types from the
first rows, and its errors show the cell.
"""

import csv
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fairveil._utils.errors import InputError, rows_named
from fairveil._utils.stores import Location, StoreError, is_url, locate
from fairveil.data.columns import name_problem, shown
from fairveil.data.frames import plain_column
from fairveil.data.kinds import from_text
from fairveil.data.types import stands_for_number

Kind = Literal["csv", "parquet"]

#: With more columns, rows and columns are probably swapped.
MOST_COLUMNS = 2000
#: Bytes of a CSV file parsed at once; no row may be longer.
_BLOCK = 8 * 2**20
#: Maximum bytes of a cell: a longer one is a document, or caused by an unclosed quote.
_LONGEST = 2**16
#: For Parquet files: rows read at once, maximum bytes of text per column in these rows, and the maximum ratio of a
#: large column's claimed size to its compressed size.
_PARQUET_ROWS, _MOST_TEXT, _MOST_RATIO = 16_384, 2**28, 1000
#: Limits for a Parquet footer: bytes of its strings, and entries of its lists.
_MOST_THRIFT = 2**24
#: Bytes read to detect the kind of a file.
_HEAD = 2**20
#: Cells of a CSV file that mean "no value".
NULL_WORDS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_FOREIGN = {
    b"\x1f\x8b": "compressed by gzip",
    b"PK\x03\x04": "a zip archive (perhaps a spreadsheet)",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"BZh": "compressed by bzip2",
    b"\xfd7zXZ": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"ARROW1": "an Arrow file",
    b"\x89PNG": "an image",
    b"%PDF": "a PDF",
}


#: Places of rows are numbers: that of the file in the upper bits, that of the row in the lower ones.
_ROW_BITS = 40


@dataclass(frozen=True)
class Place:
    """Where a batch begins: the number of its file, and its first row in that file."""

    file: int
    row: int

    @property
    def start(self) -> int:
        """The place of the first row as one number. In a single file it is the row."""
        return (self.file << _ROW_BITS) + self.row


def file_and_row(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The file and the row of places that are single numbers."""
    return places >> _ROW_BITS, places & ((1 << _ROW_BITS) - 1)


@dataclass(frozen=True)
class TableFile:
    """A readable CSV or Parquet file, or many files of one kind that form one table.

    rows: the number of rows, if the file states it; expected: an estimate. nested: the types of columns that do not
    hold one plain value per row; they cannot be read. types: of Parquet columns whose values are converted to numbers.
    location: where the file is, if not at `path` on this machine. groups: the rows of each row group of a Parquet file.
    fixed: columns that are not in the file, with the same text in every row. pieces: the files of a table of many.
    """

    path: Path
    kind: Kind
    names: tuple[str, ...]
    size: int
    rows: int | None
    expected: int
    nested: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    location: Location | None = None
    groups: tuple[int, ...] = ()
    fixed: Mapping[str, str | None] = field(default_factory=dict)
    pieces: "tuple[TableFile, ...]" = ()

    @property
    def files(self) -> "tuple[TableFile, ...]":
        """All files of the table; for a single file, this one."""
        return self.pieces or (self,)

    def placed_batches(
        self, columns: Sequence[str], held_as: Mapping[str, str], rows: int
    ) -> Iterator[tuple[Place, pa.Table]]:
        """The batches of all files with their places. No batch has rows of two files."""
        for number, file in enumerate(self.files):
            for index, table in enumerate(file.batches(columns, held_as, rows)):
                yield Place(number, index * rows), table

    def batches(
        self, columns: Sequence[str], held_as: Mapping[str, str], rows: int, *, first: int = 0, last: int | None = None
    ) -> Iterator[pa.Table]:
        """Tables of exactly `rows` rows (the last of a file may be shorter) with these columns.

        held_as: how CSV columns are parsed (`Column.held_as`); text by default. Dates, times and decimals are returned
        as numbers. first, last: only the tables with these numbers, without the last; of a single file.
        """
        if self.pieces:
            for piece in self.pieces:
                yield from piece.batches(columns, held_as, rows)
            return
        unreadable = [name for name in columns if name in self.nested]
        if unreadable:
            raise InputError([f"Column {name!r} of {self.path.name} has the type {self.nested[name]}, not one plain "
                              "value per row. Give it the role 'drop'." for name in unreadable[:5]])  # fmt: skip
        inner = [name for name in columns if name not in self.fixed]
        parts = self._csv(inner) if self.kind == "csv" else self._parquet(inner, rows, first * rows)
        begun = first if self.kind == "parquet" else 0
        for number, table in enumerate(_rebatched(parts, rows), begun):
            if last is not None and number >= last:
                return
            if number >= first:
                typed = self.typed(table, held_as, number * rows)
                yield self._with_fixed(typed, held_as).select(list(columns)) if self.fixed else typed

    def _with_fixed(self, table: pa.Table, held_as: Mapping[str, str]) -> pa.Table:
        """The rows with the columns whose values come from the names of folders."""
        for name, text in self.fixed.items():
            column, wrong = from_text(pa.chunked_array([pa.array([text], pa.string())]), held_as.get(name, "string"))
            if wrong:
                raise InputError(f"The folder of {self.path.name} gives {name!r} a text where the schema has a "
                                 f"{held_as[name]}.")  # fmt: skip
            table = table.append_column(name, pa.repeat(column[0], table.num_rows))
        return table

    def _csv(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        options = pacsv.ConvertOptions(
            column_types=dict.fromkeys(self.names, pa.string()),
            include_columns=list(columns),
            strings_can_be_null=True,
            null_values=list(NULL_WORDS),
        )
        read = pacsv.ReadOptions(block_size=_BLOCK)
        try:
            with pacsv.open_csv(
                _readable(self.path, self.location),
                read,
                pacsv.ParseOptions(newlines_in_values=True),
                convert_options=options,
            ) as file:
                for batch in file:
                    yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as error:
            # `from None`: arrow's own message shows the row.
            raise InputError(_csv_problem(self.path.name, str(error))) from None

    def _parquet(self, columns: Sequence[str], rows: int, start: int) -> Iterator[pa.Table]:
        """Rows from `start` on; row groups before it are not read."""
        try:
            with _open_parquet(_readable(self.path, self.location), columns) as file:
                _refuse_bombs(self.path.name, file.metadata, columns)
                group, skipped = _first_group(self.groups, start)
                groups = list(range(group, len(self.groups)))
                for batch in file.iter_batches(min(rows, _PARQUET_ROWS), groups, columns=list(columns)):
                    table = pa.Table.from_batches([batch]).slice(skipped)
                    skipped = max(0, skipped - batch.num_rows)
                    yield pa.table({name: self._plain(name, table[name]) for name in columns})
        except (InputError, StoreError):
            raise
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise InputError(_damaged(self.path.name, error)) from None

    def _plain(self, name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """A column in plain form: text is trimmed as for CSV files, after its length was checked."""
        if pa.types.is_dictionary(column.type) and is_text(column.type.value_type):
            lengths = [pc.binary_length(chunk.dictionary) for chunk in column.chunks]
            longest = max((pc.max(each).as_py() or 0 for each in lengths), default=0)
            total = sum(pc.sum(each.take(chunk.indices)).as_py() or 0
                        for each, chunk in zip(lengths, column.chunks, strict=True))  # fmt: skip
            if longest > _LONGEST or total > _MOST_TEXT:
                raise InputError(_too_long(name, self.path.name))
        column = plain_column(column)
        if not pa.types.is_string(column.type):
            return column
        if (pc.max(pc.binary_length(column)).as_py() or 0) > _LONGEST:
            raise InputError(_too_long(name, self.path.name))
        return pc.utf8_trim_whitespace(column)

    def typed(self, table: pa.Table, held_as: Mapping[str, str], start: int = 0) -> pa.Table:
        """Text rows of a CSV file, converted to their types. start: the index of the first row."""
        if self.kind != "csv":
            return table
        problems: list[str] = []
        columns = {}
        for name in table.column_names:
            if (pc.max(pc.binary_length(table[name])).as_py() or 0) > _LONGEST:
                problems.append(_too_long(name, self.path.name))
                continue
            if pc.any(pc.match_substring(table[name], "\x00")).as_py():
                problems.append(f"Column {name!r} of {self.path.name} holds NUL bytes. The file was damaged.")
                continue
            text = pc.utf8_trim_whitespace(table[name])
            text = pc.if_else(pc.is_in(text, pa.array(NULL_WORDS)), pa.scalar(None, pa.string()), text)
            column, wrong = from_text(text, held_as.get(name, "string"))
            columns[name] = column
            if wrong:
                problems.append(
                    f"Column {name!r} of {self.path.name} holds text where the schema has a {held_as[name]} "
                    f"({rows_named([start + row for row in wrong])})."
                )
        if problems:
            raise InputError(problems)
        return pa.table(columns)


def _first_group(groups: Sequence[int], start: int) -> tuple[int, int]:
    """The row group that holds row `start`, and how many of its rows come before."""
    for group, rows in enumerate(groups):
        if start < rows:
            return group, start
        start -= rows
    return len(groups), 0


def _readable(path: Path, location: Location | None) -> Any:
    """What arrow opens: a path on this machine, or an open file of a store."""
    return path if location is None else location.open()


def open_table(path: str | Path | Location) -> TableFile:
    """Open one file: detect its kind by its content, and read its column names."""
    if isinstance(path, Location) or is_url(path):
        location = locate(path)
        if location.local is None:
            return _open_remote(location)
        path = location.local
    path = Path(path)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not an ordinary file"
        raise InputError(f"{path} is {what}. Give a CSV or Parquet file.")
    if not status.st_size:
        raise InputError(f"{path.name} is empty.")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return _look_at(path, head, status.st_size)


def _open_remote(location: Location) -> TableFile:
    if not location.is_file():
        raise InputError(f"There is no file {location.shown}.")
    size = location.size()
    if not size:
        raise InputError(f"{location.name} is empty.")
    with location.open() as file:
        head = file.read(_HEAD)
    return _look_at(Path(location.shown), head, size, location)


def _look_at(path: Path, head: bytes, size: int, location: Location | None = None) -> TableFile:
    """Detect the kind of a file. head: its first bytes."""
    if head.startswith(b"PAR1"):
        return _look_at_parquet(path, size, location)
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(f"{path.name} is {what}. Give it as plain CSV (UTF-8) or as Parquet.")
    return _look_at_csv(path, head, size, location)


def _look_at_csv(path: Path, head: bytes, size: int, location: Location | None) -> TableFile:
    if b"\x00" in head:
        raise InputError(f"{path.name} holds NUL bytes: it is not a CSV file, or was damaged. Give plain UTF-8 text.")
    try:
        # The block may end inside a character.
        text = head.decode("utf-8-sig") if size <= len(head) else head.decode("utf-8-sig", errors="ignore")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path.name} is not UTF-8 text (byte {error.start}). Save it as UTF-8; old spreadsheets write Latin-1."
        ) from None
    try:
        # Not `splitlines`: it also splits at characters that are valid inside a name in a CSV file.
        names = next(csv.reader(io.StringIO(text, newline=""), strict=True), [])
    except csv.Error:
        problem = f"The header of {path.name} cannot be read as CSV: a quote is open, or a name is too long."
        raise InputError(problem) from None
    expected = max(1, size * max(head.count(b"\n"), 1) // len(head) - 1)
    return TableFile(path, "csv", _checked_names(path, names), size, None, expected, location=location)


def _look_at_parquet(path: Path, size: int, location: Location | None) -> TableFile:
    try:
        with _open_parquet(_readable(path, location)) as file:
            groups = tuple(file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups))
            names, rows = [str(name) for name in file.schema_arrow.names], int(file.metadata.num_rows)
            types = dict(zip(names, file.schema_arrow.types, strict=True))
    except StoreError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise InputError(_damaged(path.name, error)) from None
    checked = _checked_names(path, names)
    nested = {name: str(kind) for name, kind in types.items() if not _is_flat(kind)}
    special = {name: kind for name, kind in types.items() if stands_for_number(kind)}
    return TableFile(path, "parquet", checked, size, rows, rows, nested, special, location, groups)


def _open_parquet(path: Any, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """dictionaries: columns whose distinct texts are read once, however many rows repeat them."""
    return pq.ParquetFile(
        path, page_checksum_verification=True, read_dictionary=list(dictionaries),
        thrift_string_size_limit=_MOST_THRIFT, thrift_container_size_limit=_MOST_THRIFT,
    )  # fmt: skip


def _is_flat(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
                or pa.types.is_fixed_size_binary(kind))  # fmt: skip


def is_text(kind: pa.DataType) -> bool:
    """Whether an arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _refuse_bombs(name: str, metadata: pq.FileMetaData, columns: Sequence[str]) -> None:
    """Reject small files that claim to hold far more data: detected in the footer, before anything is read."""
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.path_in_schema not in columns:
                continue
            if chunk.total_uncompressed_size > max(_MOST_TEXT, _MOST_RATIO * chunk.total_compressed_size):
                raise InputError(f"{name} claims to hold far more than its size. It is crafted or damaged.")
            if "DELTA_BYTE_ARRAY" in chunk.encodings:
                raise InputError(
                    f"Column {chunk.path_in_schema!r} of {name} is encoded as text differences "
                    "(DELTA_BYTE_ARRAY), where a few bytes can expand to any amount of data. Write the file again "
                    "with the default encodings."
                )


def _checked_names(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{path.name} has {len(names)} columns, more than {MOST_COLUMNS}. If they are swapped with rows, transpose "
            "the table; otherwise leave columns out."
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    unusable = [(i, problem) for i, name in enumerate(names) if (problem := name_problem(name))]
    problems = [f"Column {i + 1} of {path.name} {problem}" for i, problem in unusable[:3]]
    problems += [f"{path.name} has the column {shown(name)} more than once." for name in twice[:3] if name.strip()]
    if not names:
        problems.append(f"{path.name} has no header.")
    if problems:
        raise InputError(problems)
    return tuple(names)


def _rebatched(parts: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in tables of equal size."""
    waiting: list[pa.Table] = []
    count = 0
    for part in parts:
        waiting.append(part)
        count += part.num_rows
        while count >= rows:
            whole = pa.concat_tables(waiting)
            yield whole.slice(0, rows).combine_chunks()
            rest = whole.slice(rows)
            waiting, count = [rest], rest.num_rows
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


def _csv_problem(name: str, message: str) -> str:
    """The problem that arrow reported, without the row that its message shows."""
    row = re.search(r"Row #(\d+)", message)
    where = f" (line {row.group(1)})" if row else ""
    counts = re.search(r"Expected (\d+) columns, got (\d+)", message)
    if counts:
        return f"{name} is ragged: a row has {counts.group(2)} cells where the header has {counts.group(1)}{where}."
    if "UTF8" in message or "UTF-8" in message:
        return f"{name} is not UTF-8 text throughout{where}. Save it as UTF-8."
    if "straddl" in message:
        return f"{name} has a row longer than {_BLOCK // 2**20} MB, or a quote that is never closed."
    if "Empty CSV" in message:
        return f"{name} is empty."
    return f"{name} cannot be read as CSV{where}: check its quotes and line ends."


def _damaged(name: str, error: Exception) -> str:
    return f"{name} is not a readable Parquet file: it is truncated or damaged ({type(error).__name__})."


def _too_long(column: str, file: str) -> str:
    return (
        f"Column {column!r} of {file} has cells of more than {_LONGEST} bytes, or too many long ones to be read at "
        "once: a document is not a value. Leave the column out."
    )
