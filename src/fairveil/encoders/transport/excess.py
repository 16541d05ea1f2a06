"""Optimal transport of an excess: pairs of rows above and below the prior whose exchanges balance it.

A row of excess e(x) = P(S = 1 | x) - P(S = 1) is divided into pieces, each matched with a piece of a row of opposite
excess. A piece of excess w holds w / a of a row whose excess is a, and w / b of its partner. If the first takes the
other's record with probability a / (a + b), and the second the first's with b / (a + b), then the excess of everything
that is released as either record is zero, and both records occur as often as before. This costs 2 w / (a + b) times the
distance, so that the least total cost is an optimal transport.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fairveil.encoders.transport.coupling import Cost, Coupling

Floats = NDArray[np.float64]


def couple_excess(
    cost: Cost,
    excess: Floats,
    generator: np.random.Generator,
    *,
    size: int = 1000,
    passes: int = 1,
    numbers: NDArray[np.int64] | None = None,
    standing: Floats | None = None,
) -> Coupling:
    """Match pieces of rows above the prior with pieces of rows below it, `size` rows at a time.

    excess: (rows,). numbers: indices of the rows to match, if some count more than once. standing: (rows, coordinates);
    their squared distances are added to the cost when rows are matched.
    """
    numbers = np.arange(len(excess)) if numbers is None else numbers
    jobs = []
    for _ in range(passes):
        order = generator.permutation(numbers)
        jobs += [(part, generator.random(2)) for part in np.array_split(order, math.ceil(len(order) / size))]
    with ThreadPoolExecutor() as pool:
        found = [
            pair
            for pair in pool.map(lambda job: _match(cost, excess, job[0], job[1], standing), jobs)
            if pair is not None
        ]
    if not found:
        empty = np.zeros(0, dtype=np.int64)
        return Coupling(empty, empty, None, np.zeros(0), 0.0)
    above, below, spent, mass = (np.concatenate([pair[i] for pair in found]) for i in range(4))
    moved = float((mass * 2.0 * spent / (excess[above] - excess[below])).sum() / mass.sum())
    pairs = np.append(above, below), np.append(below, above)
    return Coupling(*pairs, None, np.zeros(0), moved * _total(excess[numbers]))


def _total(excess: Floats) -> float:
    """The excess above the prior, as a mean over all rows."""
    return float(np.maximum(excess, 0.0).mean())


def _match(
    cost: Cost, excess: Floats, rows: NDArray[np.int64], start: Floats, standing: Floats | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats, Floats] | None:
    """As many pairs as rows: indices of both rows, the distance, and the excess that a pair stands for."""
    own = excess[rows]
    if not (own > 0.0).any() or not (own < 0.0).any():
        return None
    above, below = (_pieces(rows, np.maximum(sign * own, 0.0), at) for sign, at in zip((1.0, -1.0), start, strict=True))
    prices = cost(above, below)
    total = prices if standing is None else prices + cdist(standing[above], standing[below], "sqeuclidean")
    i, j = linear_sum_assignment(total / (excess[above][:, None] - excess[below][None]))
    return above[i], below[j], prices[i, j], np.full(len(i), _total(own) / len(i))


def _pieces(rows: NDArray[np.int64], mass: Floats, start: float) -> NDArray[np.int64]:
    """As many pieces as rows, each row as often as its share of the mass, by systematic sampling."""
    total = np.cumsum(mass)
    at = (np.arange(len(rows)) + start) * total[-1] / len(rows)
    return np.asarray(rows[np.searchsorted(total, at, side="right").clip(max=len(rows) - 1)])
