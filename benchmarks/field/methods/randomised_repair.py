"""Randomised repair: Gordaliza et al., Obtaining fairness using optimal transport theory (2019), for two groups.

Every row is moved, with probability `amount`, to the Wasserstein barycentre of the groups: the point between it and the
row of the other group that an optimal plan pairs it with. It repairs the rows that it is given.
"""

from collections.abc import Iterator

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from field.coding import Vectors
from field.protocol import Fitted, Method, Output, Rows, vectors

#: Rows of the larger group that are matched at once.
_BLOCK = 1500


def barycentre(x: np.ndarray, second: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Each row at its place in the barycentre, weighted by the shares of the groups.

    The smaller group is repeated until it is as large as the other, so a plan between equal weights is a matching; a
    row of the smaller group takes the place of one of its partners, drawn at random.
    """
    few, many = sorted((np.flatnonzero(second), np.flatnonzero(~second)), key=len)
    moved, share = x.copy(), len(few) / len(x)
    many = generator.permutation(many)
    repeated = generator.permutation(np.resize(generator.permutation(few), len(many)))
    for start in range(0, len(many), _BLOCK):
        rows, others = many[start : start + _BLOCK], repeated[start : start + _BLOCK]
        first, chosen = linear_sum_assignment(cdist(x[rows], x[others], "sqeuclidean"))
        rows, others = rows[first], others[chosen]
        moved[rows] = (1.0 - share) * x[rows] + share * x[others]
        moved[others] = moved[rows]
    return moved


def fit(train: Rows, seed: int) -> Iterator[Fitted]:
    coder, label = Vectors(train.X), np.unique(train.group)[1]
    for amount in (0.5, 0.8, 1.0):

        def apply(rows: Rows, amount: float = amount) -> Output:
            generator = np.random.default_rng(seed)
            x = coder(rows.X)
            moved = generator.random(len(x)) < amount
            return vectors(np.where(moved[:, None], barycentre(x, rows.group == label, generator), x))

        yield Fitted(f"amount {amount:g}", apply)


METHODS = [Method("randomised repair", fit, "Gordaliza et al. 2019, written from the paper", sees=True, two=True)]
