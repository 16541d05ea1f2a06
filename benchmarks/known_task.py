"""Fair predictors and representations for one task on equal terms: rows, task models, attackers. `make compare`.

python benchmarks/known_task.py [--picture docs/known_task.png]                       UCI Adult, case I, salary
python benchmarks/known_task.py --table FILE --sensitive sex --target salary          any CSV or Parquet file
                                [--schema schema.json] [--budgets 0.5,1,2] [--methods ...] [--seeds 3]

Every method is fitted on the same rows with eight values of its trade-off. Of a representation, a fresh LightGBM learns
the target and another one S, both from the released training rows. Methods that predict are scored by that. The values
of the first seed that are chosen for a gap of 0.05 or 0.02 (or, where none stays within, the one with the least gap)
are also attacked by the audit's whole quick battery.
Accuracy at a given gap: among a method's values, the most accurate one that stays within the gap on validation rows,
scored once on test rows. A method that never stays within it has no entry. S is shown to our encoders, to the
thresholds and to classifiers "S seen", on all rows; to all others in training only.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

import fairveil as fv
from common import EIGHT
from fairveil.auditing import probe
from fairveil.baselines import ALFR, FFVAE, LAFTR, Zhang
from fairveil.datasets import Split, load_adult
from fairveil.metrics import demographic_parity_gap, equalized_odds_gap

#: Trade-off values of the methods by others, from "the task alone" to "hardly anything but S hidden".
WEIGHTS = {
    "ALFR": (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
    "LAFTR": (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
    "FFVAE": (0.0, 1.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0),
    "Zhang": (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1),
}
#: Of a classifier's bound on its loss: how far from the loss of a good model to that of guessing by the prior.
SHARES = (0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7)
#: Weight of the task in the task-aware representation.
TASK = 0.2
#: The slacks allowed to the post-processing limit.
SLACKS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12)
#: Run only when asked for by name: the paper does not draw them.
ON_DEMAND = ("LAFTR-EOpp", "FFVAE", "FairClassifier-DP, S seen", "FairClassifier-EO, S seen")
GAPS = {"ΔDemP": (0.06, 0.05, 0.02, 0.01), "ΔEO": (0.04,)}
#: The gaps of ΔDemP for which the chosen representations are audited.
AUDITED = (0.05, 0.02)
#: The paper's own figures for Adult, read from its text: salary accuracy in percent.
PAPER = {("ΔDemP", 0.06): {"universal": 81.0, "ALFR": 83.0, "LAFTR-DP": 83.5}, ("ΔEO", 0.04): {"universal": 82.4}}


@dataclass(frozen=True)
class Data:
    """Rows to learn from, to choose by and to be judged on, with S joined to one column and the target."""

    parts: tuple[Split, Split, Split]
    target: str

    def x(self, part: int) -> pd.DataFrame:
        return self.parts[part].X

    def s(self, part: int) -> pd.DataFrame:
        return self.parts[part].S

    def y(self, part: int) -> np.ndarray:
        return self.parts[part].targets[self.target].to_numpy()

    def group(self, part: int) -> np.ndarray:
        return self._groups[part]

    @cached_property
    def _groups(self) -> list[np.ndarray]:
        # Joining texts row by row takes seconds, and every point asks for it.
        return [self.s(part).astype(str).agg(" & ".join, axis=1).to_numpy() for part in range(3)]


@dataclass(frozen=True)
class Point:
    """One value of a method's trade-off: three released tables, or predictions for validation and test rows."""

    value: float
    seed: int
    tables: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame] | None = None
    predicted: tuple[np.ndarray, np.ndarray] | None = None


class Comparison:
    """What all methods share."""

    def __init__(self, data: Data, seeds: int, budgets: Sequence[float], schema: fv.Schema | None, steps: int) -> None:
        self.data, self.seeds, self.budgets, self.schema = data, seeds, tuple(budgets), schema
        # Steps differ in what they cost: encoders of whole tables take the longest.
        self.steps, self.classifier_steps, self.baseline_steps = steps, 2 * steps, 4 * steps

    def frontier(self, weight: float) -> Iterator[Point]:
        two = self.data.s(0).nunique().prod() == 2 and len(self.data.y(0)) >= 2000
        architecture = "transport" if two else "feedforward"
        # All seeds in one run: gates and adversaries start anew for each, matchings and split are shared.
        fitted = fv.FairFrontier(
            fv.FairEncoder(
                architecture=architecture,
                sees_sensitive=True,
                target_weight=weight,
                schema=self.schema,
                handle_unknown="most_frequent",
                verbose=False,
                training=fv.Training(steps=self.steps),
                random_state=0,
            ),
            self.budgets,
            n_seeds=self.seeds,
        )
        fitted.fit(self.data.x(0), self.data.y(0) if weight else None, sensitive_features=self.data.s(0))
        for budget, seed in fitted.points_.loc[fitted.points_["met"], ["budget", "seed"]].itertuples(index=False):
            encoder = fitted.at(budget, seed)
            tables = [encoder.transform(self.data.x(i), sensitive_features=self.data.s(i)) for i in range(3)]
            yield Point(budget, seed, tables=tuple(tables))

    def universal(self) -> Iterator[Point]:
        return self.frontier(0.0)

    def aware(self) -> Iterator[Point]:
        return self.frontier(TASK)

    def classifier(self, fairness: str, *, sees: bool = False) -> Iterator[Point]:
        best, prior = self.losses()
        bounds = [round(best + share * (prior - best), 4) for share in SHARES]
        for seed in range(self.seeds):
            training = fv.Training(steps=self.classifier_steps)
            fitted = fv.FairFrontier(
                fv.FairClassifier(
                    fairness,
                    balanced=True,
                    sees_sensitive=sees,
                    schema=self.schema,
                    training=training,
                    handle_unknown="most_frequent",
                    verbose=False,
                    random_state=seed,
                ),
                bounds,
            )
            fitted.fit(self.data.x(0), self.data.y(0), sensitive_features=self.data.s(0))
            for bound in fitted.points_.loc[fitted.points_["met"], "budget"]:
                one = fitted.at(bound)
                shown = [self.data.s(i) if sees else None for i in (1, 2)]
                guess = [one.predict(self.data.x(i), sensitive_features=s) for i, s in zip((1, 2), shown, strict=True)]
                yield Point(bound, seed, predicted=tuple(guess))

    def losses(self) -> tuple[float, float]:
        """Log-loss of a plain LightGBM on validation rows, and of guessing by the prior."""
        import lightgbm

        x, other = (table.to_numpy(dtype=float) for table in self.numbers())
        model = lightgbm.LGBMClassifier(n_estimators=100, learning_rate=0.08, n_jobs=0, verbose=-1).fit(
            x, self.data.y(0)
        )
        codes = np.searchsorted(model.classes_, self.data.y(1))
        chances = np.asarray(model.predict_proba(other))[np.arange(len(codes)), codes]
        prior = np.unique(self.data.y(0), return_counts=True)[1] / len(x)
        return float(-np.log(chances.clip(1e-6)).mean()), float(-(prior * np.log(prior)).sum())

    def numbers(self, *, shown: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Training and all other rows as numbers, perhaps with S."""
        frames = [self.data.x(i).assign(**({f"S: {n}": c for n, c in self.data.s(i).items()} if shown else {}))
                  for i in range(3)]  # fmt: skip
        coded = pd.get_dummies(pd.concat(frames, ignore_index=True), dtype=float)
        first = len(frames[0])
        stop = first + len(frames[1]) if not shown else len(coded)
        return coded[:first], coded[first:stop]

    def representation(self, method: ALFR | FFVAE | LAFTR) -> Iterator[Point]:
        method.fit(self.data.x(0), self.data.y(0), sensitive_features=self.data.s(0))
        applied = [method.apply(self.data.x(i)) for i in range(3)]
        for weight in method.weights:
            for seed in range(self.seeds):
                tables = tuple(each.represent(weight, seed) for each in applied)
                predicted = None
                if not isinstance(method, FFVAE):
                    predicted = tuple(each.predict(weight, seed) for each in applied[1:])
                yield Point(weight, seed, tables, predicted)

    def zhang(self, fairness: str) -> Iterator[Point]:
        method = Zhang(WEIGHTS["Zhang"], fairness, seeds=self.seeds, steps=self.baseline_steps)
        method.fit(self.data.x(0), self.data.y(0), sensitive_features=self.data.s(0))
        applied = [method.apply(self.data.x(i)) for i in (1, 2)]
        for weight in method.weights:
            for seed in range(self.seeds):
                yield Point(weight, seed, predicted=tuple(each.predict(weight, seed) for each in applied))

    def thresholds(self, constraint: str) -> Iterator[Point]:
        """The limit: a model that is told S, and one threshold (or a lottery of two) for each group."""
        import lightgbm
        from fairlearn.postprocessing import ThresholdOptimizer

        x, rest = (table.to_numpy(dtype=float) for table in self.numbers(shown=True))
        _, y = np.unique(self.data.y(0), return_inverse=True)
        labels = np.unique(self.data.y(0))
        half = np.random.default_rng(0).random(len(x)) < 0.7
        model = lightgbm.LGBMClassifier(n_estimators=200, learning_rate=0.08, n_jobs=0, verbose=-1).fit(
            x[half], y[half]
        )
        first = len(self.data.y(1))
        # fairlearn relaxes parity, but not odds.
        for slack in SLACKS if constraint == "demographic_parity" else (0.0,):
            post = ThresholdOptimizer(estimator=model, constraints=constraint, prefit=True, tol=slack or None,
                                      predict_method="predict_proba")  # fmt: skip
            post.fit(x[~half], y[~half], sensitive_features=self.data.group(0)[~half])
            for seed in range(self.seeds):
                groups = np.concatenate([self.data.group(1), self.data.group(2)])
                guess = labels[post.predict(rest, sensitive_features=groups, random_state=seed).astype(int)]
                yield Point(slack, seed, predicted=(guess[:first], guess[first:]))

    def methods(self) -> dict[str, Callable[[], Iterator[Point]]]:
        others = {"seeds": self.seeds, "steps": self.baseline_steps}
        laftr = {"LAFTR-DP": "demographic_parity", "LAFTR-EO": "equalized_odds", "LAFTR-EOpp": "equal_opportunity"}
        return {
            "universal": self.universal,
            "task-aware": self.aware,
            "FairClassifier-DP": lambda: self.classifier("demographic_parity"),
            "FairClassifier-EO": lambda: self.classifier("equalized_odds"),
            "FairClassifier-DP, S seen": lambda: self.classifier("demographic_parity", sees=True),
            "FairClassifier-EO, S seen": lambda: self.classifier("equalized_odds", sees=True),
            "ALFR": lambda: self.representation(ALFR(WEIGHTS["ALFR"], **others)),
            **{name: lambda kind=kind: self.representation(LAFTR(WEIGHTS["LAFTR"], kind, **others))
               for name, kind in laftr.items()},
            "FFVAE": lambda: self.representation(FFVAE(WEIGHTS["FFVAE"], **others)),
            "Zhang-DP": lambda: self.zhang("demographic_parity"),
            "Zhang-EO": lambda: self.zhang("equalized_odds"),
            "ThresholdOptimizer-DP": lambda: self.thresholds("demographic_parity"),
            "ThresholdOptimizer-EO": lambda: self.thresholds("equalized_odds"),
        }  # fmt: skip

    def scores(self, name: str, point: Point) -> Iterator[dict[str, object]]:
        """A row for what a fresh model learns from a representation, and one for the method's own predictions."""
        if point.tables is not None:
            train, choose, test = point.tables
            truth = np.concatenate([self.data.y(1), self.data.y(2)])
            task = probe(train, self.data.y(0), pd.concat([choose, test], ignore_index=True), truth).predicted
            leak = probe(train, self.data.group(0), test, self.data.group(2))
            found = {"S accuracy": leak.accuracy.value, "S AUC": np.nan if leak.auc is None else leak.auc.value}
            yield {**self.row(name, point, (task[: len(choose)], task[len(choose) :])), **found}
            name = f"{name}, its own predictor"
        if point.predicted is not None:
            yield self.row(name, point, point.predicted)

    def battery(self, tables: tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]) -> dict[str, object]:
        """What the strongest attacker of a quick audit finds of S in a representation, and who it is."""
        names = ("train", "validation", "test")
        result = fv.audit(
            pd.concat(tables, ignore_index=True), np.concatenate([self.data.group(i) for i in range(3)]),
            split=np.repeat(names, [len(table) for table in tables]), verbose=False)  # fmt: skip
        strongest = result.attacks.sort_values("auc").iloc[-1]
        return {"battery AUC": strongest["auc"], "battery accuracy": result.leakage["accuracy"].iloc[0],
                "by": f"{strongest['attacker']}, {strongest['view']}", "valid": result.valid}  # fmt: skip

    def row(self, name: str, point: Point, predicted: tuple[np.ndarray, np.ndarray]) -> dict[str, object]:
        row: dict[str, object] = {"method": name, "value": point.value, "seed": point.seed}
        for part, guess in zip((1, 2), predicted, strict=True):
            prefix = "choose " if part == 1 else ""
            odds = equalized_odds_gap(guess, self.data.y(part), self.data.group(part), resamples=20)
            parity = demographic_parity_gap(guess, self.data.group(part), resamples=20)
            row |= {f"{prefix}accuracy": float((guess == self.data.y(part)).mean()), f"{prefix}ΔDemP": parity.value,
                    f"{prefix}ΔEO": odds.total.value if odds.total else np.nan}  # fmt: skip
        return row


def chosen(points: pd.DataFrame, kind: str, limit: float) -> pd.DataFrame:
    """Of one method, for each seed the most accurate value within the gap on validation rows, where there is one."""
    within = points[points[f"choose {kind}"] <= limit]
    return within.loc[within.groupby("seed")["choose accuracy"].idxmax()]


def to_audit(points: pd.DataFrame) -> list[float]:
    """The values of a representation that are worth an audit, chosen on validation rows."""
    within = {value for limit in AUDITED for value in chosen(points, "ΔDemP", limit)["value"]}
    return sorted(within) or [float(points.loc[points["choose ΔDemP"].idxmin(), "value"])]


def along_curves(rows: pd.DataFrame, gap: float) -> pd.DataFrame:
    """Accuracy (percent) at exactly this ΔDemP, test rows, between the nearest means of a method's values."""
    table = []
    for name, points in rows.groupby("method", sort=False):
        means = points.groupby("value")[["ΔDemP", "accuracy"]].mean().sort_values("ΔDemP")
        if means["ΔDemP"].min() <= gap <= means["ΔDemP"].max():
            claimed = PAPER.get(("ΔDemP", gap), {}).get(str(name).removesuffix(", its own predictor"), "")
            accuracy = 100 * np.interp(gap, means["ΔDemP"], means["accuracy"])
            table.append({"method": name, "accuracy": round(float(accuracy), 1), "paper": claimed})
    return pd.DataFrame(table)


def at_gaps(rows: pd.DataFrame) -> pd.DataFrame:
    """For each method and gap: accuracy (percent) and gap on test rows of the value chosen on validation rows."""
    table = []
    for name, points in rows.groupby("method", sort=False):
        line: dict[str, object] = {"method": name}
        for kind, limits in GAPS.items():
            for limit in limits:
                best = chosen(points, kind, limit)
                seeds = rows["seed"].nunique()
                if len(best) == seeds:
                    spread = best["accuracy"].std() * 100 if seeds > 1 else 0.0
                    text = f"{100 * best['accuracy'].mean():.1f} ± {spread:.1f} ({best[kind].mean():.3f})"
                else:
                    text = f"{len(best)} of {seeds} seeds" if len(best) else "-"
                claimed = PAPER.get((kind, limit), {}).get(str(name).removesuffix(", its own predictor"))
                line[f"{kind} <= {limit:g}"] = text + (f" [paper {claimed:g}]" if claimed else "")
        table.append(line)
    return pd.DataFrame(table)


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Figs. `fig:UCI-CaseI-fair` and `fig:UCI-CaseI-EO`: accuracy against either gap, means over seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(12, 5.2), constrained_layout=True)
    means = rows.groupby(["method", "value"], sort=False)[["accuracy", "ΔDemP", "ΔEO"]].mean().reset_index()
    # Dark colours first: ours come first in the table.
    colours = [plt.colormaps["tab20"](i) for i in (*range(0, 20, 2), *range(1, 20, 2))]
    for i, (name, points) in enumerate(means.groupby("method", sort=False)):
        ours = name in ("universal", "task-aware") or str(name).startswith("FairClassifier")
        style = {"marker": "o*sDv^<>PXhd"[i % 12], "color": colours[i % 20], "ms": 6 if ours else 4,
                 "lw": 2 if ours else 0.9, "ls": "-" if ours else "--"}  # fmt: skip
        for axis, x in zip(axes, ("ΔDemP", "ΔEO"), strict=True):
            axis.plot(points[x], 100 * points["accuracy"], label=name if axis is axes[0] else None, **style)
    low = 100 * means["accuracy"].quantile(0.1)
    axes[0].set(xlabel="ΔDemP", ylabel="accuracy (%)", ylim=(low, None), title="Demographic parity")
    axes[1].set(xlabel="ΔEO(0) + ΔEO(1)", ylim=(low, None), title="Equalized odds")
    figure.legend(loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


def read(given: argparse.Namespace) -> Data:
    if given.table is None:
        train, test = load_adult("I")
        target = "salary"
    else:
        frame = pd.read_parquet(given.table) if given.table.suffix == ".parquet" else pd.read_csv(given.table)
        frame = frame.dropna(subset=[given.target, *given.sensitive]).reset_index(drop=True)
        schema = None if given.schema is None else fv.Schema.open(given.schema)
        names = [n for n in frame if n not in (given.target, *given.sensitive)]
        if schema is not None:
            names = [column.name for column in schema.seen if column.name in names]
        whole = Split(frame[names], frame[given.sensitive], {given.target: frame[given.target]})
        order = np.random.default_rng(0).permutation(len(whole))
        train, test = whole.take(np.sort(order[len(order) // 3 :])), whole.take(np.sort(order[: len(order) // 3]))
        target = given.target
    order = np.random.default_rng(1).permutation(len(train))
    fit, choose = np.sort(order[len(order) // 5 :]), np.sort(order[: len(order) // 5])
    return Data((train.take(fit), train.take(choose), test), target)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="a CSV or Parquet file; UCI Adult by default")
    parser.add_argument("--schema", type=Path, help="roles and kinds of its columns (JSON, as Schema.save writes)")
    parser.add_argument("--sensitive", nargs="+", help="its sensitive columns")
    parser.add_argument("--target", help="the column to predict")
    parser.add_argument("--budgets", type=lambda text: [float(part) for part in text.split(",")], default=list(EIGHT))
    parser.add_argument("--methods", nargs="+", help="some methods only, by their names in the table")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600, help="of our encoders; classifiers 2, others 4 times as many")
    parser.add_argument("--picture", type=Path, help="where to draw the curves")
    parser.add_argument("--csv", type=Path, help="where to write every point")
    parser.add_argument("--add", type=Path, help="show the points of this file (from --csv) for all other methods")
    given = parser.parse_args()
    if given.table is not None and not (given.sensitive and given.target):
        parser.error("--table needs --sensitive and --target")
    return given


def main() -> None:
    given = arguments()
    schema = None if given.schema is None else fv.Schema.open(given.schema)
    if schema is not None:  # S and the target are handed over beside X
        beside = (given.target, *given.sensitive)
        schema = fv.Schema(tuple(c for c in schema.columns if c.released and c.name not in beside))
    comparison = Comparison(read(given), given.seeds, given.budgets, schema, given.steps)
    methods = comparison.methods()
    rows: list[dict[str, object]] = []
    audited: list[dict[str, object]] = []
    for name in given.methods or [name for name in methods if name not in ON_DEMAND]:
        start = time.monotonic()
        made: list[dict[str, object]] = []
        tables = {}
        try:
            for point in methods[name]():
                made += comparison.scores(name, point)
                if point.seed == 0 and point.tables is not None:
                    tables[point.value] = point.tables
        except fv.BudgetNotMet as error:
            print(f"{name}: {error}", flush=True)
        if tables:
            first = pd.DataFrame([row for row in made if row["method"] == name and row["seed"] == 0])
            for value in to_audit(first):
                audited.append({"method": name, "value": value, **comparison.battery(tables[value])})
        rows += made
        print(f"{name}: {time.monotonic() - start:.0f} s", flush=True)
        if given.csv is not None:
            pd.DataFrame(rows).to_csv(given.csv, index=False)
    if not rows:
        raise SystemExit("No method met any of its bounds on this table: there is nothing to compare.")
    table = pd.DataFrame(rows)
    if given.add is not None:
        earlier = pd.read_csv(given.add)
        table = pd.concat([earlier[~earlier["method"].isin(table["method"])], table], ignore_index=True)
    print("\n## Every value of every method, test rows, mean over seeds\n")
    shown = ["accuracy", "ΔDemP", "ΔEO", *(c for c in ("S accuracy", "S AUC") if c in table)]
    print(table.groupby(["method", "value"], sort=False)[shown].mean().round(4).fillna("").to_string())
    print("\n## Accuracy on test rows (%, ± deviation over seeds; gap on test rows) within a gap on validation rows\n")
    print(at_gaps(table).to_string(index=False), flush=True)
    print("\n## Accuracy on test rows at ΔDemP 0.06, along the curve of means (%)\n")
    print(along_curves(table, 0.06).to_string(index=False), flush=True)
    if audited:
        print("\n## What the audit's battery finds of S in what was chosen for ΔDemP <= 0.05 and 0.02, first seed\n")
        print(pd.DataFrame(audited).round(4).to_string(index=False), flush=True)
    if given.picture is not None:
        draw(table, given.picture)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()
