"""Write released tables: a file contains its rows and nothing else.

No index, no library metadata, no statistics, no dictionaries; row groups of one size. Types and decimals are those of
the schema.
"""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from fairveil._utils.errors import InputError
from fairveil._utils.stores import Location
from fairveil.data.schema import Schema
from fairveil.data.types import is_moment, to_pattern
from fairveil.data.written import written_schema

#: Rows per row group, whatever the content.
GROUP_ROWS = 65_536
SUFFIXES = (".csv", ".parquet")
#: A spreadsheet executes a cell that begins with one of these, even after blanks; the last four are full-width forms.
_FORMULA = r"^\s*[=+\-@\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]|^[\t\r\n]"
_FORMULA_START = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


class _Sink(Protocol):
    def write_table(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


class TableWriter:
    """Writes released rows to a CSV or Parquet file, depending on the suffix; a context manager.

    path: the file, or an open stream.
    """

    def __init__(self, path: Path | pa.NativeFile, suffix: str, schema: Schema) -> None:
        self.neutralised = 0
        self._csv = suffix == ".csv"
        self._moments = [column for column in schema.released if column.type and self._csv]
        self._waiting: list[pa.Table] = []
        self._rows = 0
        self._sink: _Sink
        plain = written_schema(schema)
        if self._csv:
            for column in self._moments:
                place = plain.get_field_index(column.name)
                if is_moment(plain.field(place).type):
                    plain = plain.set(place, pa.field(column.name, pa.string()))
            options = pacsv.WriteOptions(quoting_style="needed")
            self._sink = pacsv.CSVWriter(path, plain, write_options=options)
        else:
            self._sink = pq.ParquetWriter(
                path, plain, compression="zstd", use_dictionary=False, write_statistics=False, store_schema=False,
                write_page_checksum=True,
            )  # fmt: skip

    def write(self, table: pa.Table) -> None:
        """Add rows with the types of `written_schema`; full groups are written at once."""
        if self._csv:
            table, count = neutralised(table)
            self.neutralised += count
            for column in self._moments:
                if is_moment(table[column.name].type):
                    text = to_pattern(table[column.name], column.type or "", column.grid or 1.0)
                    table = table.set_column(table.column_names.index(column.name), column.name, text)
        self._waiting.append(table)
        self._rows += table.num_rows
        while self._rows >= GROUP_ROWS:
            whole = pa.concat_tables(self._waiting)
            self._sink.write_table(whole.slice(0, GROUP_ROWS).combine_chunks())
            rest = whole.slice(GROUP_ROWS)
            self._waiting, self._rows = [rest], rest.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._rows:
                self._sink.write_table(pa.concat_tables(self._waiting).combine_chunks())
        finally:
            self._sink.close()


def is_folder_target(name: str) -> bool:
    """Whether a target is a folder of files: its name has no suffix."""
    return not PurePosixPath(name).suffix


def check_release_target(target: Location) -> Location:
    """Check that a release can be written here: a file, or a folder for many files if the name has no suffix."""
    if not is_folder_target(target.name):
        if target.local is not None:
            check_target(target.local)
        elif target.suffix.lower() not in SUFFIXES:
            raise InputError(f"The name {target.name!r} must end in {' or '.join(SUFFIXES)}, or have no suffix.")
    elif target.local is not None and not target.local.absolute().parent.is_dir():
        raise InputError(f"There is no folder {target.local.parent} to write {target.name} to.")
    return target


def check_target(path: Path, suffixes: Sequence[str] = SUFFIXES) -> Path:
    """Check that a path can be written to."""
    if path.suffix.lower() not in suffixes:
        raise InputError(f"The name {path.name!r} must end in {' or '.join(suffixes)}.")
    if path.is_dir():
        raise InputError(f"{path} is a folder. Name a file.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent} to write {path.name} to.")
    return path


def is_formula(text: str) -> bool:
    """Whether a spreadsheet would execute this text."""
    return text.lstrip().startswith(_FORMULA_START)


def neutralised(table: pa.Table) -> tuple[pa.Table, int]:
    """Prefix text cells that a spreadsheet would execute with an apostrophe; also returns their number."""
    count = 0
    for i, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            risky = pc.fill_null(pc.match_substring_regex(table[field.name], _FORMULA), False)
            found = int(pc.sum(risky).as_py() or 0)
            if found:
                count += found
                quoted = pc.binary_join_element_wise("'", table[field.name], "")
                table = table.set_column(i, field, pc.if_else(risky, quoted, table[field.name]))
    return table, count
