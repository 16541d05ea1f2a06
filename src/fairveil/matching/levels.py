"""Levels: the columns that are exchanged together, so that a release keeps what belongs together.

Columns of one level come from the same row; different levels are exchanged independently, so that a person who is
recognised by some columns is not found with the others. Columns that determine each other are always in one level, and
so are closely associated ones, such as marital status and relationship: apart, they would form records that do not
occur.
"""

import numpy as np

from fairveil.data.schema import Schema
from fairveil.matching.shares import Floats, Ints

#: Two columns are closely associated if their mutual information is this share of the smaller entropy.
_CLOSE = 0.3
#: Intervals of about equal size of a number, and rows that a category needs to be compared.
_INTERVALS, _FEWEST = 12, 20


def find_levels(schema: Schema, codes: dict[str, Ints]) -> list[list[str]]:
    """A partition of the encoded columns. codes: a small whole number for each value of each of them."""
    names = [column.name for column in schema.columns if column.role == "encode"]
    level = {name: number for number, name in enumerate(names)}
    for rule in schema.dependencies:
        if rule.column in level and rule.by in level:
            _merge(level, rule.column, rule.by)
    units = len(set(level.values()))
    pairs = [(_association(codes[one], codes[other]), one, other)
             for i, one in enumerate(names) for other in names[i + 1 :] if level[one] != level[other]]  # fmt: skip
    merged = dict.fromkeys(level.values(), 1)
    for strength, one, other in sorted(pairs, key=lambda pair: -pair[0]):
        first, second = level[one], level[other]
        # At most half of the units in one level: otherwise whole records would be exchanged.
        if strength >= _CLOSE and first != second and merged[first] + merged[second] <= units // 2:
            _merge(level, one, other)
            merged[first] += merged[second]
    return [[name for name in names if level[name] == number] for number in dict.fromkeys(level.values())]


def _merge(level: dict[str, int], one: str, other: str) -> None:
    kept, gone = level[one], level[other]
    for name, number in level.items():
        if number == gone:
            level[name] = kept


def small_codes(values: Ints, *, ordered: bool) -> Ints:
    """Codes of few values: of ordered ones, intervals of about equal size; of others, those of few rows become one.

    Every value of an identifier would tell every other column, by chance.
    """
    if not ordered:
        counts = np.bincount(values)
        return np.where(counts[values] >= _FEWEST, values, len(counts))
    if len(np.unique(values)) <= _INTERVALS:
        return values
    cuts = np.unique(np.quantile(values, np.linspace(0, 1, _INTERVALS + 1)[1:-1]))
    return np.searchsorted(cuts, values, side="right").astype(np.int64)


def _association(one: Ints, other: Ints) -> float:
    """Mutual information over the smaller entropy, without its bias to first order (Miller and Madow)."""
    table = np.zeros((int(one.max()) + 1, int(other.max()) + 1))
    np.add.at(table, (one, other), 1.0)
    entropies = [_entropy(table.sum(axis=1)), _entropy(table.sum(axis=0))]
    if min(entropies) <= 0:
        return 0.0
    return (sum(entropies) - _entropy(table.ravel())) / min(entropies)


def _entropy(counts: Floats) -> float:
    counts = counts[counts > 0]
    total = counts.sum()
    shares = counts / total
    return float(-(shares * np.log(shares)).sum() + (len(counts) - 1) / (2 * total))
