"""Sources of randomness.

Anyone who can reproduce the draws of a release can undo its noise. torch's CPU generator uses only 32 bits of its
seed, and all of them can be tried in two minutes, so nothing that is published is drawn from it. Releases use a
`ByteSource`: the operating system's cryptographic stream, or a keyed stream of the same strength. torch generators
are for training and for measurements.

A release of files is drawn from a `ReleaseSecret`: the operating system's bytes once, and from them a stream for each
batch. A batch that is drawn again, after a failure or by a second worker, then gets the same noise: two different
draws of a row would let its noise be averaged out.
"""

import hashlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_KEY_BYTES = 32


@dataclass(frozen=True)
class Seeds:
    """Seeds for training and measurements: independent named streams, all derived from one number.

    >>> seeds = Seeds(7)
    >>> seeds.child("split").number() == seeds.child("split").number()
    True
    >>> seeds.child("split").number() == seeds.child("codebook").number()
    False
    """

    entropy: int
    path: tuple[int, ...] = ()

    def child(self, *names: str | int) -> "Seeds":
        """The seeds of a component, by name and number."""
        keys = (name if isinstance(name, int) else int.from_bytes(_digest(name.encode())[:4], "big") for name in names)
        return Seeds(self.entropy, (*self.path, *keys))

    def number(self) -> int:
        """A 63-bit seed, for tools that take one."""
        state = np.random.SeedSequence(self.entropy, spawn_key=self.path).generate_state(1, np.uint64)
        return int(state[0] >> np.uint64(1))

    def numpy(self) -> np.random.Generator:
        """A numpy generator."""
        return np.random.default_rng(np.random.SeedSequence(self.entropy, spawn_key=self.path))

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A torch generator. It uses only 32 bits of a seed: never use it for published data."""
        return torch.Generator(device).manual_seed(self.number())


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


class ByteSource:
    """Random numbers from cryptographic bytes."""

    device = torch.device("cpu")

    def bytes(self, rows: int, columns: int) -> NDArray[np.uint8]:
        """Uniform bytes, (rows, columns), different in every call."""
        raise NotImplementedError  # abstract

    def part(self, start: int, stop: int) -> Self:
        """The source for rows `start` to `stop` of a batch: by default the same for all rows."""
        return self

    def uniform(self, rows: int, columns: int) -> Tensor:
        """In [0, 1), on the same grid of 2^-24 that torch uses: float32."""
        bits = self.bytes(rows, 4 * columns).view(np.uint32).reshape(rows, columns) >> 8
        return torch.from_numpy((bits * np.float32(2.0**-24)).astype(np.float32))

    def double(self, rows: int, columns: int) -> Tensor:
        """In (0, 1), at the midpoints of a grid of 2^-53: float64."""
        bits = self.bytes(rows, 8 * columns).view(np.uint64).reshape(rows, columns) >> 11
        return torch.from_numpy((bits + 0.5) * 2.0**-53)

    def keys(self, rows: int) -> NDArray[np.uint64]:
        """Independent 63-bit integers."""
        return np.asarray(self.bytes(rows, 8).view(np.uint64).reshape(rows) >> np.uint64(1))


class SystemRandom(ByteSource):
    """The operating system's cryptographic stream. It has no seed, and no draw can be repeated."""

    def bytes(self, rows: int, columns: int) -> NDArray[np.uint8]:
        """From the operating system."""
        return np.frombuffer(os.urandom(rows * columns), dtype=np.uint8).reshape(rows, columns)


class KeyedStream(ByteSource):
    """SHAKE-256 of a key and a counter: indistinguishable from random without the key, reproducible with it.

    material: what the key is derived from, such as a seed and a table; all of its bits count.
    """

    def __init__(self, *material: bytes) -> None:
        self._key = derived_key(*material)
        self._calls = 0

    def bytes(self, rows: int, columns: int) -> NDArray[np.uint8]:
        """The next bytes of the stream."""
        self._calls += 1
        drawn = hashlib.shake_256(self._key + self._calls.to_bytes(8, "big")).digest(rows * columns)
        return np.frombuffer(drawn, dtype=np.uint8).reshape(rows, columns)


class RowStream(ByteSource):
    """Bytes that depend on a secret and on each row's own key: rows with equal keys get equal draws, in any batch.

    keys: (rows, n) bytes that identify a row.
    """

    def __init__(self, secret: bytes, keys: NDArray[np.uint8]) -> None:
        self._secret = secret
        self._keys = keys
        self._calls = 0

    @classmethod
    def of_rows(cls, secret: bytes, names: Iterable[bytes], codes: NDArray[np.int64]) -> Self:
        """The stream of rows that are identified by a name and their content (rows, columns) together."""
        keys = [hashlib.sha256(b"%d:%b" % (len(name), name) + code.tobytes()).digest()
                for name, code in zip(names, codes, strict=True)]  # fmt: skip
        return cls(secret, np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1))

    def part(self, start: int, stop: int) -> Self:
        """The source for some of the rows."""
        return type(self)(self._secret, self._keys[start:stop])

    def bytes(self, rows: int, columns: int) -> NDArray[np.uint8]:
        """The next bytes for every row."""
        if rows != len(self._keys):
            raise ValueError(f"This source has the keys of {len(self._keys)} rows, and {rows} were asked for.")
        self._calls += 1
        start = hashlib.shake_256(self._secret + self._calls.to_bytes(8, "big"))
        out = bytearray()
        for key in self._keys:
            row = start.copy()
            row.update(key.tobytes())
            out += row.digest(columns)
        return np.frombuffer(bytes(out), dtype=np.uint8).reshape(rows, columns)


@dataclass(frozen=True)
class ReleaseSecret:
    """The secret of one release, from which the key of every batch is derived.

    Whoever has it can repeat all draws; whoever has only the key of a batch can repeat those of this batch.

    >>> secret = ReleaseSecret.of_seed(3)
    >>> secret.key("draw", 0, 1) == secret.key("draw", 0, 1), secret.key("draw", 0, 1) == secret.key("draw", 0, 2)
    (True, False)
    """

    value: bytes = field(repr=False)

    @classmethod
    def new(cls) -> Self:
        """A secret from the operating system."""
        return cls(new_secret())

    @classmethod
    def of_seed(cls, seed: int) -> Self:
        """A reproducible secret, which anyone who knows the seed can compute: for tests."""
        return cls(derived_key(b"fairveil release", whole_number_bytes(seed)))

    def key(self, purpose: str, *place: int) -> bytes:
        """The key for one purpose, at one place."""
        return derived_key(self.value, purpose.encode(), *map(whole_number_bytes, place))


RandomSource = torch.Generator | ByteSource


def new_secret() -> bytes:
    """A secret for a stream, from the operating system."""
    return os.urandom(_KEY_BYTES)


def derived_key(*material: bytes) -> bytes:
    """A key derived from all bits of all parts, each with its length: (a, bc) and (ab, c) give different keys."""
    digest = hashlib.sha256()
    for part in material:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def whole_number_bytes(number: int) -> bytes:
    """All bits of an integer of any size."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def source_of_rows(source: RandomSource, start: int, stop: int) -> RandomSource:
    """The random source for rows `start` to `stop` of a batch."""
    return source.part(start, stop) if isinstance(source, ByteSource) else source


def uniform(source: RandomSource, rows: int, columns: int) -> Tensor:
    """Uniform in [0, 1): (rows, columns), float32."""
    if isinstance(source, ByteSource):
        return source.uniform(rows, columns)
    return torch.rand(rows, columns, generator=source, device=source.device)


def normal(source: RandomSource, rows: int, columns: int) -> Tensor:
    """Standard normal: (rows, columns), float32; bytes are mapped by the inverse distribution function."""
    if isinstance(source, ByteSource):
        drawn: Tensor = torch.special.ndtri(source.double(rows, columns))
        return drawn.float()
    return torch.randn(rows, columns, generator=source, device=source.device)


def seen_slots(rows: int, width: int, dropped: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Dropout as factors (rows, width): 0 with probability `dropped`, else the constant that makes their mean 1.

    On a CPU, each slot uses 16 bits, so one 64-bit draw serves four slots: drawing one float per slot took a tenth of a
    training step. Other devices draw in parallel, and not all of them can draw 64-bit integers.
    """
    if generator.device.type != "cpu":
        seen = torch.rand(rows, width, generator=generator, device=generator.device) >= dropped
        return seen.to(dtype).mul_(1.0 / (1.0 - dropped))
    count = rows * width
    bits = torch.empty(math.ceil(count / 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    words = bits.view(torch.int16)[:count].view(rows, width)
    threshold = min(round(dropped * 2**16), 2**16 - 1)
    return (words >= threshold - 2**15).to(dtype).mul_(2**16 / (2**16 - threshold))
