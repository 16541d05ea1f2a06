"""Blocks of similar rows in which every group has the share that it has in the table.

Values that are exchanged at random within such a block say nothing about the group of the row that receives them. Group
sizes are rarely whole multiples of the number of blocks, so shares differ a little from block to block. What that can
tell is counted: the total variation between the blocks of two groups bounds the gap of any predictor.
"""

import numpy as np

from fairveil._utils.errors import InputError
from fairveil._utils.randomness import ByteSource
from fairveil.matching.pairs import Points, match
from fairveil.matching.shares import Floats, Ints, shuffled

#: Larger blocks would no longer consist of similar rows. Without a bound to certify, groups so small that they would
#: need larger ones are spread as far as they reach.
_LARGEST = 200
#: Rows of an exact matching. On UCI Adult 800 cost 0.6 % less and take three times as long.
_SOLVED = 400


def block_count(sizes: Ints, names: list[str], certified: float | None) -> int:
    """The largest number of blocks whose shares of the groups are equal enough to certify a bound.

    sizes: rows of each group. Without a bound, one block per row of the smallest group that blocks can hold.
    """
    present = np.flatnonzero(sizes)
    least = sizes.sum() / _LARGEST
    small = [names[group] for group in present if sizes[group] < least]
    if small and certified is not None:
        raise InputError(
            f"The group {small[0]!r} has too few rows to be in every block of {_LARGEST} rows or fewer. Merge small "
            "groups of S, or pass certified=None with a budget: then nothing is certified for them."
        )
    found = sizes[present][sizes[present] >= least]
    smallest = int(found.min())
    if certified is None:
        return smallest
    counts = [smallest // rows for rows in range(1, smallest + 1) if sizes.sum() / (smallest // rows) <= _LARGEST]
    for count in counts:
        uneven = np.sort([_unevenness(int(size), count) for size in found])
        if uneven[-2:].sum() <= certified:
            return count
    raise InputError(
        f"The groups cannot be mixed evenly enough in blocks of at most {_LARGEST} rows to certify {certified:g}. "
        "Raise certified."
    )


def _unevenness(size: int, count: int) -> float:
    """The total variation between rows spread over blocks as evenly as possible and the uniform distribution."""
    each, rest = size / count, size / count - size // count
    return rest * (1.0 - rest) / each


def form_blocks(points: Points, groups: Ints, count: int, source: ByteSource) -> Ints:
    """The block of each row, from 0 to count - 1: similar rows, each group spread over the blocks evenly.

    A block is formed around a random row of the smallest group; the other rows are matched with these.
    """
    present, sizes = np.unique(groups, return_counts=True)
    enough = np.flatnonzero(sizes >= count)
    of = present[enough[np.argmin(sizes[enough])]]
    centers = shuffled(np.flatnonzero(groups == of), source)[:count]
    block = np.full(len(points), -1, dtype=np.int64)
    block[centers] = np.arange(count)
    for group in present:
        rows = np.flatnonzero((groups == group) & (block < 0))
        if len(rows):
            # Repeated in full before any center is used once more.
            places = np.resize(shuffled(centers, source), len(rows))
            rows, places = match(points, rows, places, source, block_rows=_SOLVED)
            block[rows] = block[places]
    return block


def shuffle_within(blocks: Ints, source: ByteSource) -> Ints:
    """For each row, a row of the same block: all permutations within a block are equally likely."""
    order = np.argsort(blocks, kind="stable")
    drawn = np.lexsort((source.keys(len(blocks)), blocks))
    chosen = np.empty_like(order)
    chosen[order] = drawn
    return chosen


def spread_of(points: Points, blocks: Ints, count: int) -> Floats:
    """The expected cost, in sum over its rows, of permuting each block at random.

    The mean squared distance between two rows drawn from a block is twice its variance.
    """
    sizes = np.bincount(blocks, minlength=count)
    squares = np.bincount(blocks, np.square(points).sum(axis=1, dtype=np.float64), minlength=count)
    sums = np.zeros((count, points.shape[1]))
    np.add.at(sums, blocks, points)
    of_means = np.square(sums).sum(axis=1) / np.maximum(sizes, 1)
    return np.asarray(2.0 * np.maximum(squares - of_means, 0.0))


def cheapest(costs: Floats, most: float) -> np.ndarray:
    """Which blocks exchange values: as many as their total cost allows, the cheapest first.

    Blocks have about the same share of every group, so this minimises the share of rows that stay, and with it the
    bound on the gap: it is the solution of the linear program min sum(stay) subject to the cost.
    """
    order = np.argsort(costs, kind="stable")
    moves = np.zeros(len(costs), dtype=bool)
    moves[order[np.cumsum(costs[order]) <= most]] = True
    return moves


def group_shares(blocks: Ints, groups: Ints, count: int, number: int) -> Floats:
    """The share of each group's rows in each block: (blocks, groups)."""
    table = np.zeros((count, number))
    np.add.at(table, (blocks, groups), 1.0)
    return np.asarray(table / np.maximum(table.sum(axis=0), 1.0))


def variation_bound(shares: Floats, moves: np.ndarray, one: int, other: int) -> float:
    """An upper bound on the total variation between the released rows of two groups.

    In a block that exchanges its values, every row has the same distribution. Rows of the other blocks count as if they
    told the group.
    """
    apart = np.abs(shares[moves, one] - shares[moves, other]).sum()
    return float(min(1.0, 0.5 * (apart + shares[~moves, one].sum() + shares[~moves, other].sum())))
