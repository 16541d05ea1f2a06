"""Atomic file writes: a file is written under a temporary name next to the target, synced, then renamed."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from fairveil._utils.errors import InputError

#: Creation modes, before the umask: readable by the owner only, and any other new file.
PRIVATE, PUBLIC = 0o600, 0o666
_PARTIAL = r"[0-9a-f]{16}\.partial"


@contextmanager
def replacing(path: Path, mode: int = PUBLIC) -> Iterator[Path]:
    """A temporary path to write to. It replaces `path` if the block succeeds and is removed otherwise.

    The file already exists, empty: it is created exclusively under an unpredictable name, so a link planted there is
    never followed.
    """
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode))
    try:
        yield partial
        put_in_place(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes, mode: int = PUBLIC) -> None:
    """Write a small file at once."""
    with replacing(path, mode) as partial:
        partial.write_bytes(content)


def is_partial(name: str, target: str) -> bool:
    """Whether this is the name of a temporary file for the target."""
    return re.fullmatch(rf"\.{re.escape(target)}\.{_PARTIAL}", name) is not None


def put_in_place(partial: Path, path: Path) -> None:
    """Sync a finished file or folder and rename it to its final name."""
    sync(partial)
    partial.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush to disk: a file name must never outlive its content."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(path: Path) -> str:
    """The SHA-256 of an ordinary file. Anything else is refused: reading a pipe would block forever."""
    refuse_special(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_special(path: Path) -> None:
    """Raise if a path exists and is neither a file nor a folder."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise InputError(f"{path} is not an ordinary file.")


def refuse_overwriting(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Raise if an output would overwrite an input, or if two outputs are the same file. None is ignored.

    Both map the description of a file, as used in messages, to its path.
    """
    written = {what: path for what, path in outputs.items() if path is not None}
    read = {what: path for what, path in inputs.items() if path is not None}
    problems = [
        f"The {what} would replace the {other} ({path.name}). Name another file."
        for what, path in written.items() for other, given in read.items() if _same(path, given)
    ]  # fmt: skip
    names = list(written)
    problems += [
        f"The {first} and the {second} would be the same file ({written[first].name})."
        for i, first in enumerate(names) for second in names[i + 1 :] if _same(written[first], written[second])
    ]  # fmt: skip
    if problems:
        raise InputError(problems)


def _same(one: Path, other: Path) -> bool:
    with suppress(OSError):
        if one.samefile(other):
            return True
    return one.resolve() == other.resolve()
