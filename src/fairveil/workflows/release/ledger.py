"""The ledger of a veil's releases: a private folder next to the veil, so that no row is released twice by accident.

Releases by matching have no veil: their ledger lies next to the schema and belongs to it in the same way.

Two releases of the same rows allow the noise to be averaged out. The ledger stores a small keyed sketch of the rows of
every release, reports how much of a new input was released before, and keeps the order in which rows were written,
which an audit needs and nobody else may have. It also records which rows of its input the veil was fitted on, so that
attackers can learn from the others. It holds the secret of a release while it is being made. Its key also seals audits
and certificates, so that nothing else is added to a card.

A ledger belongs to a veil by the SHA-256 of the veil's content. Its location is recorded in the user's state folder, so
that it is also found for a copy of the veil in another folder.
"""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from fairveil._utils.atomic import PRIVATE, replacing, sha256_of, write_atomic
from fairveil._utils.errors import InputError
from fairveil._utils.randomness import ReleaseSecret, derived_key
from fairveil.workflows.release.sketch import Overlap, Sketch, overlap, same_rows, tells_rows_apart

#: The share of an input, beyond chance, that may have been released before without confirmation.
MOST_OVERLAP = 0.02
#: Where locations of ledgers are recorded; by default the user's state folder.
STATE_VARIABLE = "FAIRVEIL_STATE_HOME"
_FORMAT = "fairveil-ledger-3"
_KEY_BYTES = 16
#: Positions of an order that are read at once.
_ORDER_ROWS = 2**20


@dataclass(frozen=True)
class Entry:
    """One release.

    release: a random name. sha256: of the file as written. plan: a digest of the settings. original: a keyed digest of
    the input rows in their order. distortion: the mean over all rows as written, by kind of column; empty if it was not
    measured. sketch, counts: the smallest hashes of the input rows and how often each occurs.
    """

    release: str
    sha256: str
    rows: int
    shuffled: bool
    plan: str
    original: str
    distortion: dict[str, float]
    sketch: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read the result of `asdict`."""
        return cls(**{**values, "sketch": tuple(values["sketch"]), "counts": tuple(values["counts"])})


@dataclass(frozen=True)
class FittedInput:
    """The input that a veil was fitted to: which of its rows the encoder saw.

    original: a keyed digest of all rows of the input in their order, as of a release. rows: how many there are. fitted:
    one bit per row, packed, as hexadecimal digits; the other rows are held out for audits. sketch, counts: of the
    fitted rows.
    """

    original: str
    rows: int
    fitted: str
    sketch: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def of(cls, original: str, sketch: Sketch, fitted: NDArray[np.bool_]) -> Self:
        """From plain arrays."""
        hashes, counts = (tuple(int(value) for value in values) for values in (sketch.hashes, sketch.counts))
        return cls(original, len(fitted), np.packbits(fitted).tobytes().hex(), hashes, counts)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read the result of `asdict`; raises ValueError if its parts contradict each other."""
        made = cls(**{**values, "sketch": tuple(values["sketch"]), "counts": tuple(values["counts"])})
        if len(bytes.fromhex(made.fitted)) != -(-made.rows // 8):
            raise ValueError("one bit per row is needed")
        return made

    def rows_of(self, entry: Entry) -> NDArray[np.bool_] | None:
        """Which input rows of a release the encoder was fitted on; None if that cannot be determined.

        A release of the same input: the recorded rows. A release of an input that shares no rows with it: none.
        """
        if entry.original == self.original and entry.rows == self.rows:
            packed = np.frombuffer(bytes.fromhex(self.fitted), dtype=np.uint8)
            return np.unpackbits(packed, count=self.rows).astype(bool)
        released, fitted = (Sketch.of(one.sketch, one.counts) for one in (entry, self))
        if not tells_rows_apart(fitted) or overlap(released, [fitted]).share > MOST_OVERLAP:
            return None
        return np.zeros(entry.rows, dtype=bool)


class Ledger:
    """The releases of one veil, identified by its SHA-256. Without the key, hashes reveal nothing about rows."""

    def __init__(self, folder: Path, veil_sha256: str) -> None:
        self.folder = folder
        self.veil_sha256 = veil_sha256
        self._book = self._read()

    @classmethod
    def of(cls, veil: Path) -> Self:
        """The ledger of a veil: the folder next to it, or that of the veil of which it is a copy."""
        sha256 = sha256_of(veil)
        beside = veil.absolute().with_name(f"{veil.name}.ledger")
        noted = _noted(sha256)
        known = [folder for folder in dict.fromkeys([beside, *([noted] if noted else [])])
                 if (folder / _book_name(sha256)).exists()]  # fmt: skip
        ledgers = [cls(folder, sha256) for folder in known] or [cls(beside, sha256)]
        if len({ledger._book["key"] for ledger in ledgers}) > 1:
            raise InputError(
                f"Two ledgers hold releases of this veil, {ledgers[0].folder} and {ledgers[1].folder}, and cannot be "
                "compared. Use the veil next to the ledger that is valid."
            )
        first = ledgers[0]
        known_names = {entry.release for entry in first.entries}
        first._copied = [e for other in ledgers[1:] for e in other.entries if e.release not in known_names]
        return first

    #: Entries of another copy of this ledger.
    _copied: list[Entry] = []  # noqa: RUF012

    @property
    def key(self) -> bytes:
        """The secret key for hashing rows. Workers of a cluster get it; the key of seals cannot be derived from it."""
        return derived_key(self._root, b"rows")[:_KEY_BYTES]

    @property
    def _root(self) -> bytes:
        return bytes.fromhex(self._book["key"])

    @property
    def entries(self) -> list[Entry]:
        """All releases, the oldest first."""
        return [Entry.from_dict(row) for row in self._book["releases"]] + self._copied

    @property
    def fitted(self) -> FittedInput | None:
        """The input that the veil was fitted to; None if it was not recorded."""
        values = self._book.get("fitted")
        return None if values is None else FittedInput.from_dict(values)

    def record_fit(self, fitted: FittedInput) -> None:
        """Record the input that the veil was fitted to."""
        with self.locked():
            self._book["fitted"] = asdict(fitted)
            write_atomic(self._book_path, json.dumps(self._book).encode(), PRIVATE)

    def prepare(self) -> None:
        """Check that entries can be written, before a row is drawn."""
        try:
            with self.locked():
                write_atomic(self._book_path, json.dumps(self._book).encode(), PRIVATE)
        except OSError as error:
            raise InputError(
                f"The ledger {self.folder} cannot be written ({error.strerror}), so releases could not be recorded. "
                "Copy the veil to a folder of yours and release from there. Nothing was written."
            ) from None
        _note(self.veil_sha256, self.folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, so that nobody else enters a release, with all earlier entries loaded."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self._check_folder()
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._book_path.exists():
                self._book = self._read()
            yield
        finally:
            os.close(lock)

    def earlier(self, sketch: Sketch, own: str) -> tuple[float, int]:
        """The share of these rows, beyond chance, in earlier releases, and how many releases contain some.

        own: the name of the current release, which may have been entered before it was interrupted.
        """
        others = [Sketch.of(entry.sketch, entry.counts) for entry in self.entries if entry.release != own]
        each = [Overlap(1.0, 1.0) if same_rows(sketch, other) else overlap(sketch, [other]) for other in others]
        together = overlap(sketch, others)
        holding = sum(found.sure > MOST_OVERLAP for found in each)
        if together.sure > MOST_OVERLAP and not holding:
            holding = sum(found.share > 0.0 for found in each)
        return max([together.share, *(found.share for found in each)]) if holding else 0.0, holding

    def refuse_repeated(self, sketch: Sketch, own: str, what: str) -> None:
        """Raise for a second release of the same rows (or images)."""
        share, releases = self.earlier(sketch, own)
        if releases:
            raise InputError(
                f"About {100 * share:.0f} % of these {what} were released with this veil before. Releases of the same "
                f"{what} average out the noise, so nothing was written. Publish the earlier release, or pass --again: "
                "the leakage of all of them together is then measured."
            )

    def enter(self, entry: Entry) -> None:
        """Record a release before it is renamed. Call it while `locked`."""
        others = [row for row in self._book["releases"] if row["release"] != entry.release]
        self._book["releases"] = [*others, asdict(entry)]
        write_atomic(self._book_path, json.dumps(self._book).encode(), PRIVATE)

    @contextmanager
    def order_file(self, release: str) -> Iterator[BinaryIO]:
        """A file for the input row of each released row. It is written inside the ledger from the first byte."""
        with replacing(self._order_path(release), PRIVATE) as partial, partial.open("wb") as file:
            yield file

    def forget_order(self, release: str) -> None:
        """Remove the order of a release."""
        self._order_path(release).unlink(missing_ok=True)

    def store_secret(self, release: str, secret: ReleaseSecret) -> None:
        """Keep the secret of a release while it is being made, and afterwards if the curator wants to repeat it."""
        write_atomic(self._secret_path(release), secret.value, PRIVATE)

    def secret(self, release: str) -> ReleaseSecret | None:
        """The secret of a release; None if it was destroyed."""
        path = self._secret_path(release)
        return ReleaseSecret(path.read_bytes()) if path.is_file() else None

    def destroy_secret(self, release: str) -> None:
        """Remove the secret of a release: from then on nobody can repeat its draws."""
        self._secret_path(release).unlink(missing_ok=True)

    def find(self, sha256: str) -> Entry | None:
        """The release with this content."""
        return next((entry for entry in self.entries if entry.sha256 == sha256), None)

    def order(self, entry: Entry) -> NDArray[np.int64] | None:
        """The index of the input row of each released row; None if it was not stored. It is read as it is needed."""
        if not entry.shuffled:
            return np.arange(entry.rows)
        path = self._order_path(entry.release)
        if not path.exists():
            return None
        if path.stat().st_size != 8 * entry.rows or not _is_permutation(path, entry.rows):
            raise InputError(f"The order of this release in {self.folder.name} is damaged. Restore the ledger.")
        return np.memmap(path, dtype=np.int64, mode="r", shape=(entry.rows,))

    def seal(self, values: dict[str, Any]) -> str:
        """A value that only the owner of this ledger can compute from plain values (without their own "seal")."""
        plain = json.loads(json.dumps({k: v for k, v in values.items() if k != "seal"}))  # as in a file
        text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
        return hmac.new(b"fairveil seal" + self._root, text.encode(), hashlib.sha256).hexdigest()

    def sealed(self, values: dict[str, Any]) -> bool:
        """Whether plain values carry the seal of this ledger."""
        return hmac.compare_digest(str(values.get("seal")).encode(), self.seal(values).encode())

    @classmethod
    def holding(cls, sha256: str, folders: Sequence[Path]) -> tuple[Self, Entry] | None:
        """The ledger that contains a release with this content.

        Searched are these folders and the folders in them (a frontier's veils have their own), and what is recorded for
        the user.
        """
        found = [path for folder in folders for depth in ("", "*/") for path in sorted(folder.glob(f"{depth}*.ledger"))]
        for place in dict.fromkeys([*found, *_all_noted()]):
            for book in sorted(place.glob("book-*.json")):
                ledger = cls(place, book.name.removeprefix("book-").removesuffix(".json"))
                entry = ledger.find(sha256)
                if entry is not None:
                    return ledger, entry
        return None

    def _order_path(self, release: str) -> Path:
        return self.folder / f"order-{release}"

    def _secret_path(self, release: str) -> Path:
        return self.folder / f"secret-{release}"

    @property
    def _book_path(self) -> Path:
        return self.folder / _book_name(self.veil_sha256)

    def _check_folder(self) -> None:
        """Anyone who could write to the ledger could read its secrets or change its records."""
        status = self.folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise InputError(f"The ledger {self.folder} is not a folder of yours. Find out who made it, and remove it.")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InputError(
                f"The ledger {self.folder} is open to others. If it is yours and unchanged, run chmod 700 on it."
            )

    def _read(self) -> dict[str, Any]:
        try:
            self._check_folder()
            book = json.loads(self._book_path.read_text("utf-8"))
            right = book["format"] == _FORMAT and book["veil"] == self.veil_sha256 and len(book["key"]) > 0
            bytes.fromhex(book["key"])
            [Entry.from_dict(row) for row in book["releases"]]
            if book.get("fitted") is not None:
                FittedInput.from_dict(book["fitted"])
        except FileNotFoundError:
            key = secrets.token_hex(_KEY_BYTES)
            return {"format": _FORMAT, "veil": self.veil_sha256, "key": key, "releases": []}
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            right = False
        if not right:
            raise InputError(
                f"The ledger {self.folder.name} cannot be read. Restore it: it is the only record of what was released."
            )
        return dict(book)


def _book_name(veil_sha256: str) -> str:
    return f"book-{veil_sha256}.json"


def _state_folder() -> Path | None:
    given = os.environ.get(STATE_VARIABLE)
    if given:
        return Path(given)
    with suppress(RuntimeError):  # no home
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "fairveil"
    return None


def _note(veil_sha256: str, folder: Path) -> None:
    """Record the location of a veil's ledger. Without a writable state folder, it is found only next to the veil."""
    state = _state_folder()
    if state is None:
        return
    with suppress(OSError):
        (state / "ledgers").mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(state / "ledgers" / veil_sha256, str(folder.absolute()).encode(), PRIVATE)


def _noted(veil_sha256: str) -> Path | None:
    state = _state_folder()
    with suppress(OSError, ValueError):
        if state is not None:
            return Path((state / "ledgers" / veil_sha256).read_text("utf-8"))
    return None


def _all_noted() -> list[Path]:
    state = _state_folder()
    if state is None or not (state / "ledgers").is_dir():
        return []
    found = (_noted(path.name) for path in sorted((state / "ledgers").iterdir()))
    return [path for path in found if path is not None and path.is_dir()]


def _is_permutation(path: Path, rows: int) -> bool:
    """Whether a file holds each number below `rows` once, in the memory of one byte per number."""
    seen = np.zeros(rows, dtype=bool)
    for start in range(0, rows, _ORDER_ROWS):
        piece = np.fromfile(path, dtype=np.int64, count=_ORDER_ROWS, offset=8 * start)
        if len(piece) and not 0 <= piece.min() <= piece.max() < rows:
            return False
        seen[piece] = True
    return bool(seen.all())
