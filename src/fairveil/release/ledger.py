"""What was released with a veil: a private folder beside it, so that no row is released twice by accident.

Two releases of the same rows average the noise away. The ledger remembers a small keyed sketch of the rows of every
release, tells how much of a new input was released before, and keeps the order in which rows were written, which an
audit of the file needs and no one else may have.
"""

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairveil.errors import InputError
from fairveil.whole import write_whole

#: Hashes that are kept of a release: the smallest ones. Overlaps are estimated to about 1 / sqrt of this.
SKETCH = 4096
#: The share of an input that may have been released before without a word. Tables of few columns repeat some rows by
#: chance; a person who is in two inputs is in both with all that is told of them.
MOST_OVERLAP = 0.2
_BOOK = "ledger.json"
_KEY_BYTES = 16

Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Entry:
    """One release: its file by SHA-256, its rows, the smallest hashes of what it was made from.

    release: a random name. plan: a digest of what was asked for.
    """

    sha256: str
    rows: int
    shuffled: bool
    sketch: tuple[int, ...]
    release: str
    plan: str


class Ledger:
    """The releases of one veil.

    Without its key hashes tell nothing of rows. It is kept here and, while a release is unfinished, in the release's
    own private folder (`workplace`).
    """

    def __init__(self, veil: Path) -> None:
        self.folder = veil.with_name(f"{veil.name}.ledger")
        self._book = self._read()

    @property
    def key(self) -> bytes:
        """The secret by which rows are hashed."""
        return bytes.fromhex(self._book["key"])

    @property
    def entries(self) -> list[Entry]:
        """All releases, the oldest first."""
        return [Entry(**{**row, "sketch": tuple(row["sketch"])}) for row in self._book["releases"]]

    def earlier(self, hashes: Hashes, own: str) -> tuple[float, int]:
        """The largest share of these rows that an earlier release holds, and how many releases hold some.

        own: the name of the release at hand, which may have been entered before it was interrupted.
        """
        shares = [_share(hashes, entry) for entry in self.entries if entry.release != own]
        return max(shares, default=0.0), sum(share > MOST_OVERLAP for share in shares)

    def refuse_repeated(self, hashes: Hashes, own: str, what: str) -> None:
        """Stop a second release of the same rows (or images)."""
        share, _ = self.earlier(hashes, own)
        if share > MOST_OVERLAP:
            raise InputError(
                f"About {100 * share:.0f} % of these {what} were released with this veil before. Releases of the same "
                f"{what} average the noise away, so nothing was written. Hand on the earlier release, or say --again: "
                "what all of them tell together is then measured."
            )

    def hash_by(self, key: str) -> None:
        """Go on with the key of an interrupted first release: its rows were hashed by it, and no book holds it yet."""
        if self._book["releases"]:
            self._refuse_other_key(key)
        self._book["key"] = key

    def enter(self, entry: Entry, order: Path | None) -> None:
        """Write down a release before it gets its name; `order`: a file of the input row of each released row."""
        with self._locked():
            key, self._book = self._book["key"], self._read()
            if self._book["releases"]:
                self._refuse_other_key(key)
            self._book["key"] = key
            for earlier in self.entries:
                if earlier.release == entry.release:  # interrupted after it was entered
                    self._order_path(earlier.sha256).unlink(missing_ok=True)
            others = [asdict(e) for e in self.entries if e.release != entry.release]
            self._book["releases"] = [*others, asdict(entry)]
            if order is not None:
                order.replace(self._order_path(entry.sha256))
            write_whole(self.folder / _BOOK, json.dumps(self._book).encode())

    def find(self, sha256: str) -> Entry | None:
        """The release with this content."""
        return next((entry for entry in self.entries if entry.sha256 == sha256), None)

    def order(self, entry: Entry) -> NDArray[np.int64] | None:
        """Of which input row each released row is; None if that was not kept."""
        if not entry.shuffled:
            return np.arange(entry.rows)
        path = self._order_path(entry.sha256)
        return np.fromfile(path, dtype=np.int64) if path.exists() else None

    def _order_path(self, sha256: str) -> Path:
        return self.folder / f"order-{sha256[:16]}"

    def _refuse_other_key(self, key: str) -> None:
        """Two first releases at the same time: the one that comes second has hashed its rows by another key."""
        if self._book["key"] != key:
            raise InputError(
                "Another first release with this veil was finished at the same moment. Run this one again."
            )

    def _read(self) -> dict[str, Any]:
        try:
            book = json.loads((self.folder / _BOOK).read_text("utf-8"))
            bytes.fromhex(book["key"])
            assert isinstance(book["releases"], list)
        except FileNotFoundError:
            return {"key": secrets.token_hex(_KEY_BYTES), "releases": []}
        except (ValueError, KeyError, TypeError, AssertionError):
            raise InputError(
                f"The ledger {self.folder.name} cannot be read. Restore it: without it nobody knows what was released."
            ) from None
        return dict(book)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @classmethod
    def holding(cls, sha256: str, folders: Sequence[Path]) -> tuple[Self, Entry] | None:
        """The ledger in one of these folders that knows a release by its content."""
        for folder in folders:
            for found in sorted(folder.glob("*.veil.ledger")):
                ledger = cls(found.with_name(found.name.removesuffix(".ledger")))
                entry = ledger.find(sha256)
                if entry is not None:
                    return ledger, entry
        return None


class Sketch:
    """The smallest distinct hashes of the rows that were added: how much two inputs share, in 32 kB."""

    def __init__(self) -> None:
        self.hashes: Hashes = np.empty(0, dtype=np.uint64)

    def add(self, hashes: Hashes) -> None:
        """Take in the rows of a batch."""
        self.hashes = np.unique(np.concatenate([self.hashes, hashes]))[:SKETCH]


def row_hashes(table: pa.Table, key: bytes) -> Hashes:
    """A keyed 64-bit hash of every row: a random linear map of its cells' own hashes, then a mixing step.

    The map is drawn anew for each ledger, so that two rows collide with a chance of about 2^-63, and hashes of two
    ledgers have nothing to do with each other.
    """
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big") % 2**128))
    total = np.zeros(table.num_rows, dtype=np.uint64)
    for name in sorted(table.column_names):
        cells, weights = _cell_codes(table[name]), generator.integers(0, 2**64, 2, dtype=np.uint64)
        for part, weight in zip((cells & np.uint64(0xFFFFFFFF), cells >> np.uint64(32)), weights, strict=True):
            total += (part + np.uint64(1)) * (weight | np.uint64(1))
    return _mixed(total)


def _cell_codes(column: pa.ChunkedArray) -> Hashes:
    """A number for each cell that is the same wherever the value occurs."""
    if pa.types.is_string(column.type):
        coded = column.combine_chunks().dictionary_encode()
        words = [_text_code(value) for value in coded.dictionary.to_pylist()]
        codes = np.array([*words, 0], dtype=np.uint64)
        indices = pc.fill_null(coded.indices, len(words)).to_numpy(zero_copy_only=False)
        return np.asarray(codes[indices.astype(np.int64)])
    numbers = pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    return _mixed(np.ascontiguousarray(numbers + 0.0).view(np.uint64))


def _text_code(text: str) -> int:
    return bytes_hash(text.encode(), b"")


def bytes_hash(content: bytes, key: bytes) -> int:
    """A keyed 64-bit hash."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8, key=key).digest(), "big")


def _mixed(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value (the finaliser of splitmix64)."""
    values = values.copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        values ^= values >> np.uint64(shift)
        values *= np.uint64(factor)
    return values ^ (values >> np.uint64(31))


def _share(hashes: Hashes, entry: Entry) -> float:
    """Which share of the distinct rows behind `hashes` is in the release.

    A release keeps its smallest hashes; of ours, those below its largest kept one can be looked up there.
    """
    kept = np.array(entry.sketch, dtype=np.uint64)
    if not len(kept) or not len(hashes):
        return 0.0
    within = hashes if len(kept) < SKETCH else hashes[hashes <= kept[-1]]
    if len(within) < 1:
        return 0.0
    return float(np.isin(within, kept).mean())
