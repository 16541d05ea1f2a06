"""Downstream tasks: fresh models trained on the release, their use and their fairness."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fairveil.auditing.attackers import Array, Attacker, Profile, battery
from fairveil.auditing.inputs import Target
from fairveil.auditing.protocol import Evidence, attempt
from fairveil.auditing.scoring import Truth, flat
from fairveil.metrics import Estimate, Gap, accuracy, demographic_parity_gap, equalized_odds_gap, of_mean

#: Cells into which predicted numbers are cut for ΔDemP.
_CELLS = 10


def task_models(profile: Profile, *, images: bool) -> list[Attacker]:
    """LightGBM and a network, as a user of the release would train them."""
    names = {"LightGBM", "CNN"} if images else {"LightGBM"}
    chosen = [a for a in battery(profile, images=images) if a.view != "everything" and a.view != "details"]
    networks = [a for a in chosen if a.name.startswith("MLP")]
    return [*[a for a in chosen if a.name in names], networks[0]]


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
) -> list[dict[str, Any]]:
    """One row for each model, kind of test row and sensitive column."""
    rows = []
    for model in models:
        step(f"{task.name}: {model.name}")
        made = attempt(model, release, task, seed)
        found = {"released": made.test}
        baseline = None
        if original is not None:
            step(f"{task.name}: {model.name} on the original")
            baseline = attempt(model, original, task, seed).test
        if on_original and original is not None:
            step(f"{task.name}: {model.name} tested on the original")
            found["original"] = attempt(model, release.with_test_rows_of(original), task, seed).test
        for tested_on, predicted in found.items():
            rows += _measured(task, secrets, release, model.name, tested_on, predicted, baseline, confidence)
    return rows


def _measured(
    task: Target, secrets: Sequence[Target], evidence: Evidence, model: str, tested_on: str, predicted: Array,
    baseline: Array | None, confidence: float,
) -> list[dict[str, Any]]:  # fmt: skip
    truth = Truth.of(task, evidence.parts)
    use = usefulness(predicted, truth, confidence)
    row: dict[str, Any] = {"target": task.name, "model": model, "tested_on": tested_on, "rows": len(truth.test),
                           "measure": "accuracy" if task.classes else "r2", **flat("utility", use)}  # fmt: skip
    row["majority"] = float(np.mean(truth.test == truth.majority)) if task.classes else 0.0
    if baseline is not None:
        before = usefulness(baseline, truth, confidence)
        room = before.value - row["majority"]
        row |= {**flat("baseline", before), "kept": (use.value - row["majority"]) / room if room > 0 else np.nan}
    out = []
    for secret in secrets:
        groups = _group_names(secret)[truth.parts.test]
        parity, odds = fairness(predicted, truth, groups, confidence)
        line = {**row, "sensitive": secret.name, **flat("parity_gap", parity)}
        if odds is not None and odds.total is not None:
            line |= {**flat("odds_gap", odds), **flat("odds_gap_sum", odds.total)}
        out.append(line)
    return out


def usefulness(predicted: Array, truth: Truth, confidence: float) -> Estimate:
    """Accuracy of classes, R^2 of numbers, on test rows."""
    if truth.target.classes is None:
        center = float(np.mean(truth.values[truth.parts.train]))
        return of_mean(1.0 - (truth.test - predicted) ** 2 / np.mean((truth.test - center) ** 2), confidence)
    return accuracy(predicted.argmax(axis=1), truth.test.astype(np.int64), confidence)


def fairness(predicted: Array, truth: Truth, groups: Any, confidence: float) -> tuple[Gap, Gap | None]:
    """ΔDemP and, for classes, ΔEO of the predictions."""
    if truth.target.classes is None:
        return demographic_parity_gap(predicted, groups, bins=_CELLS, confidence=confidence), None
    guess, codes = predicted.argmax(axis=1), truth.test.astype(np.int64)
    parity = demographic_parity_gap(guess, groups, confidence=confidence)
    return parity, equalized_odds_gap(guess, codes, groups, confidence=confidence)


def _group_names(secret: Target) -> Any:
    if secret.classes is not None:
        return np.asarray(secret.labels, dtype=object)[secret.values.astype(np.int64)].astype(str)
    edges = np.quantile(secret.values, [0.25, 0.5, 0.75])
    return np.array(["lowest quarter", "second quarter", "third quarter", "highest quarter"])[
        np.digitize(secret.values, edges)
    ]
