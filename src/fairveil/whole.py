"""Files that are whole or as they were: written under a temporary name beside the target, synced, then renamed."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Beside the target, so that renaming it is one step of the file system.
_PARTIAL = ".{name}.{process}.partial"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name to write to; when the block ends well its file takes the place of `path`, else it is removed."""
    partial = path.with_name(_PARTIAL.format(name=path.name, process=os.getpid()))
    try:
        yield partial
        put_in_place(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file in one go."""
    with replacing(path) as partial:
        partial.write_bytes(content)


def put_in_place(partial: Path, path: Path) -> None:
    """Sync a finished file or folder and give it its name."""
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Let what was written reach the disk: a name must never outlive its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
