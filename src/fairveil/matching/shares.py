"""Which group's record each row receives, so that every group receives a sample of the whole population.

If a fraction n_t / n of the rows of every group s receives a record of group t, and these records are a simple random
sample of group t, then every record is equally likely to go to every group: the released record is independent of the
group. The numbers n_s n_t / n are not whole, so they are rounded at random, with the right expectation, such that all
row and column sums stay exact (controlled rounding).
"""

import numpy as np
from numpy.typing import NDArray

from fairveil._utils.randomness import ByteSource

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: A fraction closer than this to 0 or 1 counts as whole.
_WHOLE = 1e-9


def shuffled(rows: Ints, source: ByteSource) -> Ints:
    """The rows in random order."""
    return np.asarray(rows[np.argsort(source.keys(len(rows)), kind="stable")])


def exchange_counts(sizes: Ints, source: ByteSource) -> Ints:
    """How many rows of each group (first axis) receive a record of each group (second axis).

    The expected counts are sizes_s sizes_t / n, and each group receives as many records as it has rows and gives away
    each of its records once.
    """
    return round_table(np.outer(sizes, sizes) / sizes.sum(), source)


def round_table(table: Floats, source: ByteSource) -> Ints:
    """Round a table with whole row and column sums: the sums stay, and the expectation of every cell is its value.

    Every row and column has no fractional cell or at least two, so fractional cells contain a cycle that alternates
    between rows and columns. Its cells are raised and lowered in turn until one of them is whole, in one of two
    directions, drawn such that the expectation stays (dependent rounding: Gandhi et al., 2006).
    """
    whole = np.floor(table + _WHOLE)
    rest = np.clip(table - whole, 0.0, 1.0)
    rest[rest < _WHOLE] = 0.0
    while (cycle := _cycle(rest)) is not None:
        up, down = (tuple(zip(*cycle[start::2], strict=True)) for start in (0, 1))
        forth = min(float((1.0 - rest[up]).min()), float(rest[down].min()))
        back = min(float(rest[up].min()), float((1.0 - rest[down]).min()))
        step = forth if float(source.double(1, 1)) < back / (forth + back) else -back
        rest[up] += step
        rest[down] -= step
        rest[rest < _WHOLE] = 0.0
        rest[rest > 1.0 - _WHOLE] = 1.0
    return np.asarray(np.rint(whole + rest), dtype=np.int64)


def _cycle(rest: Floats) -> list[tuple[int, int]] | None:
    """Fractional cells that alternate between sharing a row and sharing a column, and close; None if all are whole.

    A walk over rows (axis 0) and columns (axis 1), from cell to cell, up to the first row or column met again.
    """
    fractional = (rest > 0.0) & (rest < 1.0)
    if not fractional.any():
        return None
    axis, position = 0, int(np.flatnonzero(fractional.any(axis=1))[0])
    path: list[tuple[int, int]] = []
    met = {(axis, position): 0}
    while True:
        line = np.flatnonzero(fractional[position] if axis == 0 else fractional[:, position])
        cells = [(position, int(other)) if axis == 0 else (int(other), position) for other in line]
        path.append(next(cell for cell in cells if not path or cell != path[-1]))
        axis = 1 - axis
        position = path[-1][axis]
        if (axis, position) in met:
            return path[met[axis, position] :]
        met[axis, position] = len(path)


def assign(counts: Ints, groups: Ints, source: ByteSource) -> tuple[Ints, Ints]:
    """For every row: the group whose record it receives, and the group that receives its record.

    counts: how many rows of each group receive a record of each group. A row that receives a record of its own group
    keeps its own. All choices are uniform within a group.
    """
    receives, gives = groups.copy(), groups.copy()
    for number in range(len(counts)):
        movers = shuffled(np.flatnonzero(groups == number), source)[counts[number, number] :]
        others = np.flatnonzero(np.arange(len(counts)) != number)
        receives[movers] = np.repeat(others, counts[number, others])
        gives[shuffled(movers, source)] = np.repeat(others, counts[others, number])
    return receives, gives
