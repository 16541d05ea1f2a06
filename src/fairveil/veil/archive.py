"""One file for a manifest and tensors: a zip of JSON, safetensors and a SHA-256 over both. Never pickle."""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from fairveil._utils.atomic import write_atomic
from fairveil._utils.errors import VeilFileError

_MANIFEST, _WEIGHTS, _DIGEST = "manifest.json", "weights.safetensors", "sha256"
_EPOCH = (1980, 1, 1, 0, 0, 0)
#: Bytes of a manifest, at most, and of a checksum. Parts are stored as they are, so none is larger than the file.
_MOST_MANIFEST, _DIGEST_SIZE = 2**26, 64
_ENCRYPTED = 0x1
#: Lists and mappings of a file of plain values, at most: each takes many times its two letters.
_MOST_PARTS = 2**17


def write_archive(path: str | Path, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write; the file is whole or as it was."""
    path = Path(path)
    text = json.dumps(manifest, indent=1, allow_nan=False).encode()
    weights = safetensors.torch.save(tensors)
    parts = {_MANIFEST: text, _WEIGHTS: weights, _DIGEST: _digest(text, weights).encode()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
    write_atomic(path, buffer.getvalue())


def read_archive(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read and verify; refuses a file whose checksum does not fit, and one that holds more than its own size."""
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            if sorted(infos) != sorted([_MANIFEST, _WEIGHTS, _DIGEST]) or len(archive.infolist()) != len(infos):
                raise VeilFileError(f"{path.name} is not a fairveil file: it does not hold the three expected parts.")
            stored = all(i.compress_type == zipfile.ZIP_STORED and not i.flag_bits & _ENCRYPTED for i in infos.values())
            if not stored or sum(info.file_size for info in infos.values()) > path.stat().st_size:
                raise VeilFileError(f"{path.name} holds compressed or encrypted parts, which no fairveil file does.")
            if infos[_MANIFEST].file_size > _MOST_MANIFEST or infos[_DIGEST].file_size != _DIGEST_SIZE:
                raise VeilFileError(f"{path.name} has a manifest of more than {_MOST_MANIFEST} bytes, or no checksum.")
            text, weights, digest = (archive.read(name) for name in (_MANIFEST, _WEIGHTS, _DIGEST))
        if digest.decode(errors="replace") != _digest(text, weights):
            raise VeilFileError(f"{path.name} was altered or damaged: its SHA-256 does not fit. Nothing was loaded.")
        if not few_parts(text.decode()):
            raise VeilFileError(f"{path.name} has a manifest of too many parts.")
        manifest = json.loads(text, parse_constant=_refuse_constant)
        tensors = safetensors.torch.load(weights)
    except VeilFileError:
        raise
    except (zipfile.BadZipFile, SafetensorError, ValueError, EOFError, RuntimeError, RecursionError, KeyError,
            OverflowError) as error:  # fmt: skip
        # RuntimeError, of which NotImplementedError is one: what zipfile raises for flags and methods it does not know.
        raise VeilFileError(f"{path.name} is not a fairveil file, or is damaged ({type(error).__name__}).") from None
    if not isinstance(manifest, dict):
        raise VeilFileError(f"{path.name} is not a fairveil file: its manifest is not a mapping.")
    return manifest, tensors


def few_parts(text: str) -> bool:
    """Whether plain values have so few lists and mappings that to read them takes memory in proportion."""
    return text.count("[") + text.count("{") <= _MOST_PARTS


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _digest(text: bytes, weights: bytes) -> str:
    digest = hashlib.sha256()
    for part in (text, weights):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
