"""A folder of images with a table of labels: the column `file` and further columns about each image."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from fairveil._utils.atomic import sha256_of
from fairveil._utils.errors import InputError
from fairveil.data.columns import shown
from fairveil.workflows.reading import open_table

FILE = "file"


def labels_of(labels: Path, names: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """The labels of these files, in this order."""
    source = open_table(labels)
    absent = [name for name in (FILE, *columns) if name not in source.names]
    if absent:
        raise InputError([f"{labels.name} has no column {name!r}." for name in absent])
    table = pa.concat_tables(source.batches([FILE, *columns], {}, 65_536))
    files = table[FILE].cast(pa.string()).to_pylist()
    place = {name: i for i, name in enumerate(files)}
    if len(place) < len(files):
        raise InputError(f"{labels.name} names {len(files) - len(place)} files more than once.")
    lacking = [name for name in names if name not in place]
    if lacking:
        raise InputError(f"{labels.name} does not name {len(lacking)} of the {len(names)} images.")
    return table.take(pa.array([place[name] for name in names])).select(list(columns))


def folder_digest(folder: Path, names: Sequence[str] | None = None) -> str:
    """A SHA-256 over the names and contents of files: the given ones, or all files in the folder."""
    digest = hashlib.sha256()
    for name in sorted(path.name for path in folder.iterdir()) if names is None else names:
        if not (folder / name).is_file():
            raise InputError(f"The folder {folder.name!r} holds {shown(name)}, which is not an ordinary file.")
        digest.update(len(name.encode()).to_bytes(8, "big"))
        digest.update(name.encode())
        digest.update(bytes.fromhex(sha256_of(folder / name)))
    return digest.hexdigest()
