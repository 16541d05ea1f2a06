"""Downstream tasks: utility and fairness of models trained on the release."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairveil.auditing.attackers import Attacker, Profile, battery
from fairveil.auditing.clusters import widened
from fairveil.auditing.inputs import Target, in_quarters
from fairveil.auditing.model import Array
from fairveil.auditing.protocol import Attempt, Evidence, Terms, Wanted
from fairveil.auditing.scoring import Truth, flat, majority_share
from fairveil.metrics import (
    Estimate,
    accuracy,
    demographic_parity_gap,
    equalized_odds_gap,
    group_rates,
    r_squared,
)
from fairveil.metrics.parity import SMALL_GROUP

#: Quantile bins of predicted numbers for ΔDemP.
_CELLS = 10


def task_models(profile: Profile, *, images: bool) -> list[Attacker]:
    """LightGBM and a network, as a user of the release would train them."""
    names = {"LightGBM", "CNN"} if images else {"LightGBM"}
    chosen = [a for a in battery(profile, images=images) if a.view in ("values", "images")]
    networks = [a for a in chosen if a.name.startswith("MLP")]
    return [*[a for a in chosen if a.name in names], networks[0]]


@dataclass(frozen=True)
class Used:
    """A task: one row per model, kind of test rows and sensitive column; rates of every group if Y is binary; what the
    models predicted.
    """

    rows: list[dict[str, Any]]
    rates: list[dict[str, Any]]
    attempts: list[Attempt]


def task_rows(
    task: Target,
    secrets: Sequence[Target],
    release: Evidence,
    original: Evidence | None,
    models: Sequence[Attacker],
    terms: Terms,
    *,
    on_original: bool,
) -> Used:
    """Train every model on the release and score it. Its users have one draw, so models learn from one."""
    used = Used([], [], [])
    release = release.on(release.parts)
    also = original if on_original else None
    wanted = [Wanted(f"{task.name}: {model.name}", model, release, task, also=also) for model in models]
    if original is not None:
        wanted += [Wanted(f"{task.name}: {model.name} on the original", model, original, task) for model in models]
    attempts = terms.attempts(wanted)
    for number, model in enumerate(models):
        made = attempts[number]
        used.attempts.append(made)
        found = {"released": made.test}
        if made.other is not None:
            found["original"] = made.other
        baseline = None if original is None else attempts[len(models) + number].test
        for tested_on, predicted in found.items():
            truth = Truth.of(task, release.parts)
            shared = {"target": task.name, "model": model.name, "tested_on": tested_on}
            row = {**shared, **_use(predicted, baseline, truth, terms.confidence)}
            for secret in secrets:
                labels, codes = in_quarters(secret).labels, in_quarters(secret).values
                groups = np.asarray(labels)[codes[truth.parts.test].astype(np.int64)]
                named = {"sensitive": secret.name}
                used.rows.append({**row, **named, **_gaps(predicted, truth, groups, terms.confidence)})
                used.rates.extend({**shared, **named, **rate}
                                  for rate in _rates(predicted, truth, groups, terms.confidence))  # fmt: skip
    return used


def _use(predicted: Array, baseline: Array | None, truth: Truth, confidence: float) -> dict[str, Any]:
    """Utility, next to that of a constant guess and of the same model on the original data."""
    classes, use = truth.target.classes, usefulness(predicted, truth, confidence)
    majority = majority_share(truth) if classes else 0.0
    row: dict[str, Any] = {"rows": len(truth.test), "measure": "accuracy" if classes else "r2",
                           **flat("utility", use), "majority": majority}  # fmt: skip
    if baseline is not None:
        before = usefulness(baseline, truth, confidence)
        room = before.value - majority
        row |= {**flat("baseline", before), "kept": (use.value - majority) / room if room > 0 else np.nan}
    return row


def _gaps(predicted: Array, truth: Truth, groups: Any, confidence: float) -> dict[str, float]:
    """ΔDemP and, for classes, ΔEO of the predictions, between groups with enough rows to estimate a rate."""
    names, sizes = np.unique(groups, return_counts=True)
    large = np.isin(groups, names[sizes >= SMALL_GROUP])
    if len(np.unique(groups[large])) >= 2 and not large.all():
        parts = truth.parts
        kept = replace(parts, test=parts.test[large])
        return _gaps(predicted[large], replace(truth, parts=kept), groups[large], confidence)
    if truth.target.classes is None:
        return flat("parity_gap", demographic_parity_gap(predicted, groups, bins=_CELLS, confidence=confidence,
                                                         sample_weight=truth.weights))  # fmt: skip
    guess = predicted.argmax(axis=1)
    terms: dict[str, Any] = {"confidence": confidence, "sample_weight": truth.weights}
    parity = demographic_parity_gap(guess, groups, **terms)
    odds = equalized_odds_gap(guess, truth.test.astype(np.int64), groups, **terms)
    assert odds.total is not None
    return {**flat("parity_gap", parity), **flat("odds_gap", odds), **flat("odds_gap_sum", odds.total)}


def _rates(predicted: Array, truth: Truth, groups: Any, confidence: float) -> list[dict[str, Any]]:
    """Rates of each group, if Y is binary."""
    if truth.target.classes != 2:
        return []
    guess, codes = predicted.argmax(axis=1), truth.test.astype(np.int64)
    frame = group_rates(guess, codes, groups, positive=1, confidence=confidence, sample_weight=truth.weights)
    return [{"positive": truth.target.labels[1], **record} for record in frame.to_dict("records")]


def usefulness(predicted: Array, truth: Truth, confidence: float) -> Estimate:
    """Accuracy for classes, R^2 for numbers, on test rows."""
    mass = 1.0 if truth.weights is None else truth.weights
    if truth.target.classes is None:
        found = r_squared(predicted, truth.test, truth.center, confidence, sample_weight=truth.weights)
        errors = (truth.test - predicted) ** 2 - (1.0 - found.value) * (truth.test - truth.center) ** 2
        return widened(found, mass * errors, truth.clusters)
    right = predicted.argmax(axis=1) == truth.test
    found = accuracy(predicted.argmax(axis=1), truth.test.astype(np.int64), confidence, sample_weight=truth.weights)
    return widened(found, mass * (right - found.value), truth.clusters, (0.0, 1.0))
