"""One table in many files: a folder, a glob pattern, or Hive partitions, on this machine or in a store."""

import fnmatch
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from fairveil._utils.errors import InputError
from fairveil._utils.stores import Location, is_url, locate
from fairveil.workflows.reading import TableFile, open_table

SUFFIXES = (".parquet", ".csv")
#: Written last into a folder of released files: without it, a folder is not a finished release.
MANIFEST = "_manifest.json"
_FORMAT = "fairveil-manifest-1"
_MAGIC = frozenset("*?[")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: Footers read at the same time.
_AT_ONCE = 16
#: Files of one table.
_MOST_FILES = 1_000_000


def is_pattern(path: str | Path | Location) -> bool:
    """Whether a path is a glob pattern. A name that exists as it is written is not."""
    if isinstance(path, Location):
        return False
    return bool(_MAGIC & set(str(path))) and (is_url(path) or not Path(path).exists())


def local_path(path: str | Path) -> Path | None:
    """The path of a file or folder on this machine; None for one in a store, and for a pattern."""
    return None if is_url(path) or is_pattern(path) else Path(path)


def holds_tables(folder: Location) -> bool:
    """Whether a folder holds CSV or Parquet files, directly or in its folders."""
    return any(file.suffix.lower() in SUFFIXES for file in folder.files())


def open_tables(path: str | Path | Location) -> TableFile:
    """Open a file, or all files of a folder or pattern as one table, sorted by path.

    Files whose names begin with a dot or an underscore are left out, and so are all but CSV and Parquet files. Folders
    named `column=value` (Hive partitions) give a column of text, unless the schema says otherwise.
    """
    if not is_pattern(path):
        location = locate(path)
        if not location.is_folder():
            return open_table(path)
        root, found = location, location.files()
    else:
        root, found = _matching(str(path))
    files = [file for file in found if file.suffix.lower() in SUFFIXES]
    if not files:
        raise InputError(f"There is no CSV or Parquet file in {locate(path).shown}.")
    if len(files) > _MOST_FILES:
        raise InputError(f"{root.shown} holds {len(files):,} files, more than {_MOST_FILES:,}. Merge small ones.")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        opened = list(pool.map(lambda file: _open_piece(file, root), files))
    return _together(Path(root.shown), [piece for piece in opened if piece.rows != 0] or opened[:1])


def _matching(pattern: str) -> tuple[Location, list[Location]]:
    """The folder before the first wildcard, and the files that match. `*` does not match across folders, `**` does."""
    head = next(i for i, letter in enumerate(pattern) if letter in _MAGIC)
    base = pattern[:head].rpartition("/")[0] or ("/" if pattern.startswith("/") else ".")
    root = locate(base)
    wanted = pattern[len(base) :].lstrip("/") if pattern.startswith(base) else pattern
    found = []
    for file in root.files():
        inner = file.path.removeprefix(root.path.rstrip("/") + "/")
        if _matches(PurePosixPath(inner).parts, PurePosixPath(wanted).parts):
            found.append(file)
    return root, found


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_matches(parts[i:], wanted[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


def _open_piece(file: Location, root: Location) -> TableFile:
    opened = open_table(file)
    inner = file.path.removeprefix(root.path.rstrip("/") + "/")
    fixed = partition_values(PurePosixPath(inner).parent)
    double = [name for name in fixed if name in opened.names]
    if double:
        raise InputError(f"Column {double[0]!r} is in {file.name} and in the name of its folder.")
    return replace(opened, names=(*opened.names, *fixed), fixed=fixed) if fixed else opened


def partition_values(folder: PurePosixPath) -> dict[str, str | None]:
    """Columns in names of folders, as Hive writes them.

    >>> partition_values(PurePosixPath("year=2024/town=New%20York"))
    {'year': '2024', 'town': 'New York'}
    """
    pairs = [part.partition("=") for part in folder.parts if "=" in part]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, _, value in pairs if name}


def _together(path: Path, files: Sequence[TableFile]) -> TableFile:
    """Many files as one table; they must have the same columns."""
    first = files[0]
    problems = []
    for file in files[1:]:
        if file.kind != first.kind:
            problems.append(f"{file.path.name} is a {file.kind} file, and {first.path.name} a {first.kind} file.")
        elif set(file.names) != set(first.names):
            differ = sorted(set(file.names) ^ set(first.names))
            named = ", ".join(map(repr, differ[:3]))
            problems.append(f"{file.path.name} and {first.path.name} do not have the same columns ({named}).")
        elif (dict(file.types), dict(file.nested)) != (dict(first.types), dict(first.nested)):
            problems.append(f"{file.path.name} and {first.path.name} have columns of different types.")
    if problems:
        raise InputError(problems[:5])
    rows = [file.rows for file in files]
    return TableFile(
        path, first.kind, first.names, sum(file.size for file in files),
        None if None in rows else sum(count or 0 for count in rows), sum(file.expected for file in files),
        first.nested, first.types, pieces=tuple(files),
    )  # fmt: skip


def manifest_of(files: Mapping[str, tuple[int, str]]) -> bytes:
    """A manifest: the name, size and SHA-256 of each file, in order. The same files give the same bytes."""
    rows = [{"name": name, "bytes": size, "sha256": digest} for name, (size, digest) in files.items()]
    return (json.dumps({"format": _FORMAT, "files": rows}, indent=1) + "\n").encode()


def digest_of(source: TableFile) -> str:
    """The SHA-256 of one file, or of the manifest of many. It is computed from the files, not read from a manifest."""
    if not source.pieces:
        return locate(source.location or source.path).sha256()
    root = str(source.path).rstrip("/") + "/"
    named = {str(piece.path).removeprefix(root): locate(piece.location or piece.path) for piece in source.pieces}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        digests = pool.map(lambda file: (file.size(), file.sha256()), named.values())
        return hashlib.sha256(manifest_of(dict(zip(named, digests, strict=True)))).hexdigest()
