"""Certificates: finite-sample bounds on the unfairness of *any* predictor, present or future, on a finite release.

The largest ΔDemP that any predictor on X_r can show between groups s and s' is the total variation between P(X_r | s)
and P(X_r | s'). From n_s and n_s' independent rows it is bounded, with confidence 1 - δ and for every distribution, by

- `deviation`: TV of the observed frequencies + sqrt((1/n_s + 1/n_s') ln(1/δ) / 2). TV is convex, so its expected
  plug-in value is at least the true value (Jensen); one row changes it by at most 1/n_s, so it falls below that
  expectation by more than the square root with probability at most δ (McDiarmid). It does not depend on the number of
  cells.
- `intervals`: simultaneous Clopper-Pearson intervals for all cells of both groups, and the worst pair of distributions
  within them, by a linear program over (fractional) sets of cells. Tighter for few or rare cells.
- `channel`: for a known transition matrix, `deviation` for the exact output distribution of the observed *inputs*. It
  has no sampling noise from the channel, and one row changes it by at most η / n_s, where η is the channel's
  contraction coefficient (the largest TV between two rows of the matrix).

The error probability δ is split over the bounds that are tried, the pairs of groups and, for equalized odds, the values
of Y.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from fairveil._utils.errors import InputError, rows_named
from fairveil._utils.weights import Array
from fairveil.metrics import clopper_pearson
from fairveil.metrics.estimate import check_confidence, same_length

Notion = Literal["demographic_parity", "equalized_odds"]
_NAMES = {"demographic_parity": "ΔDemP", "equalized_odds": "ΔEO(y) for every y"}


@dataclass(frozen=True)
class Certificate:
    """With the stated confidence, no predictor on this release has a gap above `bound`. Not an estimate.

    notion: the fairness criterion; for equalized odds the bound holds for every value of Y. observed: the plug-in total
    variation, an estimate that certifies nothing. pairs: one row per pair of groups (and value of Y): `first`,
    `second`, `given`, `first_rows`, `second_rows`, `observed`, `bound`, `method`.
    assumptions: the conditions under which the bound holds. evidence: the rows it is based on.
    """

    bound: float
    confidence: float
    notion: Notion
    observed: float
    cells: int
    rows: int
    pairs: pd.DataFrame
    assumptions: tuple[str, ...]
    evidence: str

    def __str__(self) -> str:
        if self.bound >= 1.0:
            return (
                f"Nothing is certified: no bound below 1 follows from these {self.rows:,} rows and {self.cells} cells."
            )
        groups = sorted({*self.pairs["first"].astype(str), *self.pairs["second"].astype(str)})
        terms = " ".join(f"({i}) {text}" for i, text in enumerate(self.assumptions, 1))
        return (
            f"Certified at confidence {self.confidence:g}: {_NAMES[self.notion]} between {', '.join(groups)} of any "
            f"predictor on this release is at most {self.rounded:.4f}. Evidence: {self.evidence} Assumptions: {terms}"
        )

    @property
    def rounded(self) -> float:
        """The bound, rounded up to four decimals so that the printed value holds too."""
        return math.ceil(self.bound * 1e4 - 1e-9) / 1e4

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain values."""
        return {
            "bound": self.bound,
            "confidence": self.confidence,
            "notion": self.notion,
            "observed": self.observed,
            "cells": self.cells,
            "rows": self.rows,
            "pairs": [{str(k): v for k, v in row.items()} for row in self.pairs.to_dict("records")],
            "assumptions": list(self.assumptions),
            "evidence": self.evidence,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Certificate":
        """Read the output of `to_dict`; raises ValueError or TypeError on malformed values."""
        plain = dict(values)
        numbers = [plain[name] for name in ("bound", "confidence", "observed", "cells", "rows")]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and math.isfinite(n) for n in numbers):
            raise ValueError("a certificate must hold finite numbers")
        texts = [plain["evidence"], *plain["assumptions"]]
        if plain["notion"] not in _NAMES or not all(isinstance(text, str) for text in texts):
            raise ValueError("a certificate must name its notion, evidence and assumptions")
        pairs = pd.DataFrame(plain["pairs"])
        if not {"first", "second"} <= set(pairs.columns):
            raise ValueError("a certificate must name the pairs of groups")
        return cls(**{**plain, "pairs": pairs, "assumptions": tuple(plain["assumptions"])})


def certify(
    cells: ArrayLike,
    sensitive: ArrayLike,
    *,
    alphabet: int,
    trained_on: Iterable[Any],
    rows: Iterable[Any] | None = None,
    transition: ArrayLike | Mapping[Any, ArrayLike] | None = None,
    given: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Certificate:
    """Bound ΔDemP (with `given` = Y, every ΔEO(y)) of any predictor on a release with a finite alphabet.

    cells: the released cell of each row, integers in 0..alphabet-1; one draw per row. With `transition`, the cell of
        each *input* row instead.
    trained_on: identifiers of all rows used to train any part of this release (quantiser, encoder, choice of budget);
        `()` states that nothing was trained. rows: identifiers of these rows. A row in both is rejected: the encoder
        may have memorised its training rows, and the bound would not hold.
    transition: P(released cell | input cell), a matrix, or one matrix per group if the encoder uses S.
    given: Y, for equalized odds.

    >>> s = np.repeat([0, 1], 5000)
    >>> cells = np.tile(np.arange(4), 2500)  # the same in both groups
    >>> round(certify(cells, s, alphabet=4, trained_on=()).bound, 4)
    0.0272
    """
    codes, groups = same_length(cells=cells, sensitive=sensitive)
    evidence = _disjoint(len(codes), rows, trained_on)
    return certify_from(codes, groups, alphabet, evidence, transition=transition, given=given, confidence=confidence)


def certify_from(
    cells: NDArray[np.generic],
    groups: NDArray[np.generic],
    alphabet: int,
    evidence: str,
    *,
    names: Sequence[Any] | None = None,
    transition: ArrayLike | Mapping[Any, ArrayLike] | None = None,
    given: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Certificate:
    """`certify` for rows that are known not to be training rows; `evidence` states why.

    names: all groups. If one has no rows here, the bound is 1.
    """
    check_confidence(confidence)
    codes = _check_cells(cells, alphabet)
    truth = np.zeros(len(codes), dtype=np.int64) if given is None else same_length(cells=codes, given=given)[1]
    every = np.unique(groups).tolist() if names is None else list(names)
    if len(every) < 2:
        raise InputError("The sensitive column holds one single value: there are no groups to compare.")
    channels = None if transition is None else _check_transition(transition, every, alphabet)
    reach = {} if channels is None else {name: contraction(matrix) for name, matrix in channels.items()}
    within = np.unique(truth)
    tests = list(combinations(every, 2))
    level = (1.0 - confidence) / (len(tests) * len(within))
    found = []
    for y in within.tolist():
        for first, second in tests:
            sides = [codes[(groups == name) & (truth == y)] for name in (first, second)]
            if channels is None:
                counts = [np.bincount(side, minlength=alphabet) for side in sides]
                pair = _from_draws(counts[0], counts[1], level)
            else:
                counts = [np.bincount(side, minlength=alphabet) for side in sides]
                observed, bound = channel_bound(counts[0], counts[1], channels[first], channels[second], level,
                                                (reach[first], reach[second]))  # fmt: skip
                pair = {"observed": observed, "bound": bound, "method": "channel"}
            found.append({"first": first, "second": second, "given": None if given is None else y,
                          "first_rows": len(sides[0]), "second_rows": len(sides[1]), **pair})  # fmt: skip
    frame = pd.DataFrame(found)
    return Certificate(
        float(frame["bound"].max()), float(confidence), "demographic_parity" if given is None else "equalized_odds",
        float(frame["observed"].max()), alphabet, len(codes), frame, _assumptions(channels is not None), evidence,
    )  # fmt: skip


def deviation_bound(first: NDArray[np.int64], second: NDArray[np.int64], level: float) -> float:
    """Upper bound on the TV of two distributions from their cell counts; it fails with probability <= level."""
    n, m = int(first.sum()), int(second.sum())
    if not n or not m:
        return 1.0
    return min(1.0, _variation(first / n, second / m) + math.sqrt((1 / n + 1 / m) * math.log(1 / level) / 2))


def interval_bound(first: NDArray[np.int64], second: NDArray[np.int64], level: float) -> float:
    """The same bound from simultaneous exact intervals of all cells, and the worst case within them."""
    n, m = int(first.sum()), int(second.sum())
    if not n or not m:
        return 1.0
    each = 1.0 - level / (len(first) + len(second))
    low, high = clopper_pearson(first, n, each)
    low2, high2 = clopper_pearson(second, m, each)
    # For a set A of cells, max P(A) = min(high(A), 1 - low(not A)) and min Q(A) = max(low2(A), 1 - high2(not A)).
    # Maximising over A is a knapsack problem; its linear relaxation can only be larger, so it is still an upper bound.
    k = len(first)
    upper = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, -1.0]])
    rows = np.hstack([upper, np.vstack([-high, -low, low2, high2]).reshape(4, k)])
    limits = np.array([0.0, 1.0 - low.sum(), 0.0, high2.sum() - 1.0])
    found = optimize.linprog(np.concatenate([[-1.0, 1.0], np.zeros(k)]), A_ub=rows, b_ub=limits,
                             bounds=[(0, 1), (0, 1)] + [(0, 1)] * k, method="highs")  # fmt: skip
    return min(1.0, max(0.0, -float(found.fun))) if found.status == 0 else 1.0


def channel_bound(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    one: Array,
    other: Array,
    level: float,
    reach: tuple[float, float] | None = None,
) -> tuple[float, float]:
    """TV between the exact outputs of two groups' channels for these input cells (counts), and its upper bound.

    reach: the contraction coefficients of the two channels, if already known.
    """
    n, m = int(first.sum()), int(second.sum())
    if not n or not m:
        return 0.0, 1.0
    observed = _variation(first / n @ one, second / m @ other)
    a, b = reach or (contraction(one), contraction(other))
    return observed, min(1.0, observed + math.sqrt((a**2 / n + b**2 / m) * math.log(1 / level) / 2))


def contraction(transition: Array) -> float:
    """Dobrushin's coefficient: the largest total variation between two rows.

    >>> contraction(np.array([[0.9, 0.1], [0.4, 0.6]]))
    0.5
    """
    return float(max((0.5 * np.abs(transition - row).sum(axis=1).max() for row in transition), default=0.0))


def _from_draws(first: NDArray[np.int64], second: NDArray[np.int64], level: float) -> dict[str, Any]:
    bounds = {
        "deviation": deviation_bound(first, second, level / 2),
        "intervals": interval_bound(first, second, level / 2),
    }
    method = min(bounds, key=lambda name: bounds[name])
    observed = _variation(first / max(first.sum(), 1), second / max(second.sum(), 1))
    return {"observed": observed, "bound": bounds[method], "method": method}


def _variation(p: Array, q: Array) -> float:
    return float(0.5 * np.abs(p - q).sum())


def _check_cells(cells: NDArray[np.generic], alphabet: int) -> NDArray[np.int64]:
    if not isinstance(alphabet, (int, np.integer)) or alphabet < 1:
        raise InputError(
            f"The alphabet must be the number of cells, fixed before the rows were seen. Got {alphabet!r}."
        )
    if cells.dtype.kind not in "iu":
        raise InputError(
            "Cells must be whole numbers 0..alphabet-1: quantise the release first, and release the cells."
        )
    codes = cells.astype(np.int64)
    outside = np.flatnonzero((codes < 0) | (codes >= alphabet))
    if len(outside):
        raise InputError(f"{len(outside)} cells lie outside 0..{alphabet - 1} ({rows_named(outside.tolist())}).")
    return codes


def _check_transition(
    transition: ArrayLike | Mapping[Any, ArrayLike], names: Sequence[Any], alphabet: int
) -> dict[Any, Array]:
    given = transition if isinstance(transition, Mapping) else dict.fromkeys(names, transition)
    absent = [name for name in names if name not in given]
    if absent:
        raise InputError(f"The transition lacks a matrix for {len(absent)} of the {len(names)} groups.")
    channels = {name: np.asarray(given[name], dtype=np.float64) for name in names}
    for matrix in channels.values():
        if matrix.ndim != 2 or len(matrix) != alphabet:
            raise InputError(f"A transition must have a row for each of the {alphabet} cells. It is {matrix.shape}.")
        if np.any(matrix < 0) or not np.allclose(matrix.sum(axis=1), 1.0, atol=1e-5):
            raise InputError("Every row of a transition must hold probabilities that sum to 1.")
    return {name: matrix / matrix.sum(axis=1, keepdims=True) for name, matrix in channels.items()}


def _disjoint(count: int, rows: Iterable[Any] | None, trained_on: Iterable[Any]) -> str:
    trained = set(trained_on)
    if not trained:
        return f"{count:,} rows; nothing in this release was trained."
    if rows is None:
        raise InputError("Say which rows these are (rows=): they are compared with those that were used in training.")
    identifiers = list(rows)
    if len(identifiers) != count:
        raise InputError(f"There are {count} cells but {len(identifiers)} row identifiers.")
    if len(set(identifiers)) < count:
        raise InputError("Some row identifiers occur twice: each row counts once, or the rows are not independent.")
    if {type(i) for i in identifiers}.isdisjoint({type(i) for i in trained}):
        raise InputError("The identifiers in rows= and trained_on= are of different types, so none can be equal.")
    both = [i for i, identifier in enumerate(identifiers) if identifier in trained]
    if both:
        raise InputError(
            f"{len(both)} of {count} rows were used in training ({rows_named(both)}): nothing can be certified "
            "from them. Use rows that neither the quantiser nor the encoder nor the choice between them has seen."
        )
    return f"{count:,} rows, none of them among the {len(trained):,} used in training."


def _assumptions(known_channel: bool) -> tuple[str, ...]:
    shared = (
        "the rows are independent draws, group by group, from the population on which the release will be used;",
        "cells, channel and the choice between them were fixed without these rows; each record is released once;",
        "a predictor sees the released cell and nothing else about a record (no row order, no side channel).",
    )
    extra = "releases are drawn from exactly the transition matrix given;"
    return (extra, *shared) if known_channel else shared
