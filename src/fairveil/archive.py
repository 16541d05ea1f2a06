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

from fairveil.errors import VeilFileError
from fairveil.whole import write_whole

_MANIFEST, _WEIGHTS, _DIGEST = "manifest.json", "weights.safetensors", "sha256"
_EPOCH = (1980, 1, 1, 0, 0, 0)
#: No part of an archive is read beyond this size.
_MOST_BYTES = 2**32


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
    write_whole(path, buffer.getvalue())


def read_archive(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read and verify; refuses a file whose checksum does not fit."""
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if sorted(archive.namelist()) != sorted([_MANIFEST, _WEIGHTS, _DIGEST]):
                raise VeilFileError(f"{path.name} is not a fairveil file: it does not hold the three expected parts.")
            if any(info.file_size > _MOST_BYTES for info in archive.infolist()):
                raise VeilFileError(f"{path.name} claims a part larger than {_MOST_BYTES} bytes.")
            text, weights, digest = (archive.read(name) for name in (_MANIFEST, _WEIGHTS, _DIGEST))
        if digest.decode(errors="replace") != _digest(text, weights):
            raise VeilFileError(f"{path.name} was altered or damaged: its SHA-256 does not fit. Nothing was loaded.")
        manifest = json.loads(text)
        tensors = safetensors.torch.load(weights)
    except (zipfile.BadZipFile, SafetensorError, ValueError, EOFError, NotImplementedError) as error:
        # NotImplementedError: what zipfile raises when a flipped bit names a compression it does not know.
        if isinstance(error, VeilFileError):
            raise
        raise VeilFileError(f"{path.name} is not a fairveil file, or is damaged ({type(error).__name__}).") from error
    return manifest, tensors


def _digest(text: bytes, weights: bytes) -> str:
    digest = hashlib.sha256()
    for part in (text, weights):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
