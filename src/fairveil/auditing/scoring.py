"""From predictions on test rows to numbers: how well S was guessed, whether that is chance, and what it could do.

Whether anything was found at all is decided by permutation: the same shuffles of S are held against the ranks of every
attacker's scores, and an attacker's adjusted p-value is how often the best of *all* attackers does as well under a
shuffle (Westfall and Young's max-T). It is exact whatever the models are, and having tried many is paid for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from fairveil._utils.weights import effective_rows
from fairveil.auditing.attackers import Array
from fairveil.auditing.inputs import Target, in_quarters
from fairveil.auditing.protocol import Attempt, Parts
from fairveil.metrics import (
    Estimate,
    accuracy,
    balanced_accuracy,
    difference,
    hits_and_rows,
    log_loss,
    of_mean,
    r_squared,
    rank_correlation,
    weighted_auc,
)

PERMUTATIONS = 999
#: S counts as found at an adjusted p-value of at most this: one in fifty audits of a harmless release cries wolf.
FOUND = 0.02


@dataclass(frozen=True)
class Truth:
    """The target on the rows of each part, and the majority class of the training rows (None for numbers)."""

    target: Target
    parts: Parts
    values: Array

    @classmethod
    def of(cls, target: Target, parts: Parts, values: Array | None = None) -> "Truth":
        """Of the rows that take part."""
        return cls(target, parts.within(target.rows), target.values if values is None else values)

    @property
    def test(self) -> Array:
        """On test rows."""
        return np.asarray(self.values[self.parts.test])

    @property
    def validation(self) -> Array:
        """On validation rows."""
        return np.asarray(self.values[self.parts.validation])

    @property
    def weights(self) -> Array | None:
        """Of test rows; None if all count alike."""
        return None if self.parts.weights is None else np.asarray(self.parts.weights[self.parts.test])

    @property
    def center(self) -> float:
        """The mean of the training rows: the best constant guess of a number."""
        return float(np.mean(self.values[self.parts.train]))

    @property
    def majority(self) -> int:
        """The most frequent class of the training rows."""
        return int(np.bincount(self.values[self.parts.train].astype(np.int64)).argmax())


def attack_row(attempt: Attempt, truth: Truth, p_value: float, confidence: float) -> dict[str, Any]:
    """One row of the table of attacks."""
    row: dict[str, Any] = {"sensitive": truth.target.name, "attacker": attempt.attacker, "view": attempt.view,
                           "rows": len(truth.test)}  # fmt: skip
    for name, estimate in scores(attempt, truth, confidence).items():
        row |= flat(name, estimate)
    if truth.target.classes is not None:
        row["majority"] = majority_share(truth)
    return {**row, "p_value": p_value, "found": bool(p_value <= FOUND)}


def majority_share(truth: Truth) -> float:
    """How often always naming the most frequent class of the training rows is right on test rows."""
    return float(np.average(truth.test == truth.majority, weights=truth.weights))


def scores(attempt: Attempt, truth: Truth, confidence: float) -> dict[str, Estimate]:
    """How well S was guessed.

    advantage: accuracy minus that of always naming the most frequent class, row by row; for numbers, R^2: the share of
    the variance that is explained.
    """
    s, p, weights = truth.test, attempt.test, truth.weights
    if truth.target.classes is None:
        explained = r_squared(p, s, truth.center, confidence, sample_weight=weights)
        return {"advantage": explained, "correlation": rank_correlation(p, s, confidence, sample_weight=weights)}
    codes = s.astype(np.int64)
    guess = p.argmax(axis=1)
    gain = (guess == codes).astype(float) - (codes == truth.majority)
    return {
        "accuracy": accuracy(guess, codes, confidence, sample_weight=weights),
        "advantage": _gain(gain, confidence, weights),
        "balanced_accuracy": balanced_accuracy(guess, codes, confidence, sample_weight=weights),
        "auc": weighted_auc(p, codes, confidence, sample_weight=weights),
        "log_loss": log_loss(p, codes, confidence, sample_weight=weights),
    }


def added(first: Attempt, second: Attempt, truth: Truth, confidence: float) -> Estimate:
    """By how much one attacker guesses better than another on the same rows: accuracy, or explained variance."""
    s = truth.test
    if truth.target.classes is None:
        scale = float(np.average((s - truth.center) ** 2, weights=truth.weights))
        return of_mean(((s - second.test) ** 2 - (s - first.test) ** 2) / scale, confidence, truth.weights)
    right = [(attempt.test.argmax(axis=1) == s).astype(float) for attempt in (first, second)]
    return _gain(right[0] - right[1], confidence, truth.weights)


def p_values(attempts: Sequence[Attempt], truth: Truth, seed: int, columns: int = 1) -> list[float]:
    """Adjusted p-values, one an attacker, of "the release tells nothing of S".

    columns: how many sensitive columns are attacked in all; each p-value pays for them too (Bonferroni).
    """
    s = truth.test
    tables = [_ranks(attempt.test, truth.target.classes) for attempt in attempts]
    codes = s.astype(np.int64) if truth.target.classes is not None else None
    weights = None if codes is not None else _centred(s)

    def statistic(order: NDArray[np.int64]) -> Array:
        if codes is not None:
            return np.array([table[np.arange(len(s)), codes[order]].mean() for table in tables])
        assert weights is not None
        return np.array([np.mean(table[:, 0] * weights[order]) for table in tables])

    observed = statistic(np.arange(len(s)))
    generator = np.random.default_rng(seed)
    shuffles = columns * (PERMUTATIONS + 1) - 1
    # The observed order is one of the permutations, in the moments too: that makes the test exact.
    every = np.stack([observed, *(statistic(generator.permutation(len(s))) for _ in range(shuffles))])
    spread = every.std(axis=0)
    spread[spread == 0] = np.inf  # a constant score finds nothing
    standard = (every - every.mean(axis=0)) / spread
    largest = standard.max(axis=1)
    return [min(1.0, columns * float(np.mean(largest >= value - 1e-12))) for value in standard[0]]


def strongest(rows: pd.DataFrame, attempts: Sequence[Attempt], truth: Truth, confidence: float) -> dict[str, Any]:
    """The maximum over attackers of each measure; its interval holds for all of them at once (Bonferroni)."""
    shared = 1.0 - (1.0 - confidence) / len(attempts)
    each = [scores(attempt, truth, shared) for attempt in attempts]
    best = int(np.argmax([score["advantage"].value for score in each]))
    ranked = "auc" if truth.target.classes is not None else "correlation"
    out: dict[str, Any] = {"sensitive": truth.target.name, "attacker": attempts[best].name,
                           "attackers": len(attempts), "rows": len(truth.test)}  # fmt: skip
    if "majority" in rows:
        out["majority"] = float(rows["majority"].iloc[0])
    for name in ("accuracy", "advantage", "balanced_accuracy", ranked):
        if name in each[0]:
            ends = [score[name] for score in each]
            largest = Estimate(max(e.value for e in ends), max(e.low for e in ends), max(e.high for e in ends),
                               ends[0].rows)  # fmt: skip
            out |= flat(name, largest)
    p_value = float(rows["p_value"].min())
    return {**out, "p_value": p_value, "found": bool(p_value <= FOUND)}


def worst_gap(attempts: Sequence[Attempt], truth: Truth, confidence: float) -> tuple[Estimate, str]:
    """The largest ΔDemP of a predictor made from an attacker: its scores for two groups, compared with a threshold.

    Attacker, groups, threshold and which group is ahead are chosen on validation rows; on test rows it is one signed
    difference, near 0 where nothing is found. Numbers are cut into quarters.
    """
    groups, scores_of = _groups(truth)
    best: tuple[float, int, int, int, float] = (-1.0, 0, 0, 1, 0.0)
    for index, attempt in enumerate(attempts):
        for high in range(groups.count):
            for low in range(high):
                score = scores_of(attempt.validation, high, low)
                gap, threshold = _largest_gap(score[groups.validation == high], score[groups.validation == low])
                if gap > best[0]:
                    best = (gap, index, high, low, threshold)
    _, index, high, low, threshold = best
    told = scores_of(attempts[index].test, high, low) > threshold
    ahead, behind = ((told[own], None if truth.weights is None else truth.weights[own])
                     for own in (groups.test == high, groups.test == low))  # fmt: skip
    if not len(ahead[0]) or not len(behind[0]):
        return Estimate(0.0, -1.0, 1.0, len(told)), attempts[index].name
    return difference(*hits_and_rows(*ahead), *hits_and_rows(*behind), confidence), attempts[index].name


def flat(name: str, estimate: Estimate) -> dict[str, float]:
    """An estimate as three columns."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


@dataclass(frozen=True)
class _Groups:
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    count: int


def _groups(truth: Truth) -> tuple[_Groups, Any]:
    if truth.target.classes is not None:
        found = _Groups(truth.validation.astype(np.int64), truth.test.astype(np.int64), truth.target.classes)

        def ratio(p: Array, high: int, low: int) -> Array:
            return np.asarray(np.log(p[:, high] + 1e-12) - np.log(p[:, low] + 1e-12))

        return found, ratio
    quarters = in_quarters(truth.target).values.astype(np.int64)
    parts = truth.parts
    return _Groups(quarters[parts.validation], quarters[parts.test], 4), lambda p, high, low: p


def _largest_gap(high: Array, low: Array) -> tuple[float, float]:
    """The threshold at which the shares above differ most, and by how much."""
    if not len(high) or not len(low):
        return 0.0, 0.0
    points = np.unique(np.concatenate([high, low]))
    above = [1.0 - np.searchsorted(np.sort(part), points, side="right") / len(part) for part in (high, low)]
    difference = above[0] - above[1]
    at = int(difference.argmax())
    return float(difference[at]), float(points[at])


def _ranks(predicted: Array, classes: int | None) -> Array:
    """Centred ranks of the score of each class, (rows, classes); of the number itself, (rows, 1)."""
    if classes is None:
        return _centred(predicted)[:, None]
    return np.stack([_centred(predicted[:, code]) for code in range(classes)], axis=1)


def _centred(values: Array) -> Array:
    ranks = stats.rankdata(values)
    return np.asarray((ranks - ranks.mean()) / len(values))


def _gain(gain: Array, confidence: float, weights: Array | None) -> Estimate:
    """The mean of wins (1) and losses (-1) against the majority. One that never differed may still differ once."""
    found = of_mean(gain, confidence, weights)
    if gain.any():
        return found
    rare = 1.0 - ((1.0 - confidence) / 2) ** (1.0 / effective_rows(weights, len(gain)))
    return Estimate(found.value, found.value - rare, found.value + rare, found.rows)
