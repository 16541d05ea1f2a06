"""One file for a manifest and tensors: a zip of JSON, safetensors and a SHA-256 of both. Never pickle."""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fairveil._utils.atomic import write_atomic
from fairveil._utils.errors import VeilFileError

_MANIFEST, _WEIGHTS, _DIGEST = "manifest.json", "weights.safetensors", "sha256"
_EPOCH = (1980, 1, 1, 0, 0, 0)
#: Maximum bytes of a manifest, and bytes of a checksum. Parts are stored uncompressed, so none is larger than the file.
_MOST_MANIFEST, _DIGEST_SIZE = 2**26, 64
_ENCRYPTED = 0x1
#: Maximum number of lists and mappings in a file of plain values: each takes far more memory than its two characters.
_MOST_PARTS = 2**17


def write_archive(path: str | Path, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write the file atomically."""
    write_atomic(Path(path), to_bytes(manifest, tensors))


def to_bytes(manifest: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """The content of the file."""
    text = json.dumps(manifest, indent=1, allow_nan=False).encode()
    weights = safetensors.torch.save(tensors)
    parts = {_MANIFEST: text, _WEIGHTS: weights, _DIGEST: _digest(text, weights).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    return buffer.getvalue()


def read_archive(source: str | Path | bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read and verify a file or its content; rejects a wrong checksum, and parts that are larger than the file."""
    if isinstance(source, bytes):
        return _read(io.BytesIO(source), len(source), "The veil")
    path = Path(source)
    with path.open("rb") as file:
        return _read(file, path.stat().st_size, path.name)


def _read(file: BinaryIO, size: int, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with zipfile.ZipFile(file) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            if sorted(infos) != sorted([_MANIFEST, _WEIGHTS, _DIGEST]) or len(archive.infolist()) != len(infos):
                raise VeilFileError(f"{name} is not a fairveil file: it does not hold the three expected parts.")
            stored = all(i.compress_type == zipfile.ZIP_STORED and not i.flag_bits & _ENCRYPTED for i in infos.values())
            if not stored or sum(info.file_size for info in infos.values()) > size:
                raise VeilFileError(f"{name} holds compressed or encrypted parts, which no fairveil file does.")
            if infos[_MANIFEST].file_size > _MOST_MANIFEST or infos[_DIGEST].file_size != _DIGEST_SIZE:
                raise VeilFileError(f"{name} has a manifest of more than {_MOST_MANIFEST} bytes, or no checksum.")
            text, weights, digest = (archive.read(part) for part in (_MANIFEST, _WEIGHTS, _DIGEST))
        if digest.decode(errors="replace") != _digest(text, weights):
            raise VeilFileError(f"{name} was altered or damaged: its SHA-256 does not match. Nothing was loaded.")
        if not few_parts(text.decode()):
            raise VeilFileError(f"{name} has a manifest of too many parts.")
        manifest = json.loads(text, parse_constant=_refuse_constant)
        tensors = safetensors.torch.load(weights)
    except VeilFileError:
        raise
    except (zipfile.BadZipFile, SafetensorError, ValueError, EOFError, RuntimeError, RecursionError, KeyError,
            OverflowError) as error:  # fmt: skip
        # RuntimeError includes NotImplementedError: zipfile raises them for unknown flags and methods.
        raise VeilFileError(f"{name} is not a fairveil file, or is damaged ({type(error).__name__}).") from None
    if not isinstance(manifest, dict):
        raise VeilFileError(f"{name} is not a fairveil file: its manifest is not a mapping.")
    return manifest, tensors


def few_parts(text: str) -> bool:
    """Whether there are few enough lists and mappings for memory use to stay proportional to the text."""
    return text.count("[") + text.count("{") <= _MOST_PARTS


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _digest(text: bytes, weights: bytes) -> str:
    digest = hashlib.sha256()
    for part in (text, weights):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
