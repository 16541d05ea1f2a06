"""Presence and absence: what a release tells about a person whose other columns an attacker knows.

The attacker knows that a person is in the file, and the person's true values in a few columns (facts, or
quasi-identifiers). The number of released rows that match these facts can tell S: where one group is left unchanged and
the other is moved, *no* match proves the other group.

Two attackers learn S from people whose S they know, and are scored on others. The first knows the facts and the
population: how many people share all of a person's facts, all but one, and all but each one, which are functions of
the facts. The second starts from the first one's predictions and improves them by the same counts in the release, as
long as validation people confirm it; so two models that differ by chance are not mistaken for a leak. For an unchanged
release the second has nothing to improve.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import logit, softmax

from fairveil._utils.errors import InputError
from fairveil.auditing.attackers import Boosting
from fairveil.auditing.facts import Codes, Facts, Matches, check_facts, default_facts
from fairveil.auditing.inputs import FEWEST_OF_A_PART, Released, Target, in_quarters
from fairveil.auditing.model import Array, Matrix
from fairveil.auditing.protocol import Attempt, Parts, Positions, Terms
from fairveil.auditing.scoring import Truth, added, flat
from fairveil.data.frames import Table
from fairveil.metrics import Estimate, clopper_pearson, hits_and_rows, proportion, share, weighted_auc

#: A person counts as known if the attacker's probability of the true group exceeds this.
CERTAIN = 0.9
#: The verdict mentions presence and absence if the share of newly certain people is significantly above this.
NOTABLE = 0.01
#: Most people to learn from and to score, for two groups; learning takes longer with more groups.
_MOST_PEOPLE = 50_000
#: Numbers of matches that rules of the form "more than k" compare with; and the fewest people a rule is chosen by.
_MORE_THAN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_FEWEST_OF_A_RULE = 5
#: The chance that some rule is taken for certain though it is not.
_FALSE_RULES = 0.05
#: Leaves, learning rate and largest number of trees.
_BOOSTING = (31, 0.08, 200)


@dataclass(frozen=True)
class KnownPeople:
    """What attackers know of each person: facts, and the counts of matching rows.

    in_release, in_original: log2(1 + count) of rows that match all facts, all but exactly one, and all but each one:
    (people, columns + 2). matches: rows of the release that match all facts.
    """

    facts: Facts
    codes: Codes
    in_release: Matrix
    in_original: Matrix
    matches: NDArray[np.int64]

    @classmethod
    def of(cls, release: Matches, original: pa.Table) -> "KnownPeople":
        """The people of the original, after all rows of the release were counted."""
        population = Matches(release.facts, release.people)
        population.add(original)
        return cls(release.facts, release.people, _counts(release), _counts(population), release.exact)

    def take(self, rows: Positions) -> "KnownPeople":
        """Only these people."""
        return replace(self, codes=self.codes[rows], in_release=self.in_release[rows],
                       in_original=self.in_original[rows], matches=self.matches[rows])  # fmt: skip

    def features(self, *, with_release: bool) -> Matrix:
        """What an attacker sees: facts and counts."""
        counts = self.in_release if with_release else self.in_original
        return np.hstack([self.codes, counts], dtype=np.float32, casting="same_kind")

    def told(self) -> str:
        """The columns, for messages."""
        return ", ".join(f"{fact.name} (in bins)" if fact.in_bins else fact.name for fact in self.facts.columns)


def known_people(
    names: Sequence[str] | None, released: Released, original: Released | None, secrets: Sequence[str],
    whole_release: Iterable[Any] | None = None,
) -> KnownPeople | None:  # fmt: skip
    """The known facts of each person and the matching rows; None without an original table or a usable column.

    names: the columns that the attacker knows; chosen by `default_facts` if None. whole_release: all rows of the
    release, in batches, if `released` is a sample of them.
    """
    if isinstance(names, str):
        raise InputError("quasi_identifiers must be a list of column names.")
    if not isinstance(released, Table) or not isinstance(original, Table):
        if names is not None:
            raise InputError("quasi_identifiers needs the original table: pass original=.")
        return None
    shared = [name for name in released.names if name in original.names and name not in secrets]
    if names is None:
        names = default_facts(original.arrow, shared)
        if not names:
            return None
    check_facts(names, shared, secrets)
    facts = Facts.of(names, original.arrow, released.arrow)
    matches = Matches(facts, facts.codes(original.arrow))
    for batch in [released.arrow] if whole_release is None else whole_release:
        matches.add(batch)
    return KnownPeople.of(matches, original.arrow)


def presence_rows(target: Target, people: KnownPeople, parts: Parts, terms: Terms) -> list[dict[str, Any]]:
    """What the release tells about S by matching rows: one row per group of S, and one for everyone (group None).

    certain, certain_facts: the share of the group's people whose true group has more than 90 % probability, with and
    without the release. newly_certain: their difference, paired. claims_right: of the people that the attacker assigns
    to the group with more than 90 %, the share that belongs to it. rule, precision: the best rule of the form "no
    match", chosen on validation people, and how often it is right on test people; rule_facts: the mean probability of
    the group for the same people without the release; rule_share: the share of the group that the rule finds. Intervals
    are simultaneous for all groups.
    """
    target = in_quarters(target)
    classes = target.classes or 0
    parts = _people(parts.within(target.rows), classes, terms.seed)
    truth = Truth.of(target, parts)
    if any(len(np.unique(part)) < 2 for part in (target.values[parts.train], truth.validation, truth.test)):
        return []
    alone, with_file, learned = _attempts(people, target, parts, terms.seed)
    confidence = 1.0 - (1.0 - terms.confidence) / (classes + 1)
    common = {"sensitive": target.name, "facts": people.told()}
    s, rows = truth.test.astype(np.int64), np.arange(len(truth.test))
    claimed = with_file.test > CERTAIN
    for code in range(classes):
        claimed[:, code] |= _named_for_certain(code, people.matches, learned, alone, truth)
    sure, before = claimed[rows, s], alone.test[rows, s] > CERTAIN
    found = []
    for code, label in enumerate(target.labels):
        if np.sum(s == code) < FEWEST_OF_A_PART:
            continue
        named = claimed[:, code]
        right = _share((s == code)[named], confidence, _at(truth.weights, named))
        found.append({
            **common, "group": label, **_certainty(sure, before, s == code, truth, confidence),
            **flat("claims_right", right),
            **_best_rule(code, people.matches, alone, truth, confidence),
        })  # fmt: skip
    everyone = _certainty(sure, before, np.ones(len(s), dtype=bool), truth, confidence)
    return [
        *found,
        {
            **common, "group": None, **everyone,
            **flat("accuracy_gain", added(with_file, alone, truth, confidence)),
            **flat("auc", weighted_auc(with_file.test, s, confidence, sample_weight=truth.weights)),
            **flat("auc_facts", weighted_auc(alone.test, s, confidence, sample_weight=truth.weights)),
        },
    ]  # fmt: skip


def paired_difference(
    gained: NDArray[np.bool_], lost: NDArray[np.bool_], confidence: float = 0.95, weights: Array | None = None
) -> Estimate:
    """The share gained minus the share lost, of the same people.

    The exact intervals of both shares are combined by the method of variance estimates recovery (MOVER), with the
    negative covariance of two cells of a multinomial; it remains valid if nobody is gained or lost.

    >>> f"{paired_difference(np.arange(100) < 10, np.arange(100) >= 100):.2f}"
    '0.10 [0.04, 0.18]'
    """
    up, down = (proportion(*hits_and_rows(side, weights), confidence) for side in (gained, lost))
    g, l = up.value, down.value  # noqa: E741
    together = np.sqrt(g * l / ((1 - g) * (1 - l))) if g < 1 and l < 1 else 0.0

    def side(a: float, b: float) -> float:
        return float(np.sqrt(a**2 + b**2 + 2 * together * a * b))

    low, high = g - l - side(g - up.low, down.high - l), g - l + side(up.high - g, l - down.low)
    return Estimate(g - l, max(-1.0, low), min(1.0, high), len(gained))


def presence_sentence(frame: pd.DataFrame) -> str:
    """The group about which the release tells most by presence and absence; empty if that was not measured."""
    if not len(frame):
        return ""
    told = frame[~frame["group"].isna()]
    row = told.loc[told["newly_certain"].idxmax()]
    ends = [100 * row[name] for name in ("newly_certain", "newly_certain_low", "newly_certain_high")]
    text = (
        f"Who knows that a person is in the file, and their {row['facts']}, becomes more than {100 * CERTAIN:.0f} % "
        f"certain of the true {row['sensitive']!r} by matching rows for {ends[0]:.1f} points [{ends[1]:.1f}, "
        f"{ends[2]:.1f}] more of the people in {row['group']!r} ({100 * row['certain_facts']:.1f} % without the file)."
    )
    if not np.isfinite(row["precision"]):
        return text
    right, low, high = (100 * row[name] for name in ("precision", "precision_low", "precision_high"))
    return (
        f"{text} The rule '{row['rule']}' is right in {right:.1f} % [{low:.1f}, {high:.1f}] of the people it names "
        f"(their facts alone: {100 * row['rule_facts']:.1f} %), and finds {100 * row['rule_share']:.1f} % of the group."
    )


def is_notable(frame: pd.DataFrame) -> bool:
    """Whether the release makes significantly more than one in a hundred people of a group newly certain."""
    return bool(len(frame) and (frame["newly_certain_low"] > NOTABLE).any())


_TEXTS = ("sensitive", "facts")
_OPTIONAL_TEXTS = ("group", "rule")
_SHARES = (
    "certain", "certain_facts", *(f"{name}{end}" for name in ("newly_certain", "claims_right", "precision")
                                  for end in ("", "_low", "_high")), "rule_facts", "rule_share",
)  # fmt: skip


def check_presence(frame: pd.DataFrame) -> None:
    """Raise ValueError if a frame that was read from a file is not a result of `presence_rows`."""
    for row in frame.to_dict("records"):
        texts = all(isinstance(row[name], str) for name in _TEXTS)
        texts &= all(isinstance(row[name], str) or pd.isna(row[name]) for name in _OPTIONAL_TEXTS)
        if not texts or not all(_is_share(row[name]) for name in _SHARES):
            raise ValueError("not a table of presence and absence")
        if pd.isna(row["newly_certain_low"]) or pd.isna(row["newly_certain"]):
            raise ValueError("not a table of presence and absence")
    if len(frame) and frame["group"].isna().all():
        raise ValueError("not a table of presence and absence")


def _is_share(value: Any) -> bool:
    return value is None or (isinstance(value, float | int) and not isinstance(value, bool)
                             and (np.isnan(value) or -1.0 <= value <= 1.0))  # fmt: skip


def _counts(matches: Matches) -> Matrix:
    counts = np.column_stack([matches.exact, matches.near, matches.without])
    return np.asarray(np.log2(1.0 + counts), dtype=np.float32)


def _people(parts: Parts, classes: int, seed: int) -> Parts:
    """At most as many people as needed; of several rows of a person, one in the validation and test parts."""
    generator = np.random.default_rng(seed)
    most = max(2 * _MOST_PEOPLE // max(classes, 2), 5000)

    def some(part: Positions, limit: int, *, once: bool = True) -> Positions:
        if once and parts.people is not None:
            part = part[np.unique(parts.people[part], return_index=True)[1]]
        return np.sort(generator.choice(part, limit, replace=False)) if len(part) > limit else part

    return replace(parts, train=some(parts.train, most, once=False), validation=some(parts.validation, most // 4),
                   test=some(parts.test, _MOST_PEOPLE))  # fmt: skip


def _attempts(people: KnownPeople, target: Target, parts: Parts, seed: int) -> tuple[Attempt, Attempt, Array]:
    """Calibrated probabilities of each group for validation and test people: by facts, and by facts and release.

    Also returns the probabilities by facts for the training people.
    """
    y, known = target.values[parts.train], target.values[parts.validation]

    def of_parts(features: Matrix) -> list[Matrix]:
        return [features[rows] for rows in (parts.train, parts.validation, parts.test)]

    x = of_parts(people.features(with_release=False))
    model = Boosting(target.classes, *_BOOSTING, seed).fit(x[0], y, x[1], known)
    before = [model.predict(part) for part in x]
    after = _improved(before, of_parts(people.features(with_release=True)), y, known, seed)
    alone, with_file = (
        Attempt(name, "presence", *_calibrated(predicted[-2], known, predicted[-1]))
        for name, predicted in (("facts", before), ("facts and release", after))
    )
    return alone, with_file, before[0]


def _improved(before: Sequence[Array], x: Sequence[Matrix], y: Array, known: Array, seed: int) -> list[Array]:
    """Predictions for validation and test people, boosted from those of the facts for as long as it helps the former.

    before, x: predictions and features of training, validation and test people.
    """
    import lightgbm

    classes = before[0].shape[1]
    scores = [np.log(np.clip(part, 1e-6, 1.0)) for part in before]
    settings = {"objective": "multiclass", "num_class": classes, "learning_rate": _BOOSTING[1], "seed": seed,
                "num_leaves": _BOOSTING[0], "verbose": -1, "deterministic": True, "force_row_wise": True}  # fmt: skip
    rows = lightgbm.Dataset(x[0], y, init_score=scores[0], free_raw_data=False)
    held = lightgbm.Dataset(x[1], known, init_score=scores[1], reference=rows, free_raw_data=False)
    stop = lightgbm.early_stopping(20, verbose=False)
    model = lightgbm.train(settings, rows, _BOOSTING[2], valid_sets=[held], callbacks=[stop])
    after = [softmax(start + np.asarray(model.predict(part, raw_score=True)), axis=1)
             for start, part in zip(scores[1:], x[1:], strict=True)]  # fmt: skip
    truth = (np.arange(len(known)), known.astype(np.int64))
    told = np.log(np.clip(after[0][truth], 1e-12, 1.0)) - scores[1][truth]
    helps = told.mean() > told.std() / np.sqrt(len(told))  # by a standard error: the number of trees was chosen here
    return after if helps else list(before[1:])


def _calibrated(validation: Array, known: Array, test: Array) -> tuple[Array, Array]:
    """Each group's probability, recalibrated on validation people by a logistic regression on its log-odds."""
    from sklearn.linear_model import LogisticRegression

    out = [validation.copy(), test.copy()]
    for code in range(validation.shape[1]):
        own = known == code
        if not 0 < own.sum() < len(own):
            continue
        odds = [logit(np.clip(part[:, [code]], 1e-6, 1 - 1e-6)) for part in (validation, test)]
        curve = LogisticRegression(C=100.0).fit(odds[0], own)
        for part, values in zip(out, odds, strict=True):
            part[:, code] = curve.predict_proba(values)[:, 1]
    return out[0], out[1]


def _certainty(
    sure: NDArray[np.bool_], before: NDArray[np.bool_], of: NDArray[np.bool_], truth: Truth, confidence: float
) -> dict[str, Any]:
    """Shares of these people whose true group is certain, with and without the release, and their difference."""
    weights = _at(truth.weights, of)
    gain = paired_difference((sure & ~before)[of], (before & ~sure)[of], confidence, weights)
    shares = (np.average(side[of], weights=weights) for side in (sure, before))
    return {"people": int(of.sum()), **dict(zip(("certain", "certain_facts"), map(float, shares), strict=True)),
            **flat("newly_certain", gain)}  # fmt: skip


def _best_rule(
    code: int, matches: NDArray[np.int64], alone: Attempt, truth: Truth, confidence: float
) -> dict[str, Any]:
    """The rule about the number of matches that adds most to what facts tell, chosen on validation people."""
    known, test = matches[truth.parts.validation], matches[truth.parts.test]
    best: tuple[float, str, NDArray[np.bool_]] = (-np.inf, "no match", test == 0)
    for name, judged, named in _rules(known, test):
        if judged.sum() >= _FEWEST_OF_A_RULE:
            right = clopper_pearson((truth.validation[judged] == code).sum(), judged.sum(), confidence)[0]
            gain = float(right) - float(alone.validation[judged, code].mean())
            if gain > best[0]:
                best = (gain, name, named)
    _, name, named = best
    own = truth.test == code
    facts = alone.test[named, code]
    return {"rule": name, "rule_people": int(named.sum()),
            **flat("precision", _share(own[named], confidence, _at(truth.weights, named))),
            "rule_facts": float(np.average(facts, weights=_at(truth.weights, named))) if len(facts) else float("nan"),
            "rule_share": float(np.average(named[own], weights=_at(truth.weights, own)))}  # fmt: skip


def _named_for_certain(
    code: int, matches: NDArray[np.int64], learned: Array, alone: Attempt, truth: Truth
) -> NDArray[np.bool_]:
    """Test people whom a rule assigns to a group for certain: models of few people are less certain than such rules.

    A rule counts if it is significantly more often right than `CERTAIN` about people with a known S, among those whose
    facts alone are not certain: otherwise it might only repeat what facts tell.
    """
    parts = truth.parts
    every = np.concatenate([parts.train, parts.validation])
    # Each person counts once: training rows are repeated by their weights.
    once = np.unique(every if parts.people is None else parts.people[every], return_index=True)[1]
    known = every[once]
    by_facts = np.concatenate([learned[:, code], alone.validation[:, code]])[once] > CERTAIN
    own = truth.values[known] == code
    test = matches[parts.test]
    named = np.zeros(len(test), dtype=bool)
    level = 1.0 - _FALSE_RULES / (len(_MORE_THAN) + 2)
    for _, judged, chosen in _rules(matches[known], test):
        judged = judged & ~by_facts
        named |= chosen & bool(clopper_pearson(own[judged].sum(), judged.sum(), level)[0] > CERTAIN)
    return named


def _rules(
    known: NDArray[np.int64], test: NDArray[np.int64]
) -> Iterable[tuple[str, NDArray[np.bool_], NDArray[np.bool_]]]:
    yield "no match", known == 0, test == 0
    yield "exactly one match", known == 1, test == 1
    for least in _MORE_THAN:
        yield f"more than {least} match{'es' if least > 1 else ''}", known > least, test > least


def _share(hits: NDArray[np.bool_], confidence: float, weights: Array | None) -> Estimate:
    """A share; without rows, or without weight, its interval is all of [0, 1]."""
    if not len(hits) or (weights is not None and not weights.any()):
        return Estimate(float("nan"), 0.0, 1.0, 0)
    return share(hits, confidence, weights)


def _at(weights: Array | None, rows: NDArray[np.bool_]) -> Array | None:
    return None if weights is None else weights[rows]
