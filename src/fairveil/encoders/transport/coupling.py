"""Optimal matchings between groups of rows: for each row, a row of another group that is close to it.

If every row of a group is released as the row of the reference group with which an optimal matching pairs it, the group
is released with exactly the reference's distribution, at the minimum mean cost (the optimal transport of one sample to
the other). No adversary is needed for this. If all rows are the reference, a row of group s stays with probability p_s,
its group's share of all rows, and is otherwise released as its partner, a row of the other groups.

Matchings are exact on a few thousand rows at a time. Subsets of rows are slightly farther apart than the complete
groups, so the cost is slightly above that of the groups themselves.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

#: cost(sources, targets): the cost of releasing each target row in place of each source row, for two lists of row
#: indices: (sources, targets).
Cost = Callable[[np.ndarray, np.ndarray], np.ndarray]

#: Number of classes tried as the reference, the largest first; all rows together are tried as well.
_CANDIDATES = 3
#: Rows of each class on which the candidates are compared.
_TRIED = 1000
#: Classes with fewer rows are repeated: a handful of targets would not represent the reference.
_FEWEST = 300


@dataclass(frozen=True)
class Coupling:
    """Pairs of rows.

    sources, targets: row indices; each source is to be moved to its target, a row of another class. Rows of the
    reference class are not among the sources: they stay unchanged. reference: the index of that class; None if all rows
    together are the reference. stays: for each class, the probability with which its rows stay. cost: the mean cost
    over all rows, with those that stay.
    """

    sources: np.ndarray
    targets: np.ndarray
    reference: int | None
    stays: np.ndarray
    cost: float


def couple(
    cost: Cost,
    classes: np.ndarray,
    generator: np.random.Generator,
    *,
    size: int = 1000,
    passes: int = 1,
    reference: int | str | None = "cheapest",
    numbers: np.ndarray | None = None,
    standing: np.ndarray | None = None,
) -> Coupling:
    """Match every class with the reference, `size` rows at a time, in several passes over random subsets of the rows.

    numbers: indices of the rows to match, if some count more than once; by default every row once.
    reference: a class; None for all rows together; "cheapest": whichever of the largest classes and all rows has the
    lowest cost, compared on a sample of each class.
    standing: (rows, coordinates); their squared distances are added to the cost of a pair when rows are matched, but
    are not counted as cost.
    """
    if numbers is not None:
        found = couple(lambda sources, targets: cost(numbers[sources], numbers[targets]), classes[numbers], generator,
                       size=size, passes=passes, reference=reference,
                       standing=None if standing is None else standing[numbers])  # fmt: skip
        return replace(found, sources=numbers[found.sources], targets=numbers[found.targets])
    if isinstance(reference, str):
        reference = _cheapest(cost, classes, generator, standing)
    jobs = [
        _targets(part, number, classes, reference, generator)
        for _ in range(passes)
        for number in _matched(classes, reference)
        for part in _parts(np.flatnonzero(classes == number), size, generator)
    ]
    # The solver releases the interpreter's lock, so matchings run in parallel.
    with ThreadPoolExecutor() as pool:
        pairs = list(pool.map(lambda job: _match(cost, job[0], job[1], standing), jobs))
    sources, targets, spent = (np.concatenate([pair[i] for pair in pairs]) for i in range(3))
    if reference is None and len(np.unique(classes)) == 2:
        # Each pair serves both of its rows.
        sources, targets, spent = np.append(sources, targets), np.append(targets, sources), np.append(spent, spent)
    stays = _stays(classes, reference)
    # Rows of a small class occur more often among the sources: each class counts by its rows.
    mean = sum(float(spent[classes[sources] == c].mean()) * float(np.mean(classes == c)) * (1.0 - stays[c])
               for c in _moved(classes, reference))  # fmt: skip
    return Coupling(sources, targets, reference, stays, mean)


def _stays(classes: np.ndarray, reference: int | None) -> np.ndarray:
    """The probability with which the rows of each class stay."""
    if reference is None:
        return np.asarray(np.bincount(classes) / len(classes))
    return np.asarray(np.arange(classes.max() + 1) == reference, dtype=np.float64)


def _matched(classes: np.ndarray, reference: int | None) -> list[int]:
    """The classes whose rows are matched: all that move; of two that exchange rows, the smaller one."""
    moved = _moved(classes, reference)
    if reference is None and len(moved) == 2:
        return [min(moved, key=lambda c: int(np.sum(classes == c)))]
    return moved


def _cheapest(
    cost: Cost, classes: np.ndarray, generator: np.random.Generator, standing: np.ndarray | None
) -> int | None:
    counts = np.bincount(classes)
    candidates: list[int | None] = [int(c) for c in np.argsort(-counts)[:_CANDIDATES] if counts[c]]
    some = np.concatenate([generator.permutation(np.flatnonzero(classes == c))[:_TRIED] for c in range(len(counts))])

    def price(candidate: int | None) -> float:
        total = 0.0
        for number in _moved(classes, candidate):
            rows = some[classes[some] == number]
            spent = _match(cost, *_targets(rows, number, classes, candidate, generator), standing)[2]
            total += float(spent.mean()) * counts[number] * (1.0 - _stays(classes, candidate)[number])
        return total

    # On a tie, the largest class: its rows stay unchanged.
    return min([*candidates, None] if len(candidates) > 2 else candidates, key=price)


def _moved(classes: np.ndarray, reference: int | None) -> list[int]:
    return [int(c) for c in np.unique(classes) if c != reference]


def _parts(rows: np.ndarray, size: int, generator: np.random.Generator) -> list[np.ndarray]:
    """The rows of a class in random order, split into equal parts of at most `size`."""
    rows = generator.permutation(rows)
    fewest = min(_FEWEST, size)
    if len(rows) < fewest:
        rows = np.resize(rows, fewest)
    return np.array_split(rows, math.ceil(len(rows) / size))


def _targets(
    sources: np.ndarray, number: int, classes: np.ndarray, reference: int | None, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """As many rows of the reference, or of all other classes, as there are sources."""
    pool = np.flatnonzero(classes != number if reference is None else classes == reference)
    return sources, generator.choice(pool, len(sources), replace=len(sources) > len(pool))


def _match(
    cost: Cost, sources: np.ndarray, targets: np.ndarray, standing: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pairs with the lowest total cost, and the cost of each, in which the standing is not counted."""
    prices = cost(sources, targets)
    total = prices if standing is None else prices + cdist(standing[sources], standing[targets], "sqeuclidean")
    row, column = linear_sum_assignment(total)
    return sources[row], targets[column], prices[row, column]
