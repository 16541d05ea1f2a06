"""Any S and any task: S unseen at release, many groups, numbers, known tasks, equalized odds, more tables.

python benchmarks/any_s.py unseen    Adult, S = sex, the encoder sees X only: transport beside feed-forward
python benchmarks/any_s.py groups    Adult, S = (sex, relationship), twelve groups; seconds of a fit beside two groups
python benchmarks/any_s.py numeric   Adult, S = age in years (from the raw file)
python benchmarks/any_s.py tasks     Adult, S = sex, seen and unseen: salary known; salary and hours > 40 known
python benchmarks/any_s.py odds      Adult, S = sex: a release that says nothing of S beyond what salary says
python benchmarks/any_s.py tables    six sensitive columns of three other tables: transport beside feed-forward

Encoders are fitted on half of the training rows. Attackers learn from the other half, which is new to the encoder;
tasks are learned from all released training rows. A budget is chosen by 5,000 of the new rows (printed as `val`), of
which no attacker learns then; what is claimed is of the test rows. --seeds 0 1 2, --budgets 1 1.5, --rows 8000 (fewer
rows to fit), --architecture feedforward, --target-weight 0.05, --known salary blind.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adult import halves
from fairveil import FairEncoder, FairFrontier
from fairveil.auditing import probe
from fairveil.datasets import Split, load_adult
from fairveil.datasets.base import DATA_HOME
from fairveil.metrics import equalized_odds_gap

#: New rows by which a budget is chosen.
_VALIDATION = 5000


@dataclass(frozen=True)
class Options:
    """What the command line sets."""

    seeds: Sequence[int] = (0,)
    budgets: Sequence[float] = ()
    rows: int | None = None
    architecture: str = ""
    target_weight: float = 0.05
    known: Sequence[str] = ("salary", "long hours", "salary & long hours", "blind")

    def or_else(self, *budgets: float) -> list[float]:
        return list(self.budgets or budgets)


@dataclass(frozen=True)
class Setting:
    """One encoder on one split. y: the known tasks, from the split's targets. measure: figures of released rows."""

    train: Split
    test: Split
    budgets: Sequence[float]
    parameters: dict[str, Any]
    y: Callable[[Split], Any] = lambda split: None
    measure: Callable[..., dict[str, float]] = lambda *_: {}
    title: str = ""
    tags: dict[str, Any] = field(default_factory=dict)


def run(setting: Setting, seed: int, rows: int | None) -> list[dict[str, Any]]:
    """Fit all budgets at once; measure on validation and on test rows."""
    train, test = setting.train, setting.test
    fitted, new = halves(train, seed).values()
    fitted, validation, learn = fitted[:rows], new[:_VALIDATION], new[_VALIDATION:]
    encoder = FairEncoder(random_state=seed, verbose=False, handle_unknown="most_frequent", unmet="warn",
                          **setting.parameters)  # fmt: skip
    start = time.monotonic()
    y = setting.y(part(train, fitted))
    frontier = FairFrontier(encoder, setting.budgets).fit(
        train.X.iloc[fitted], y, sensitive_features=train.S.iloc[fitted]
    )
    seconds, found = time.monotonic() - start, []
    for budget in setting.budgets:
        chosen = frontier.at(budget)
        x, x_test = (
            chosen.transform(split.X, sensitive_features=split.S if chosen.sees_sensitive else None)
            for split in (train, test)
        )
        every = np.arange(len(x))
        figures = {"val": setting.measure(x, every[learn], learn, train, x.iloc[validation], part(train, validation)),
                   "": setting.measure(x, every, new, train, x_test, test)}  # fmt: skip
        row = {**setting.tags, "encoder": chosen.architecture_.name, "budget": budget, "seed": seed,
               "spent": chosen.distortion_.mean, "fit s": seconds}  # fmt: skip
        row |= {f"{name} {key}".strip(): value for name, each in figures.items() for key, value in each.items()}
        found.append(row)
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}), flush=True)
    return found


def part(split: Split, rows: np.ndarray) -> Split:
    return Split(split.X.iloc[rows], split.S.iloc[rows], {name: y.iloc[rows] for name, y in split.targets.items()})


def hidden_classes(
    x: pd.DataFrame, of_tasks: np.ndarray, of_attackers: np.ndarray, train: Split, x_test: pd.DataFrame, test: Split
) -> dict[str, float]:
    """Every task's accuracy, its ΔDemP (and ΔEO of a class) by every column of S, and what is found of S."""
    row: dict[str, float] = {}
    for name, truth in test.targets.items():
        task = probe(x.iloc[of_tasks], train.targets[name].iloc[of_tasks], x_test, truth)
        row[name] = task.accuracy.value
        for column in test.S:
            row[f"{name} ΔDemP {column}"] = gap(task.predicted, test.S[column])
            odds = equalized_odds_gap(task.predicted, truth, test.S[column])
            row[f"{name} ΔEO {column}"] = float(odds.total.value)
    for column in test.S:
        found = probe(x.iloc[of_attackers], train.S[column].iloc[of_attackers], x_test, test.S[column])
        row[f"{column} found"] = found.accuracy.value
        if found.mean_auc is not None:
            row[f"{column} AUC"] = found.mean_auc.value
    return row


def gap(predicted: np.ndarray, groups: pd.Series) -> float:
    """ΔDemP: the largest difference of a prediction's share between two groups."""
    shares = pd.crosstab(groups.to_numpy(), predicted, normalize="index")
    return float((shares.max() - shares.min()).max())


def hidden_number(
    x: pd.DataFrame, of_tasks: np.ndarray, of_attackers: np.ndarray, train: Split, x_test: pd.DataFrame, test: Split
) -> dict[str, float]:
    """Salary, the correlation ratio of its score on S (in single values), and R² of the best of three attackers."""
    a, b = coded(x, x_test)
    truth = train.targets["salary"].iloc[of_tasks]
    task = probe(x.iloc[of_tasks], truth, x_test, test.targets["salary"])
    score = trees("class").fit(a[of_tasks], truth).predict_proba(b)[:, 1]
    s, s_test = train.S.iloc[of_attackers, 0].to_numpy(float), test.S.iloc[:, 0].to_numpy(float)
    found = {name: r2(s_test, model.fit(a[of_attackers], s).predict(b)) for name, model in attackers().items()}
    return {"salary": task.accuracy.value, "correlation ratio": correlation_ratio(score, s_test),
            "R2": max(found.values()), "best attacker": max(found, key=lambda name: found[name])}  # fmt: skip


def correlation_ratio(score: np.ndarray, s: np.ndarray) -> float:
    """The share of the variance of a score that S explains: Var E[score | S] / Var score."""
    means = pd.Series(score).groupby(s).transform("mean")
    return float(means.var() / score.var())


def r2(truth: np.ndarray, guess: np.ndarray) -> float:
    return float(1.0 - np.mean((truth - guess) ** 2) / truth.var())


def coded(x: pd.DataFrame, x_test: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    both = pd.get_dummies(pd.concat([x, x_test]), dtype=np.float32).to_numpy(np.float32)
    return both[: len(x)], both[len(x) :]


def trees(kind: str) -> Any:
    import lightgbm

    settings: dict[str, Any] = {"n_estimators": 200, "learning_rate": 0.05, "verbose": -1, "n_jobs": 1}
    return lightgbm.LGBMClassifier(**settings) if kind == "class" else lightgbm.LGBMRegressor(**settings)


def attackers() -> dict[str, Any]:
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    network = MLPRegressor(hidden_layer_sizes=(64, 32), early_stopping=True, max_iter=30, random_state=0)
    return {"trees": trees("number"), "linear": make_pipeline(StandardScaler(), Ridge(10.0)),
            "network": make_pipeline(StandardScaler(), network)}  # fmt: skip


def show(title: str, rows: list[dict[str, Any]], by: Sequence[str] = ("encoder", "budget")) -> None:
    frame = pd.DataFrame(rows)
    mean = frame.groupby(list(by), sort=False).mean(numeric_only=True).drop(columns=["seed"], errors="ignore")
    print(
        f"\n## {title}\n\nMean over seeds {sorted(set(frame['seed']))}:\n\n{mean.round(4).T.to_string()}\n", flush=True
    )


def unseen(options: Options) -> None:
    train, test = load_adult("I")
    rows = []
    for name in ("transport", "feedforward") if not options.architecture else (options.architecture,):
        setting = Setting(train, test, options.or_else(1.0, 1.4, 1.8, 2.4), {"architecture": name},
                          measure=hidden_classes)  # fmt: skip
        for seed in options.seeds:
            rows += run(setting, seed, options.rows)
    show("S = sex, unseen at release", rows)


def groups(options: Options) -> None:
    rows = []
    for case in ("II", "I"):
        train, test = load_adult(case)
        parameters = {"sees_sensitive": True, "architecture": options.architecture or "transport"}
        setting = Setting(train, test, options.or_else(1.8, 2.2, 2.8), parameters, measure=hidden_classes,
                          tags={"case": case})  # fmt: skip
        for seed in options.seeds:
            rows += run(setting, seed, options.rows)
    show("S = (sex, relationship), seen; beside it the seconds of a fit for S = sex", rows, ("case", "budget"))


def with_age(split: Split, file: str) -> Split:
    """Adult with age in years as S and sex among the features."""
    content = gzip.decompress((Path(os.environ[DATA_HOME]) / file).read_bytes()).decode()
    lines = [line for line in content.splitlines() if line.count(",") == 14]
    age = pd.DataFrame({"age": [int(line.split(",")[0]) for line in lines]})
    return Split(split.X.drop(columns="age").assign(sex=split.S["sex"].to_numpy()), age, split.targets)


def numeric(options: Options) -> None:
    train, test = load_adult("I")
    split = with_age(train, "adult.data.gz"), with_age(test, "adult.test.gz")
    rows = []
    for loss in ("log", "squared"):
        parameters = {"sees_sensitive": True, "loss": loss, "architecture": options.architecture or "transport"}
        setting = Setting(*split, options.or_else(1.0, 1.5, 2.0), parameters, measure=hidden_number,
                          tags={"loss": loss})  # fmt: skip
        for seed in options.seeds:
            rows += run(setting, seed, options.rows)
    new = halves(split[0], 0)["new rows"]
    every = np.arange(len(split[0].X))
    print("The original table:", hidden_number(split[0].X, every, new, split[0], split[1].X, split[1]))
    show("S = age in years, seen", rows, ("loss", "budget"))


def two_tasks(split: Split) -> Split:
    long = (split.X["hours-per-week"] > 40).rename("long hours")
    return Split(split.X, split.S, {**split.targets, "long hours": long})


def tasks(options: Options) -> None:
    train, test = (two_tasks(split) for split in load_adult("I"))
    rows = []
    for known in options.known:
        sees, names = known != "blind", ["salary"] if known == "blind" else known.split(" & ")
        parameters = {"sees_sensitive": sees, "target_weight": options.target_weight,
                      "architecture": options.architecture or "transport"}  # fmt: skip
        setting = Setting(train, test, options.or_else(1.6, 2.0, 2.4), parameters,
                          y=lambda split, names=names: pd.DataFrame({name: split.targets[name] for name in names}),
                          measure=hidden_classes, tags={"known": known})  # fmt: skip
        for seed in options.seeds:
            rows += run(setting, seed, options.rows)
    show("Known tasks", rows, ("known", "budget"))


def odds(options: Options) -> None:
    train, test = load_adult("I")
    rows = []
    for sees in (True, False):
        parameters = {"sees_sensitive": sees, "fairness": "equalized_odds",
                      "architecture": options.architecture or "transport",
                      "target_weight": options.target_weight}  # fmt: skip
        setting = Setting(train, test, options.or_else(0.6, 1.0, 1.4), parameters,
                          y=lambda split: split.targets["salary"], measure=hidden_classes,
                          tags={"sees S": sees})  # fmt: skip
        for seed in options.seeds:
            rows += run(setting, seed, options.rows)
    show("Equalized odds", rows, ("sees S", "budget"))


#: File, sensitive column, task, and columns left out.
SIX = [
    ("acs2019_national.csv.gz", "RAC1P", "PINCP_DECILE", ("PUMA", "PWGTP", "WGTP", "PINCP")),
    ("acs2019_national.csv.gz", "AGEP", "PINCP_DECILE", ("PUMA", "PWGTP", "WGTP", "PINCP")),
    ("bank-full.csv.gz", "marital", "y", ()),
    ("bank-full.csv.gz", "age", "y", ()),
    ("credit-card-clients.csv.gz", "EDUCATION", "default payment", ("ID",)),
    ("credit-card-clients.csv.gz", "MARRIAGE", "default payment", ("ID",)),
]


def public(file: str, sensitive: str, task: str, drop: Sequence[str]) -> tuple[Split, Split]:
    """A table and its split: every third row is a test row. A number of S is compared in its eighths."""
    frame = pd.read_csv(Path(os.environ[DATA_HOME]) / "tables" / file)
    named = {name.strip().lower(): name for name in frame}
    task = next(name for key, name in named.items() if key.startswith(task.lower()))
    frame = frame.drop(columns=[name for name in drop if name in frame])
    truth = (pd.to_numeric(frame[task], errors="coerce") >= 8) if task == "PINCP_DECILE" else frame[task].astype(str)
    s = frame[sensitive]
    s = pd.qcut(s, 8, duplicates="drop").astype(str) if s.nunique() > 30 else s.astype(str)
    x = frame.drop(columns=[task, sensitive])
    test = np.arange(len(frame)) % 3 == 2
    both = [Split(x[rows].reset_index(drop=True), s[rows].to_frame().reset_index(drop=True),
                  {"task": truth[rows].reset_index(drop=True)}) for rows in (~test, test)]  # fmt: skip
    return both[0], both[1]


def tables(options: Options) -> None:
    rows = []
    for file, sensitive, task, drop in SIX:
        train, test = public(file, sensitive, task, drop)
        tags = {"S": f"{file.split('-')[0].split('_')[0]} {sensitive}"}
        for name in ("transport", "feedforward"):
            parameters = {"sees_sensitive": True, "architecture": name}
            setting = Setting(train, test, options.or_else(1.5), parameters, measure=hidden_classes, tags=tags)
            for seed in options.seeds:
                found = run(setting, seed, options.rows)
                rows += [{key.replace(f"{sensitive} ", ""): value for key, value in row.items()} for row in found]
    frame = pd.DataFrame(rows)
    print(frame.pivot_table(index=["S", "budget"], columns="encoder", values=["AUC", "task", "fit s"]).round(3))


PARTS = {"unseen": unseen, "groups": groups, "numeric": numeric, "tasks": tasks, "odds": odds, "tables": tables}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; all of them by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--budgets", type=float, nargs="+", default=[])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--architecture", default="")
    parser.add_argument("--target-weight", type=float, default=Options.target_weight)
    parser.add_argument("--known", nargs="+", default=Options.known)
    given = parser.parse_args()
    options = Options(given.seeds, given.budgets, given.rows, given.architecture, given.target_weight, given.known)
    for name in given.parts or list(PARTS):
        PARTS[name](options)
