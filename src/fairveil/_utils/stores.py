"""Files in local folders and in object stores, behind one interface.

A path with a scheme names a file in a store: `s3://`, `gs://`, `abfs://` through pyarrow; `memory://`, `hf://` and
others through fsspec. Credentials come from the store's own environment or configuration, never from the path, and
messages show neither a path's query nor the text of a store's error.

A local file is written under a temporary name and renamed. A store has no rename: an object is uploaded from one
complete buffer and becomes visible when the upload is finished, so a killed process leaves no part of it. A folder of
objects has no such moment: its manifest is written last, and a folder without a manifest is not finished.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from fairveil._utils.atomic import PUBLIC, replacing, sha256_of
from fairveil._utils.errors import InputError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+)://")
#: Schemes that pyarrow serves itself.
_ARROW = frozenset({"s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs"})
_CHUNK = 2**22


class StoreError(OSError):
    """A store did not answer as expected. Its own message is not shown: it may contain credentials."""


@dataclass(frozen=True)
class Location:
    """A file or folder. path: inside its file system; shown: for messages, without credentials."""

    filesystem: Any = field(repr=False)
    path: str = field(repr=False)
    shown: str
    local: Path | None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        """The suffix of the name."""
        return PurePosixPath(self.path).suffix

    def child(self, name: str) -> "Location":
        """A file in this folder."""
        inside = None if self.local is None else self.local / name
        return Location(self.filesystem, f"{self.path.rstrip('/')}/{name}", f"{self.shown.rstrip('/')}/{name}", inside)

    def sibling(self, name: str) -> "Location":
        """A file next to this one."""
        beside = None if self.local is None else self.local.with_name(name)
        parent, shown = (text.rstrip("/").rpartition("/")[0] for text in (self.path, self.shown))
        return Location(self.filesystem, f"{parent}/{name}", f"{shown}/{name}", beside)

    def is_file(self) -> bool:
        """Whether there is a file here."""
        return bool(self._info().type == pafs.FileType.File)

    def is_folder(self) -> bool:
        """Whether there is a folder here, or objects below this path."""
        return bool(self._info().type == pafs.FileType.Directory)

    def size(self) -> int:
        """Bytes of the file."""
        return int(self._info().size or 0)

    def files(self) -> list["Location"]:
        """All files below this folder, sorted by path; names that begin with a dot or an underscore are left out."""
        with self._guarded("listed"):
            selector = pafs.FileSelector(self.path, recursive=True, allow_not_found=True)
            found = [info.path for info in self.filesystem.get_file_info(selector) if info.type == pafs.FileType.File]
        prefix = self.path.rstrip("/") + "/"
        inner = sorted(path.removeprefix(prefix) for path in found)
        return [self.child(name) for name in inner if not any(part[:1] in "._" for part in name.split("/"))]

    def open(self) -> Any:
        """The file, for random access."""
        with self._guarded("read"):
            return self.filesystem.open_input_file(self.path)

    def read(self) -> bytes:
        """The content of a small file."""
        with self._guarded("read"), self.filesystem.open_input_stream(self.path) as stream:
            return bytes(stream.read())

    def write(self, content: bytes | pa.Buffer, mode: int = PUBLIC) -> None:
        """Write a file at once: it becomes visible when it is complete."""
        if self.local is not None:
            with replacing(self.local, mode) as partial:
                partial.write_bytes(content)
            return
        with self._guarded("written"), self.filesystem.open_output_stream(self.path) as stream:
            stream.write(content)

    def copy_to(self, target: "Location") -> None:
        """Copy one file; on one file system of this machine, by a second name for the same content."""
        if self.local is not None and target.local is not None:
            target.local.unlink(missing_ok=True)
            with suppress(OSError):
                os.link(self.local, target.local)
                return
        with target._guarded("written"):
            if self.local is None and self.filesystem.equals(target.filesystem):
                self.filesystem.copy_file(self.path, target.path)
                return
        target.write(self.read())

    def delete(self) -> None:
        """Delete the file if it exists."""
        with self._guarded("deleted"):
            if self._info().type == pafs.FileType.File:
                self.filesystem.delete_file(self.path)

    def delete_folder(self) -> None:
        """Delete the folder with everything in it, if it exists."""
        with self._guarded("deleted"):
            if self._info().type == pafs.FileType.Directory:
                self.filesystem.delete_dir(self.path)

    def sha256(self) -> str:
        """The SHA-256 of the file."""
        if self.local is not None:
            return sha256_of(self.local)
        digest = hashlib.sha256()
        with self._guarded("read"), self.filesystem.open_input_stream(self.path) as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def _info(self) -> Any:
        with self._guarded("reached"):
            return self.filesystem.get_file_info(self.path)

    @contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """For stores, replace errors by one that shows only the type."""
        if self.local is not None:
            yield
            return
        try:
            yield
        except FileNotFoundError:
            raise StoreError(f"{self.shown} does not exist.") from None
        except Exception as error:
            raise StoreError(f"{self.shown} cannot be {what} ({type(error).__name__}). Check the path, the "
                             "credentials in your environment and the connection.") from None  # fmt: skip


def is_url(path: str | Path) -> bool:
    """Whether a path names a file in a store.

    >>> is_url("s3://bucket/people.parquet"), is_url("people.parquet"), is_url("C:/people.parquet")
    (True, False, False)
    """
    return _SCHEME.match(str(path)) is not None


def locate(path: str | Path | Location) -> Location:
    """The location that a path names: local, or in a store if it has a scheme."""
    if isinstance(path, Location):
        return path
    if not is_url(path):
        return Location(pafs.LocalFileSystem(), str(Path(path).absolute()), str(path), Path(path))
    parts = urlsplit(str(path))
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if "@" in parts.netloc and parts.scheme not in ("abfs", "abfss"):  # there, the part before @ is the container
        raise InputError(f"The path {shown} was given with credentials, which others can see in lists of processes. "
                         "Put them into the environment or the store's configuration.")  # fmt: skip
    if ":" in parts.netloc.rpartition("@")[0]:
        raise InputError(f"The path {shown} was given with a password. Put it into the environment.")
    if parts.scheme == "file":
        return locate(Path(parts.path))
    filesystem, inside = _file_system(parts.scheme, str(path), shown)
    return Location(filesystem, inside.rstrip("/"), shown, None)


def _file_system(scheme: str, url: str, shown: str) -> tuple[Any, str]:
    try:
        if scheme in _ARROW:
            filesystem, inside = pafs.FileSystem.from_uri(url)
            return filesystem, inside
        import fsspec  # a dependency of torch

        filesystem, inside = fsspec.core.url_to_fs(url)
        return pafs.PyFileSystem(pafs.FSSpecHandler(filesystem)), inside
    except ImportError as error:
        name = f" ({error.name})" if error.name else ""
        raise InputError(f"Paths like {scheme}:// need a package that is not installed{name}.") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{shown} is not a path of a store that can be opened ({type(error).__name__}).") from None
