"""Exchange of records by matchings on UCI Adult: what is certified, and what a fresh model still finds.

python benchmarks/exchange.py weights   the weight of a known target, judged on held-out training rows
python benchmarks/exchange.py adult     case I, three seeds, test rows: without and with the task known
python benchmarks/exchange.py groups    case II, twelve groups
python benchmarks/exchange.py budgets   within distortion budgets instead of a certified value
python benchmarks/exchange.py publication   the frontier of publications, and what links, presence and absence tell
python benchmarks/exchange.py speed     one million rows: representation and publication, time and peak memory
"""

import resource
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import fairveil as fv
from common import MEASURED, fit_and_judge, run_parts
from fairveil.auditing import probe
from fairveil.auditing.facts import Facts
from fairveil.auditing.inputs import make_target, read_release, read_targets
from fairveil.auditing.presence import known_people, presence_rows
from fairveil.auditing.protocol import Terms, split_rows
from fairveil.datasets import load_adult

SEEDS = (0, 1, 2)
#: Seven facts that an attacker knows of a person, with and without marital status, which tells much of sex by itself.
SEVEN = ["age", "workclass", "education", "marital-status", "occupation", "race", "native-country"]
LINK = ["age", "workclass", "education", "occupation", "race", "native-country", "hours-per-week"]


def judged(
    x: pd.DataFrame, s: pd.DataFrame, y: pd.Series, test: np.ndarray, settings: Mapping[str, Any], *, known: bool
) -> dict[str, float]:
    """The figures of `judged_with_table`."""
    return judged_with_table(x, s, y, test, settings, known=known)[1]


def judged_with_table(
    x: pd.DataFrame, s: pd.DataFrame, y: pd.Series, test: np.ndarray, settings: Mapping[str, Any], *, known: bool
) -> tuple[pd.DataFrame, dict[str, float]]:
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
    spent = float(certificate.evidence.rsplit(" ", 1)[1].rstrip("."))
    row = {
        "certified": certificate.bound,
        "distortion": spent,
        "salary acc": salary.accuracy.value,
        "ΔDemP": salary.gap.value,
    }
    for name in s:
        found = probe(released[~test], s.loc[~test, name], released[test], s.loc[test, name])
        row |= {f"{name} acc": found.accuracy.value}
        if found.auc is not None:
            row |= {f"{name} AUC": found.auc.value}
    return released, {**row, "s": seconds}


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
    """Within a budget: as few rows as possible keep their records. Infinity: all exchange them."""
    x, s, y, test = everything("I")
    rows = []
    for budget in (0.6, 0.8, 1.0, 1.25, 1.5, None):
        for seed in SEEDS:
            settings = {"certified": 0.0 if budget is None else None, "budget": budget, "random_state": seed}
            row = MEASURED.take(partial(judged, x, s, y, test, settings, known=False), "budgets", budget, seed)
            rows.append({"budget": budget or np.inf, "seed": seed, **row})
    show("Case I within distortion budgets, test rows", rows, ["budget"])


def newly_certain(original: pd.DataFrame, released: pd.DataFrame, s: pd.Series) -> dict[str, float]:
    """Points of the people of each group whose sex becomes more than 90 % certain by matching rows, and its limit."""
    target = make_target("sex", read_targets(s, "sex")["sex"])
    parts = split_rows(None, target.values, len(original), 100_000, 0)
    people = known_people(SEVEN, read_release(released, "released"), read_release(original, "original"), ["sex"])
    found = presence_rows(target.take(parts.rows), people.take(parts.rows), parts.among(parts.rows), Terms(seed=0))
    rows = {row["group"] or "all": row for row in found}
    return {f"certain {name} {end}".strip(): 100 * row[f"newly_certain{end and '_' + end}"]
            for name, row in rows.items() for end in ("", "high")}  # fmt: skip


def linked_auc(original: pd.DataFrame, released: pd.DataFrame, s: pd.Series, test: np.ndarray) -> tuple[float, float]:
    """AUC on sex from seven facts alone, and with the other columns of the released rows that match them.

    Each person is looked up in the whole file; without a match the other columns are missing, and of several matching
    rows one is taken.
    """
    facts = Facts.of(LINK, *(read_release(table, "").arrow for table in (original, released)))
    keys = [pd.Series(list(map(bytes, facts.codes(read_release(table, "").arrow)))) for table in (original, released)]
    first = keys[1].drop_duplicates()
    place = pd.Series(first.index, index=first.to_numpy()).reindex(keys[0]).to_numpy()
    others = [name for name in original if name not in LINK]
    read = released[others].add_prefix("read ").reindex(place).reset_index(drop=True)
    told = original[LINK].reset_index(drop=True)
    return tuple(probe(x[~test], s[~test], x[test], s[test]).auc.value for x in (told, pd.concat([told, read], axis=1)))  # type: ignore[return-value]


def publication() -> None:
    """The frontier of publications on UCI Adult: utility, leakage, presence and absence, links; with controls."""
    x, s, y, test = everything("I")
    sex = s["sex"]

    def control(name: str) -> dict[str, float]:
        table = x if name == "original" else fv.exchange(
            x, sensitive_features=s, within=test, certified=0.0, random_state=0, verbose=False)[0]  # fmt: skip
        alone, linked = linked_auc(x, table, sex, test)
        return {"facts AUC": alone, "linked AUC": linked, **newly_certain(x, table, sex)}

    def one(budget: float | None, seed: int, known: bool) -> dict[str, float]:
        settings = {"purpose": "publication", "certified": 0.05 if budget is None else None, "budget": budget,
                    "random_state": seed}  # fmt: skip
        released, figures = judged_with_table(x, s, y, test, settings, known=known)
        if seed == 0:
            figures |= newly_certain(x, released, sex) | {"linked AUC": linked_auc(x, released, sex, test)[1]}
        return figures

    rows = []
    for known, budget in ((False, None), (False, 1.2), (False, 1.6), (False, 0.8), (True, None), (True, 1.6)):
        for seed in SEEDS:
            found = MEASURED.take(partial(one, budget, seed, known), "publication", known, budget, seed)
            rows.append({"task known": known, "budget": budget or np.inf, "seed": seed, **found})
    for name in ("original", "representation"):
        print(name, MEASURED.take(partial(control, name), "publication", name), flush=True)
    show("Case I, publications, test rows (distortion by ranks)", rows, ["task known", "budget"])


def speed(number: int = 1_000_000, purposes: Sequence[str] = ("publication", "representation")) -> None:
    """Adult repeated to one million rows, with new draws of its numbers."""
    x, s, _, _ = everything("I")
    rng = np.random.default_rng(0)
    rows = rng.integers(len(x), size=number)
    many = x.iloc[rows].reset_index(drop=True)
    for name in many.select_dtypes("number"):
        many[name] = many[name] * rng.uniform(0.98, 1.02, len(many))
    for purpose in purposes:
        started, used = time.monotonic(), time.process_time()
        certified = 0.0 if purpose == "representation" else 0.05
        _, certificate = fv.exchange(
            many, sensitive_features=s.iloc[rows], purpose=purpose, certified=certified, random_state=0
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"\n## {number:,} rows, {purpose}: {time.monotonic() - started:.0f} s, processor time "
              f"{time.process_time() - used:.0f} s, peak memory so far {peak:.2f} GiB. {certificate.evidence}",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    run_parts(
        __doc__,
        {
            "weights": weights,
            "adult": adult,
            "groups": groups,
            "budgets": budgets,
            "publication": publication,
            "speed": speed,
        },
    )
