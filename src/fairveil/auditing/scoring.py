"""Scores of predictions on test rows: how well S was predicted, whether better than chance, and the worst ΔDemP.

A permutation test decides whether S was found: the same permutations of S are compared with the ranks of every
attacker's scores, and an attacker's adjusted p-value is the share of permutations in which the best of *all* attackers
does as well (Westfall and Young's max-T). It is exact for any models and adjusted for the number of attackers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from fairveil._utils.weights import effective_rows
from fairveil.auditing.clusters import widened
from fairveil.auditing.inputs import Target, in_quarters
from fairveil.auditing.model import Array
from fairveil.auditing.protocol import Attempt, Parts
from fairveil.metrics import (
    Estimate,
    accuracy,
    auc_influence,
    balanced_accuracy,
    clopper_pearson,
    difference,
    hits_and_rows,
    log_loss,
    of_mean,
    r_squared,
    rank_correlation,
    share,
    weighted_auc,
)

PERMUTATIONS = 999
#: S counts as found if the adjusted p-value is at most this: one in fifty audits of a safe release is a false alarm.
FOUND = 0.02


@dataclass(frozen=True)
class Truth:
    """The target on the rows of each part, and the majority class of the training rows (None for numbers)."""

    target: Target
    parts: Parts
    values: Array

    @classmethod
    def of(cls, target: Target, parts: Parts, values: Array | None = None) -> "Truth":
        """Restricted to the rows in use."""
        return cls(target, parts.within(target.rows), target.values if values is None else values)

    @property
    def test(self) -> Array:
        """The target on test rows."""
        return np.asarray(self.values[self.parts.test])

    @property
    def validation(self) -> Array:
        """The target on validation rows."""
        return np.asarray(self.values[self.parts.validation])

    @property
    def weights(self) -> Array | None:
        """Weights of the test rows; None if all are equal."""
        return None if self.parts.weights is None else np.asarray(self.parts.weights[self.parts.test])

    @property
    def people(self) -> NDArray[np.int64]:
        """The person of each test row, as codes; one per row if not given, or if S varies within a person."""
        rows = np.arange(len(self.test))
        if self.parts.people is None:
            return rows
        _, person = np.unique(self.parts.people[self.parts.test], return_inverse=True)
        first = np.full(person.max() + 1, np.nan)
        first[person] = self.test
        return np.asarray(person) if np.array_equal(first[person], self.test) else rows

    @property
    def clusters(self) -> NDArray[np.int64] | None:
        """The person of each test row, as codes; None if every row is a different person."""
        if self.parts.people is None:
            return None
        return np.asarray(np.unique(self.parts.people[self.parts.test], return_inverse=True)[1])

    @property
    def center(self) -> float:
        """The mean of the training rows: the best constant prediction of a number."""
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
    """Accuracy on test rows of always predicting the most frequent class of the training rows."""
    return float(np.average(truth.test == truth.majority, weights=truth.weights))


def scores(attempt: Attempt, truth: Truth, confidence: float) -> dict[str, Estimate]:
    """How well S was predicted.

    advantage: accuracy minus that of always predicting the most frequent class, as a paired difference; for numbers,
    R^2.
    """
    s, p, weights = truth.test, attempt.test, truth.weights
    people, mass = truth.clusters, 1.0 if weights is None else weights
    if truth.target.classes is None:
        explained = r_squared(p, s, truth.center, confidence, sample_weight=weights)
        unexplained = (s - p) ** 2 - (1.0 - explained.value) * (s - truth.center) ** 2
        ranked = rank_correlation(p, s, confidence, sample_weight=weights)
        product = stats.zscore(stats.rankdata(p)) * stats.zscore(stats.rankdata(s)) if np.ptp(p) else np.zeros(len(s))
        return {
            "advantage": widened(explained, mass * unexplained, people),
            "correlation": widened(ranked, mass * (product - product.mean()), people, (-1.0, 1.0)),
        }
    codes = s.astype(np.int64)
    guess = p.argmax(axis=1)
    right = (guess == codes).astype(float)
    gain = right - (codes == truth.majority)
    loss = -np.log(np.clip(p[np.arange(len(p)), codes], 1e-12, 1.0))
    unit = (0.0, 1.0)
    found = {
        "accuracy": (accuracy(guess, codes, confidence, sample_weight=weights), right, unit),
        "advantage": (_gain(gain, confidence, weights), gain, (-1.0, 1.0)),
        "balanced_accuracy": (balanced_accuracy(guess, codes, confidence, sample_weight=weights),
                              _per_class(right, codes, weights), unit),
        "auc": (weighted_auc(p, codes, confidence, sample_weight=weights), None, unit),
        "log_loss": (log_loss(p, codes, confidence, sample_weight=weights), loss, (0.0, np.inf)),
    }  # fmt: skip
    if people is None:
        return {name: estimate for name, (estimate, _, _) in found.items()}
    influence = {name: auc_influence(p, codes, sample_weight=weights)[1] if values is None
                 else mass * (values - np.average(values, weights=weights))
                 for name, (_, values, _) in found.items()}  # fmt: skip
    return {name: widened(estimate, influence[name], people, limits) for name, (estimate, _, limits) in found.items()}


def _per_class(right: Array, codes: NDArray[np.int64], weights: Array | None) -> Array:
    """The influence of each row on the mean recall of the classes: its deviation, divided by the size of its class."""
    mass = np.ones(len(codes)) if weights is None else weights
    size = np.bincount(codes, mass)[codes]
    recall = (np.bincount(codes, mass * right) / np.maximum(np.bincount(codes, mass), 1e-12))[codes]
    return np.asarray((right - recall) / np.maximum(size, 1e-12))


def added(first: Attempt, second: Attempt, truth: Truth, confidence: float) -> Estimate:
    """Gain of one attacker over another on the same rows: accuracy, or explained variance."""
    s = truth.test
    if truth.target.classes is None:
        scale = float(np.average((s - truth.center) ** 2, weights=truth.weights))
        return of_mean(((s - second.test) ** 2 - (s - first.test) ** 2) / scale, confidence, truth.weights)
    right = [(attempt.test.argmax(axis=1) == s).astype(float) for attempt in (first, second)]
    return _gain(right[0] - right[1], confidence, truth.weights)


@dataclass(frozen=True)
class Tried:
    """Attempts on one form of a column: itself or, for a number, its quartile or its distance from the median."""

    truth: Truth
    attempts: Sequence[Attempt]

    def statistics(self, person: NDArray[np.int64]) -> Callable[[NDArray[np.int64]], list[list[float]]]:
        """For a permutation of S, the statistics of each attempt: over all rows and, for K > 2, within each class."""
        classes = self.truth.target.classes or 0
        # The rows of a person share one S: it is permuted between people, and ranks are summed per person.
        s = np.zeros(person.max() + 1)
        s[person] = self.truth.test
        tables = [_summed(_ranks(a.test, self.truth.target.classes), person) for a in self.attempts]
        if not classes:
            weights = _centred(s)
            return lambda order: [[float(np.mean(table[:, 0] * weights[order]))] for table in tables]
        codes, rows = s.astype(np.int64), np.arange(len(s))

        def of_classes(order: NDArray[np.int64]) -> list[list[float]]:
            shuffled = codes[order]
            own = [table[rows, shuffled] for table in tables]
            # A leak about a small class is diluted in the mean over all rows.
            each = [np.bincount(shuffled, ranks, minlength=classes) if classes > 2 else () for ranks in own]
            return [[float(ranks.mean()), *of_class] for ranks, of_class in zip(own, each, strict=True)]

        return of_classes


def p_values(tried: Sequence[Tried], seed: int, columns: int = 1) -> list[list[float]]:
    """Adjusted p-values, one per attempt, of "the release is independent of S".

    The same permutations of S are used for all attempts, on any form of the column. columns: how many sensitive columns
    are attacked in total; p-values are adjusted for them too (Bonferroni).
    """
    person = tried[0].truth.people
    rows = int(person.max()) + 1
    forms = [each.statistics(person) for each in tried]
    owner = np.repeat(
        np.arange(sum(len(each.attempts) for each in tried)),
        [len(values) for form in forms for values in form(np.arange(rows))],
    )

    def statistic(order: NDArray[np.int64]) -> Array:
        return np.array([value for form in forms for values in form(order) for value in values])

    generator = np.random.default_rng(seed)
    shuffles = columns * (PERMUTATIONS + 1) - 1
    # The observed order is one of the permutations, also for the mean and spread: that makes the test exact.
    every = np.stack([
        statistic(np.arange(rows)), *(statistic(generator.permutation(rows)) for _ in range(shuffles))
    ])  # fmt: skip
    spread = every.std(axis=0)
    spread[spread == 0] = np.inf  # a constant score is never significant
    standard = (every - every.mean(axis=0)) / spread
    largest = standard.max(axis=1)
    strongest_of = np.array([standard[0][owner == attempt].max() for attempt in range(owner[-1] + 1)])
    values = [min(1.0, columns * float(np.mean(largest >= value - 1e-12))) for value in strongest_of]
    ends = np.cumsum([len(each.attempts) for each in tried])
    return [values[end - len(each.attempts) : end] for each, end in zip(tried, ends, strict=True)]


def strongest(attempts: Sequence[Attempt], truth: Truth, p_value: float, confidence: float) -> dict[str, Any]:
    """The maximum over attackers of each measure; its interval is simultaneous for all attackers (Bonferroni)."""
    shared = 1.0 - (1.0 - confidence) / len(attempts)
    each = [scores(attempt, truth, shared) for attempt in attempts]
    best = int(np.argmax([score["advantage"].value for score in each]))
    ranked = "auc" if truth.target.classes is not None else "correlation"
    out: dict[str, Any] = {"sensitive": truth.target.name, "attacker": attempts[best].name,
                           "attackers": len(attempts), "rows": len(truth.test)}  # fmt: skip
    if truth.target.classes is not None:
        out["majority"] = majority_share(truth)
    for name in ("accuracy", "advantage", "balanced_accuracy", ranked):
        if name in each[0]:
            ends = [score[name] for score in each]
            out[f"{name}_attacker"] = attempts[int(np.argmax([e.value for e in ends]))].name
            largest = Estimate(max(e.value for e in ends), max(e.low for e in ends), max(e.high for e in ends),
                               ends[0].rows)  # fmt: skip
            out |= flat(name, largest)
    if "balanced_accuracy" in out:
        out["balanced_advantage"] = out["balanced_accuracy"] - 1.0 / (truth.target.classes or 1)
    return {**out, "p_value": p_value, "found": bool(p_value <= FOUND)}


#: Shares of the rows, those with an attacker's highest scores for a group, on which precision is measured.
TAILS = (0.002, 0.005, 0.01)
_FEWEST_IN_A_TAIL = 5


def tail_rows(attempts: Sequence[Attempt], truth: Truth, confidence: float) -> list[dict[str, Any]]:
    """Precision of attackers on the few rows with the highest scores, for each group of S.

    Attacker and threshold are chosen on validation rows, for each group and share; the precision on test rows has an
    exact interval. `rate`: the group's share of all test rows, the precision of guessing.
    """
    rows: list[dict[str, Any]] = []
    for code in range(truth.target.classes or 0):
        known, true = truth.validation == code, truth.test == code
        for share_ in TAILS:
            count = round(share_ * len(known))
            if count < _FEWEST_IN_A_TAIL:
                continue
            thresholds = [float(np.sort(attempt.validation[:, code])[-count]) for attempt in attempts]
            chosen = [known[a.validation[:, code] >= limit] for a, limit in zip(attempts, thresholds, strict=True)]
            best = int(np.argmax([clopper_pearson(hits.sum(), len(hits))[0] for hits in chosen]))
            certain = attempts[best].test[:, code] >= thresholds[best]
            weights = None if truth.weights is None else truth.weights[certain]
            found = share(true[certain], confidence, weights)
            if truth.clusters is not None and certain.any():
                _, people = np.unique(truth.clusters[certain], return_inverse=True)
                hits = true[certain] - found.value
                found = widened(found, hits if weights is None else weights * hits, people, (0.0, 1.0))
            rows.append({
                "sensitive": truth.target.name, "group": truth.target.labels[code], "share": share_,
                "rows": int(certain.sum()), **flat("precision", found),
                "rate": float(np.average(true, weights=truth.weights)), "attacker": attempts[best].name,
            })  # fmt: skip
    return rows


def worst_gap(tried: Sequence[Tried], confidence: float) -> tuple[Estimate, str]:
    """The largest ΔDemP of a predictor that compares an attacker's scores for two groups with a threshold.

    Attacker, groups, threshold and sign are chosen on validation rows; on test rows it is one signed difference, near 0
    if nothing is found. Numbers are replaced by their quartiles.
    """
    truth = tried[0].truth
    made = [(attempt, *_groups(each.truth)) for each in tried for attempt in each.attempts]
    best: tuple[float, int, int, int, float] = (-np.inf, 0, 0, 1, 0.0)
    for index, (attempt, groups, scores_of) in enumerate(made):
        for high in range(groups.count):
            for low in range(high):
                score = scores_of(attempt.validation, high, low)
                own, other = score[groups.validation == high], score[groups.validation == low]
                gap, threshold = _largest_gap(own, other)
                # Subtract the gap expected by chance: otherwise small groups would win by noise.
                gap -= _noise(len(own), len(other))
                if gap > best[0]:
                    best = (gap, index, high, low, threshold)
    _, index, high, low, threshold = best
    attempt, groups, scores_of = made[index]
    told = scores_of(attempt.test, high, low) > threshold
    ahead, behind = ((told[own], None if truth.weights is None else truth.weights[own])
                     for own in (groups.test == high, groups.test == low))  # fmt: skip
    if not len(ahead[0]) or not len(behind[0]):
        return Estimate(0.0, -1.0, 1.0, len(told)), attempt.name
    found = difference(*hits_and_rows(*ahead), *hits_and_rows(*behind), confidence)
    return widened(
        found, _of_difference(told, groups.test, high, low, truth), truth.clusters, (-1.0, 1.0)
    ), attempt.name


def _of_difference(told: NDArray[np.bool_], groups: NDArray[np.int64], high: int, low: int, truth: Truth) -> Array:
    """The influence of each row on the difference of two groups' shares."""
    out = np.zeros(len(told))
    mass = np.ones(len(told)) if truth.weights is None else truth.weights
    for group, sign in ((high, 1.0), (low, -1.0)):
        own = groups == group
        share_ = np.average(told[own], weights=mass[own])
        out[own] = sign * mass[own] * (told[own] - share_) / mass[own].sum()
    return out


def _noise(rows: int, others: int) -> float:
    """Bound on the largest difference of two empirical distribution functions that chance exceeds in 5 % of samples."""
    return float(np.sqrt((1.0 / max(rows, 1) + 1.0 / max(others, 1)) * np.log(40.0) / 2.0))


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
    """The largest difference between the shares above a threshold, and that threshold."""
    if not len(high) or not len(low):
        return 0.0, 0.0
    points = np.unique(np.concatenate([high, low]))
    above = [1.0 - np.searchsorted(np.sort(part), points, side="right") / len(part) for part in (high, low)]
    difference = above[0] - above[1]
    at = int(difference.argmax())
    return float(difference[at]), float(points[at])


def _ranks(predicted: Array, classes: int | None) -> Array:
    """Centred ranks of the score of each class, (rows, classes), or of the predicted number, (rows, 1)."""
    if classes is None:
        return _centred(predicted)[:, None]
    return np.stack([_centred(predicted[:, code]) for code in range(classes)], axis=1)


def _summed(table: Array, person: NDArray[np.int64]) -> Array:
    """Ranks summed over the rows of each person: (people, classes)."""
    if len(person) == int(person.max()) + 1:
        return table
    return np.stack([np.bincount(person, column) for column in table.T], axis=1)


def _centred(values: Array) -> Array:
    ranks = stats.rankdata(values)
    return np.asarray((ranks - ranks.mean()) / len(values))


def _gain(gain: Array, confidence: float, weights: Array | None) -> Estimate:
    """The mean of wins (1) and losses (-1). If all are 0, the interval allows for differences too rare to observe."""
    found = of_mean(gain, confidence, weights)
    if gain.any():
        return found
    rare = 1.0 - ((1.0 - confidence) / 2) ** (1.0 / effective_rows(weights, len(gain)))
    return Estimate(found.value, found.value - rare, found.value + rare, found.rows)
