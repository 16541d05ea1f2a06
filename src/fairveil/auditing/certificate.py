"""Certificates: bounds on the unfairness of *any* predictor, present or future, on a finite release.

The largest ΔDemP that any predictor on X_r can show between groups s and s' is the total variation between P(X_r | s)
and P(X_r | s'). There are three kinds of certificates:

- `sample`: from n_s and n_s' independent rows that the release was not learned from, with confidence 1 - δ for every
  distribution. `binomial` is an exact test on the observed total variation; `intervals` uses simultaneous exact
  intervals of all cells, which is tighter for few or rare cells. Where the channel is known, its exact output
  probabilities are averaged instead of single draws (`channel`); where people have several rows, people are the
  independent units (`people`).
- `asymptotic`: the same for many rows per cell, without the expected excess of the observed total variation. Valid in
  the limit of many rows only.
- `construction`: for rows that exchange their records at random (`fairveil.exchange`); no sampling error.

The error probability δ is split over the bounds that are tried, the pairs of groups and, for equalized odds, the values
of Y. The bounds themselves are in `fairveil.auditing.variation`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fairveil._utils.errors import InputError, rows_named
from fairveil._utils.html import fragment
from fairveil._utils.weights import Array
from fairveil.auditing.inputs import read_clusters
from fairveil.auditing.variation import (
    asymptotic_bound,
    binomial_bound,
    hoeffding_bound,
    interval_bound,
    observed_variation,
    people_bound,
    total_variation,
)
from fairveil.metrics.estimate import check_confidence, same_length

Notion = Literal["demographic_parity", "equalized_odds"]
Kind = Literal["sample", "asymptotic", "construction"]
_NAMES = {"demographic_parity": "ΔDemP", "equalized_odds": "ΔEO(y) for every y"}
_CLAIMS = {
    "sample": "Certified at confidence {confidence:g}",
    "asymptotic": "Certified asymptotically (for many rows per cell) at confidence {confidence:g}",
    "construction": "Certified by construction, in expectation over the draw",
}
#: The share of the error probability for the exact test; the intervals of single cells get the rest.
_SHARE_OF_TEST = 0.9


@dataclass(frozen=True)
class Certificate:
    """No predictor on this release has a gap above `bound`. Not an estimate.

    kind: the basis of the bound: a sample of rows (with the stated confidence), the same in the limit of many rows, or
    the construction of the release (in expectation over its draw). notion: the fairness criterion; for equalized odds
    the bound holds for every value of Y. observed: the plug-in total variation, an estimate that certifies nothing.
    pairs: one row per pair of groups (and value of Y): `first`, `second`, `given`, `first_rows`, `second_rows`,
    `observed`, `bound`, `method`. assumptions: the conditions under which the bound holds. evidence: the rows it is
    based on.

    Examples
    --------
    >>> from fairveil import certify
    >>> certificate = certify([0, 1, 2] * 1000, ["f", "m"] * 1500, alphabet=3, trained_on=())
    >>> certificate.observed
    0.0
    >>> 0 < certificate.bound < 0.1
    True
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
    kind: Kind = "sample"

    def __str__(self) -> str:
        if self.bound >= 1.0:
            cells = f" and {self.cells} cells" if self.cells else ""
            return f"Nothing is certified: no bound below 1 follows from these {self.rows:,} rows{cells}."
        groups = sorted({*self.pairs["first"].astype(str), *self.pairs["second"].astype(str)})
        terms = " ".join(f"({i}) {text}" for i, text in enumerate(self.assumptions, 1))
        return (
            f"{_CLAIMS[self.kind].format(confidence=self.confidence)}: {_NAMES[self.notion]} between "
            f"{', '.join(groups)} of any predictor on this release is at most {self.rounded:.4f}. Evidence: "
            f"{self.evidence} Assumptions: {terms}"
        )

    def _repr_html_(self) -> str:
        """For notebooks: the statement, and the bound for each pair of groups."""
        names = [name for name in ("first", "second", "given", "observed", "bound", "method") if name in self.pairs]
        rows = [names, *self.pairs[names].astype(object).to_numpy().tolist()]
        return fragment("Certificate", str(self), rows)

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
            "kind": self.kind,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Certificate":
        """Read the output of `to_dict`; raises ValueError or TypeError on malformed values."""
        plain = dict(values)
        numbers = [plain[name] for name in ("bound", "confidence", "observed", "cells", "rows")]
        if not all(isinstance(n, (int, float)) and not isinstance(n, bool) and math.isfinite(n) for n in numbers):
            raise ValueError("a certificate must hold finite numbers")
        texts = [plain["evidence"], *plain["assumptions"]]
        if (
            plain["notion"] not in _NAMES
            or plain["kind"] not in _CLAIMS
            or not all(isinstance(text, str) for text in texts)
        ):
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
    given_values: Sequence[Any] | None = None,
    clusters: Any = None,
    asymptotic: bool = False,
    confidence: float = 0.95,
) -> Certificate:
    """Bound ΔDemP (with `given` = Y, every ΔEO(y)) of any predictor on a release with a finite alphabet.

    cells: the released cell of each row, integers in 0..alphabet-1; one draw per row. With `transition`, the cell of
        each *input* row instead.
    trained_on: identifiers of all rows used to train any part of this release (quantiser, encoder, choice of budget);
        `()` states that nothing was trained. rows: identifiers of these rows. A row in both is rejected: the encoder
        may have memorised its training rows, and the bound would not hold.
    transition: P(released cell | input cell), a matrix, or one matrix per group if the encoder uses S.
    given: Y, for equalized odds. given_values: all values that Y can take; if one has no rows in a group, nothing is
        certified. By default the values that occur, and the bound is for these only.
    clusters: the person of each row, if people have several rows: people are then the independent units.
    asymptotic: use the tighter bound for many rows per cell. It holds in the limit of many rows only, and the
        certificate says so.

    >>> s = np.repeat([0, 1], 5000)
    >>> cells = np.tile(np.arange(4), 2500)  # the same in both groups
    >>> round(certify(cells, s, alphabet=4, trained_on=()).bound, 3)
    0.018
    """
    codes, groups = same_length(cells=cells, sensitive=sensitive)
    evidence = _disjoint(len(codes), rows, trained_on)
    return certify_from(codes, groups, alphabet, evidence, transition=transition, given=given,
                        given_values=given_values, clusters=clusters, asymptotic=asymptotic,
                        confidence=confidence)  # fmt: skip


def certify_from(
    cells: NDArray[np.generic],
    groups: NDArray[np.generic],
    alphabet: int,
    evidence: str,
    *,
    names: Sequence[Any] | None = None,
    transition: ArrayLike | Mapping[Any, ArrayLike] | None = None,
    probabilities: Array | None = None,
    given: ArrayLike | None = None,
    given_values: Sequence[Any] | None = None,
    clusters: Any = None,
    asymptotic: bool = False,
    confidence: float = 0.95,
) -> Certificate:
    """`certify` for rows that are known not to be training rows; `evidence` states why.

    names: all groups. If one has no rows here, the bound is 1. probabilities: the exact probability of each cell for
    each row, (rows, alphabet), instead of one draw: they are averaged, and `cells` is not used.
    """
    check_confidence(confidence)
    codes = _check_cells(cells, alphabet)
    truth = np.zeros(len(codes), dtype=np.int64) if given is None else same_length(cells=codes, given=given)[1]
    every = np.unique(groups).tolist() if names is None else list(names)
    if len(every) < 2:
        raise InputError("The sensitive column holds one single value: there are no groups to compare.")
    channels = None if transition is None else _check_transition(transition, every, alphabet)
    people = read_clusters(clusters, len(codes))
    if asymptotic and (channels is not None or probabilities is not None or people is not None):
        raise InputError("An asymptotic certificate counts independent rows: leave out transition= and clusters=.")
    within = _check_given(truth, given, given_values)
    tests = list(combinations(every, 2))
    method = _Method(alphabet, (1.0 - confidence) / (len(tests) * len(within)), channels, probabilities, people,
                     asymptotic)  # fmt: skip
    found = []
    for y in within:
        for first, second in tests:
            sides = [np.flatnonzero((groups == name) & (truth == y)) for name in (first, second)]
            found.append({"first": first, "second": second, "given": None if given is None else y,
                          "first_rows": len(sides[0]), "second_rows": len(sides[1]),
                          **method.compare(codes, (first, second), (sides[0], sides[1]))})  # fmt: skip
    frame = pd.DataFrame(found)
    return Certificate(
        float(frame["bound"].max()), float(confidence), "demographic_parity" if given is None else "equalized_odds",
        float(frame["observed"].max()), alphabet, len(codes), frame,
        _assumptions(channels is not None or probabilities is not None, people is not None,
                     given is not None and given_values is None), evidence,
        "asymptotic" if asymptotic else "sample",
    )  # fmt: skip


@dataclass(frozen=True)
class _Method:
    """How two groups are compared. level: the error probability of one comparison."""

    alphabet: int
    level: float
    channels: Mapping[Any, Array] | None
    probabilities: Array | None
    people: NDArray[np.int64] | None
    asymptotic: bool

    def compare(
        self, codes: NDArray[np.int64], names: tuple[Any, Any], rows: tuple[NDArray[np.int64], NDArray[np.int64]]
    ) -> dict[str, Any]:
        """The observed total variation between two groups, and its bound."""
        first, second = (np.bincount(codes[side], minlength=self.alphabet) for side in rows)
        n, m = len(rows[0]), len(rows[1])
        if not n or not m:
            return {"observed": 0.0, "bound": 1.0, "method": "none"}
        observed = observed_variation(first, second)
        if self.channels is not None:
            one, other = (self.channels[name] for name in names)
            observed = total_variation(first / n @ one, second / m @ other)
        elif self.probabilities is not None:
            observed = total_variation(*(self.probabilities[side].mean(axis=0) for side in rows))
        if self.people is not None:
            most = int(self.people.max()) + 1
            one_has, other_has = (np.bincount(self.people[side], minlength=most) for side in rows)
            bound = people_bound(observed, one_has, other_has, self.level)
            return {"observed": observed, "bound": bound, "method": "people"}
        if self.channels is not None:
            bound = hoeffding_bound(observed, n, m, self.level, (contraction(one), contraction(other)))
            return {"observed": observed, "bound": bound, "method": "channel"}
        if self.probabilities is not None:
            bound = hoeffding_bound(observed, n, m, self.level)
            return {"observed": observed, "bound": bound, "method": "probabilities"}
        if self.asymptotic:
            return {"observed": observed, "bound": asymptotic_bound(first, second, self.level), "method": "asymptotic"}
        bounds = {
            "binomial": binomial_bound(observed, n, m, _SHARE_OF_TEST * self.level),
            "intervals": interval_bound(first, second, (1.0 - _SHARE_OF_TEST) * self.level),
        }
        best = min(bounds, key=lambda name: bounds[name])
        return {"observed": observed, "bound": bounds[best], "method": best}


def _check_given(truth: NDArray[Any], given: ArrayLike | None, values: Sequence[Any] | None) -> list[Any]:
    """The values of Y within which groups are compared."""
    found: list[Any] = np.unique(truth).tolist()
    if given is None or values is None:
        if values is not None:
            raise InputError("given_values lists the values of Y, so given= must hold Y.")
        return found
    listed = list(dict.fromkeys(values))
    if not set(found) <= set(listed):
        raise InputError(f"given= holds {len(set(found) - set(listed))} values that given_values does not list.")
    return listed


def contraction(transition: Array) -> float:
    """Dobrushin's coefficient: the largest total variation between two rows.

    >>> contraction(np.array([[0.9, 0.1], [0.4, 0.6]]))
    0.5
    """
    return float(max((0.5 * np.abs(transition - row).sum(axis=1).max() for row in transition), default=0.0))


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


def _assumptions(known_channel: bool, by_person: bool, observed_values: bool) -> tuple[str, ...]:
    units = "people, with as many rows each as they have here," if by_person else "the rows"
    shared = (
        f"{units} are independent draws, group by group, from the population on which the release will be used;",
        "cells, channel and the choice between them were fixed without these rows; each record is released once;",
        "a predictor sees the released cell and nothing else about a record (no row order, no side channel).",
    )
    channel = ("releases are drawn from exactly the probabilities given;",) if known_channel else ()
    values = ("the bound is for the values of Y that occur in these rows;",) if observed_values else ()
    return (*channel, *values, *shared)
