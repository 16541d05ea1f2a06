"""Downstream tasks: fresh models trained on the release, their use and their fairness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairveil.auditing.attackers import Array, Attacker, Profile, battery
from fairveil.auditing.inputs import Target, in_quarters
from fairveil.auditing.protocol import Evidence, attempt
from fairveil.auditing.scoring import Truth, flat
from fairveil.metrics import (
    Estimate,
    Gap,
    accuracy,
    demographic_parity_gap,
    equalized_odds_gap,
    group_rates,
    r_squared,
)

#: Cells into which predicted numbers are cut for ΔDemP.
_CELLS = 10


def task_models(profile: Profile, *, images: bool) -> list[Attacker]:
    """LightGBM and a network, as a user of the release would train them."""
    names = {"LightGBM", "CNN"} if images else {"LightGBM"}
    chosen = [a for a in battery(profile, images=images) if a.view != "everything" and a.view != "details"]
    networks = [a for a in chosen if a.name.startswith("MLP")]
    return [*[a for a in chosen if a.name in names], networks[0]]


@dataclass(frozen=True)
class Used:
    """A task: a row for each model, kind of test row and sensitive column; rates of every group where Y is binary."""

    rows: list[dict[str, Any]]
    rates: list[dict[str, Any]]


def task_rows(
    task: Target,
    secrets: Sequence[Target],
    release: Evidence,
    original: Evidence | None,
    *,
    models: Sequence[Attacker],
    on_original: bool,
    confidence: float,
    seed: int,
    step: Callable[[str], None],
) -> Used:
    """Train every model on the release and measure it."""
    used = Used([], [])
    for model in models:
        step(f"{task.name}: {model.name}")
        made = attempt(model, release, task, seed, also=original if on_original else None)
        found = {"released": made.test}
        if made.other is not None:
            found["original"] = made.other
        baseline = None
        if original is not None:
            step(f"{task.name}: {model.name} on the original")
            baseline = attempt(model, original, task, seed).test
        for tested_on, predicted in found.items():
            _measure(used, task, secrets, release, model.name, tested_on, predicted, baseline, confidence)
    return used


def _measure(
    used: Used, task: Target, secrets: Sequence[Target], evidence: Evidence, model: str, tested_on: str,
    predicted: Array, baseline: Array | None, confidence: float,
) -> None:  # fmt: skip
    truth = Truth.of(task, evidence.parts)
    use = usefulness(predicted, truth, confidence)
    row: dict[str, Any] = {"target": task.name, "model": model, "tested_on": tested_on, "rows": len(truth.test),
                           "measure": "accuracy" if task.classes else "r2", **flat("utility", use)}  # fmt: skip
    row["majority"] = float(np.mean(truth.test == truth.majority)) if task.classes else 0.0
    if baseline is not None:
        before = usefulness(baseline, truth, confidence)
        room = before.value - row["majority"]
        row |= {**flat("baseline", before), "kept": (use.value - row["majority"]) / room if room > 0 else np.nan}
    for secret in secrets:
        quarters = in_quarters(secret)
        groups = np.asarray(quarters.labels)[quarters.values[truth.parts.test].astype(np.int64)]
        parity, odds = fairness(predicted, truth, groups, confidence)
        line = {**row, "sensitive": secret.name, **flat("parity_gap", parity)}
        if odds is not None and odds.total is not None:
            line |= {**flat("odds_gap", odds), **flat("odds_gap_sum", odds.total)}
        used.rows.append(line)
        if task.classes == 2:
            frame = group_rates(predicted.argmax(axis=1), truth.test.astype(np.int64), groups, positive=1,
                                confidence=confidence)  # fmt: skip
            shared = {"target": task.name, "model": model, "tested_on": tested_on, "sensitive": secret.name,
                      "positive": task.labels[1]}  # fmt: skip
            used.rates.extend({**shared, **record} for record in frame.to_dict("records"))


def usefulness(predicted: Array, truth: Truth, confidence: float) -> Estimate:
    """Accuracy of classes, R^2 of numbers, on test rows."""
    if truth.target.classes is None:
        return r_squared(predicted, truth.test, truth.center, confidence)
    return accuracy(predicted.argmax(axis=1), truth.test.astype(np.int64), confidence)


def fairness(predicted: Array, truth: Truth, groups: Any, confidence: float) -> tuple[Gap, Gap | None]:
    """ΔDemP and, for classes, ΔEO of the predictions."""
    if truth.target.classes is None:
        return demographic_parity_gap(predicted, groups, bins=_CELLS, confidence=confidence), None
    guess, codes = predicted.argmax(axis=1), truth.test.astype(np.int64)
    parity = demographic_parity_gap(guess, groups, confidence=confidence)
    return parity, equalized_odds_gap(guess, codes, groups, confidence=confidence)
