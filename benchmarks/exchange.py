"""Exchange of records by matchings on UCI Adult: what is certified, and what a fresh model still finds.

python benchmarks/exchange.py weights   the weight of a known target, judged on held-out training rows
python benchmarks/exchange.py adult     case I, three seeds, test rows: without and with the task known
python benchmarks/exchange.py groups    case II, twelve groups
python benchmarks/exchange.py budgets   within distortion budgets instead of a certified value
python benchmarks/exchange.py speed     one million rows
"""

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

import fairveil as fv
from common import fit_and_judge, run_parts
from fairveil.auditing import probe
from fairveil.datasets import load_adult

SEEDS = (0, 1, 2)


def judged(
    x: pd.DataFrame, s: pd.DataFrame, y: pd.Series, test: np.ndarray, settings: Mapping[str, Any], *, known: bool
) -> dict[str, float]:
    """Rows of the training and of the test part exchange records among themselves; fresh models judge the test part.

    With the task known, only labels of the training part are given; those of the test part are predicted.
    """
    started = time.monotonic()
    targets = {"salary": y.where(~test)} if known else None
    released, certificate = fv.exchange(
        x, sensitive_features=s, within=test, targets=targets, verbose=False, **settings
    )
    seconds = time.monotonic() - started
    pair = s.agg("|".join, axis=1)
    salary = probe(released[~test], y[~test], released[test], y[test], groups=pair[test])
    row = {"certified": certificate.bound, "salary acc": salary.accuracy.value, "ΔDemP": salary.gap.value}
    for name in s:
        found = probe(released[~test], s.loc[~test, name], released[test], s.loc[test, name])
        row |= {f"{name} acc": found.accuracy.value}
        if found.auc is not None:
            row |= {f"{name} AUC": found.auc.value}
    return {**row, "s": seconds}


def show(title: str, rows: list[dict[str, Any]], by: list[str]) -> None:
    """Print means and standard deviations over seeds."""
    frame = pd.DataFrame(rows)
    print(f"\n## {title}\n")
    grouped = frame.drop(columns="seed").groupby(by, sort=False)
    print(grouped.mean().round(4).to_string())
    print("\nstandard deviations over seeds\n")
    print(grouped.std().round(4).to_string(), flush=True)


def everything(case: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.Series, np.ndarray]:
    """All rows of UCI Adult, and which of them are test rows."""
    train, test = load_adult(case)
    x, s = (pd.concat(parts, ignore_index=True) for parts in ((train.X, test.X), (train.S, test.S)))
    y = pd.concat([pd.Series(part.targets["salary"]) for part in (train, test)], ignore_index=True).astype(object)
    return x, s.astype(str), y, np.arange(len(x)) >= len(train.X)


def weights() -> None:
    """The weight of a known target, on held-out training rows."""
    x, s, y, test = everything("I")
    x, s, y = x[~test], s[~test], y[~test]
    held = np.zeros(len(x), dtype=bool)
    held[fit_and_judge(len(x))[1]] = True
    rows = []
    for weight in (100.0, 300.0, 1000.0, 3000.0):
        for seed in SEEDS:
            settings = {"certified": 0.05, "target_weight": weight, "random_state": seed}
            rows.append({"weight": weight, "seed": seed, **judged(x, s, y, held, settings, known=True)})
    show("Weight of a known target, validation rows", rows, ["weight"])


def adult() -> None:
    """Certified 0, .05 and .1, without and with the task known."""
    x, s, y, test = everything("I")
    rows = []
    for known in (False, True):
        for certified in (0.0, 0.05, 0.1):
            for seed in SEEDS:
                row = judged(x, s, y, test, {"certified": certified, "random_state": seed}, known=known)
                rows.append({"task known": known, "asked": certified, "seed": seed, **row})
                print(rows[-1], flush=True)
    show("Case I, certified by construction, test rows", rows, ["task known", "asked"])


def groups() -> None:
    """Twelve groups of sex and relationship."""
    x, s, y, test = everything("II")
    rows = [
        {"task known": known, "asked": certified, "seed": seed,
         **judged(x, s, y, test, {"certified": certified, "random_state": seed}, known=known)}
        for known in (False, True) for certified in (0.0, 0.1) for seed in SEEDS
    ]  # fmt: skip
    show("Case II, twelve groups, test rows", rows, ["task known", "asked"])


def budgets() -> None:
    """Within a budget: as few rows as possible keep their records."""
    x, s, y, test = everything("I")
    rows = [
        {"budget": budget, "seed": seed,
         **judged(x, s, y, test, {"certified": None, "budget": budget, "random_state": seed}, known=False)}
        for budget in (0.6, 0.8, 1.0, 1.25, 1.5) for seed in SEEDS
    ]  # fmt: skip
    show("Case I within distortion budgets, test rows", rows, ["budget"])


def speed() -> None:
    """Adult repeated to one million rows, with new draws of its numbers."""
    x, s, _, _ = everything("I")
    rng = np.random.default_rng(0)
    rows = rng.integers(len(x), size=1_000_000)
    many = x.iloc[rows].reset_index(drop=True)
    for name in many.select_dtypes("number"):
        many[name] = many[name] * rng.uniform(0.98, 1.02, len(many))
    started = time.monotonic()
    _, certificate = fv.exchange(many, sensitive_features=s.iloc[rows], certified=0.0, random_state=0)
    print(f"\n## One million rows: {time.monotonic() - started:.0f} s. {certificate.evidence}", flush=True)


if __name__ == "__main__":
    run_parts(__doc__, {"weights": weights, "adult": adult, "groups": groups, "budgets": budgets, "speed": speed})
