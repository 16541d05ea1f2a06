"""Signatures of veils, releases and cards: Ed25519, with the `cryptography` package (extra `sign`).

A SHA-256 detects damage, but anybody can recompute it. A signature shows that the owner of a key vouched for the file.
It is stored next to the file, as `FILE.sig`, and checked against a public key that was obtained from its owner.
"""

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairveil._utils.atomic import PRIVATE, sha256_of, write_atomic
from fairveil._utils.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_FORMAT = "fairveil-signature-1"
#: Maximum bytes of a key or signature file.
_MOST_BYTES = 2**16


def signature_path(path: Path) -> Path:
    """The path of a file's signature."""
    return path.with_name(f"{path.name}.sig")


def public_path(key: Path) -> Path:
    """The path of a key's public half."""
    return key.with_name(f"{key.name}.pub")


def make_key(path: Path) -> Path:
    """Write a new private key, readable by its owner only, and its public half next to it; returns the path of that."""
    serialization, ed25519 = _modules()
    for taken in (path, public_path(path)):
        if taken.exists() or taken.is_symlink():
            raise InputError(f"{taken} already exists. Name another file: a replaced key cannot be recovered.")
    key = ed25519.Ed25519PrivateKey.generate()
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_atomic(path, private, PRIVATE)
    write_atomic(public_path(path), public)
    return public_path(path)


def sign_file(path: Path, key: Path) -> Path:
    """Write the signature of a file next to it; returns its path."""
    _refuse_missing(path)
    signature = _private_key(key).sign(_message(path))
    values = {"format": _FORMAT, "sha256": sha256_of(path), "signature": base64.b64encode(signature).decode()}
    write_atomic(signature_path(path), (json.dumps(values, indent=1) + "\n").encode())
    return signature_path(path)


def check_signature(path: Path, key: Path) -> None:
    """Raise unless the owner of this public key signed exactly this file."""
    _refuse_missing(path)
    public, beside = _public_key(key), signature_path(path)
    from cryptography.exceptions import InvalidSignature  # it is there: there is a key

    values = _read_signature(beside)
    try:
        public.verify(base64.b64decode(str(values["signature"]), validate=True), _message(path))
    except (InvalidSignature, ValueError, KeyError):
        raise InputError(
            f"The signature {beside.name} does not match {path.name} and {key.name}: the file was changed "
            "after it was signed, or somebody else signed it. Nothing was done."
        ) from None


def _message(path: Path) -> bytes:
    """The signed message: the digest of the file, and the signature format."""
    return f"{_FORMAT}\n{sha256_of(path)}\n".encode()


def _read_signature(path: Path) -> dict[str, Any]:
    content = _read(path, "signature", "Sign the file with fairveil sign.")
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or values.get("format") != _FORMAT:
        raise InputError(f"{path.name} is not a signature of this version of fairveil.")
    return values


def _private_key(path: Path) -> "Ed25519PrivateKey":
    serialization, ed25519 = _modules()
    try:
        key = serialization.load_pem_private_key(_read(path, "key", "Make one with fairveil sign --new-key."), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError(f"{path.name} is not a private Ed25519 key without a password, as fairveil sign writes it.")
    own: Ed25519PrivateKey = key
    return own


def _public_key(path: Path) -> "Ed25519PublicKey":
    serialization, ed25519 = _modules()
    try:
        key = serialization.load_pem_public_key(_read(path, "public key", "Ask the signer for it."))
    except ValueError:
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise InputError(f"{path.name} is not a public Ed25519 key, as fairveil sign writes it.")
    own: Ed25519PublicKey = key
    return own


def _read(path: Path, what: str, advice: str) -> bytes:
    if not path.is_file():
        raise InputError(f"There is no {what} {path}. {advice}")
    if path.stat().st_size > _MOST_BYTES:
        raise InputError(f"{path.name} is too large to be a {what}.")
    return path.read_bytes()


def _refuse_missing(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"There is no file {path}.")


def _modules() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InputError("Signatures need the package 'cryptography': pip install 'fairveil[sign]'.") from None
    return serialization, ed25519
