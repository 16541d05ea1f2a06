"""Where draws come from: a seeded generator, or the operating system.

Whoever knows the seed of a release can undo its noise. Files are therefore drawn from `SystemRandom`: the operating
system's cryptographic stream, of which nothing is stored.
"""

import math
import os

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class SystemRandom:
    """Numbers from the operating system's cryptographic stream. There is no seed, and no draw can be repeated."""

    device = torch.device("cpu")

    def uniform(self, rows: int, columns: int) -> Tensor:
        """In [0, 1), on the same grid of 2^-24 as torch's own: float32."""
        bits = np.frombuffer(os.urandom(4 * rows * columns), dtype=np.uint32) >> 8
        return torch.from_numpy((bits * np.float32(2.0**-24)).astype(np.float32).reshape(rows, columns))

    def normal(self, rows: int, columns: int) -> Tensor:
        """Standard normal, by the inverse of its distribution at a uniform number of 53 bits."""
        bits = np.frombuffer(os.urandom(8 * rows * columns), dtype=np.uint64) >> 11
        inside = torch.from_numpy(((bits + 0.5) * 2.0**-53).reshape(rows, columns))
        drawn: Tensor = torch.special.ndtri(inside)
        return drawn.float()


RandomSource = torch.Generator | SystemRandom


def uniform(source: RandomSource, rows: int, columns: int) -> Tensor:
    """Uniform in [0, 1): (rows, columns)."""
    if isinstance(source, SystemRandom):
        return source.uniform(rows, columns)
    return torch.rand(rows, columns, generator=source, device=source.device)


def normal(source: RandomSource, rows: int, columns: int) -> Tensor:
    """Standard normal: (rows, columns)."""
    if isinstance(source, SystemRandom):
        return source.normal(rows, columns)
    return torch.randn(rows, columns, generator=source, device=source.device)


def seen_slots(rows: int, width: int, dropped: float, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Dropout as factors (rows, width): 0 with the chance `dropped`, else what keeps the mean at 1.

    On a CPU sixteen bits decide, four slots to one number of the generator: with a float for each slot, drawing took a
    tenth of a training step. Other devices draw side by side, and not all of them draw whole words.
    """
    if generator.device.type != "cpu":
        seen = torch.rand(rows, width, generator=generator, device=generator.device) >= dropped
        return seen.to(dtype).mul_(1.0 / (1.0 - dropped))
    count = rows * width
    bits = torch.empty(math.ceil(count / 4), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    words = bits.view(torch.int16)[:count].view(rows, width)
    threshold = min(round(dropped * 2**16), 2**16 - 1)
    return (words >= threshold - 2**15).to(dtype).mul_(2**16 / (2**16 - threshold))


def random_keys(source: RandomSource, rows: int) -> NDArray[np.uint64]:
    """Independent keys of 63 bits: to sort rows by them is to shuffle them."""
    if isinstance(source, SystemRandom):
        return np.frombuffer(os.urandom(8 * rows), dtype=np.uint64) >> np.uint64(1)
    return torch.randint(2**63 - 1, (rows,), generator=source).numpy().astype(np.uint64)
