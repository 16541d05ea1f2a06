"""Tables other than Adult: heavy tails, five public tables, few rows, many columns. `make tables`.

python benchmarks/tables.py heavy    lognormal, Pareto and zero-inflated columns and one extreme row: ten seeds of `fit`
                                     with the defaults, and the distortion of the file as written
python benchmarks/tables.py budgets  twenty budgets from 0.1 to 6 on 12,000 rows of each of the five tables: none may be
                                     broken on the file of test rows
python benchmarks/tables.py small    1,000 rows of each table: transport beside feed-forward, with drift and AUC
python benchmarks/tables.py collapse the five tables at budgets of 0.5, 1.5 and 2.5, S not seen: columns that collapse
python benchmarks/tables.py wide     3,000 rows of 300 numbers, and of 75 and 150: seconds of a fit with the defaults

The five tables are read from the data home (FAIRVEIL_DATA, folder `tables`); those that are absent are left out.
"""

import os
import resource
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from common import MEASURED, run_parts
from fairveil import BudgetNotMet, CollapseWarning, FairEncoder, FairFrontier
from fairveil.auditing import probe
from fairveil.datasets.base import DATA_HOME
from fairveil.workflows import release_file
from fairveil.workflows.release.job import Options

#: Rows of a table that are used for twenty budgets.
_MOST = 12_000
TWENTY = [float(b) for b in np.round(np.geomspace(0.1, 6.0, 20), 3)]


@dataclass(frozen=True)
class Public:
    """One of the five tables: its file, the sensitive column, columns left out, and whether all codes are classes."""

    file: str
    sensitive: str
    drop: tuple[str, ...] = ()
    coded: bool = False

    def read(self) -> tuple[pd.DataFrame, pd.Series] | None:
        path = Path(os.environ.get(DATA_HOME, "")) / "tables" / self.file
        if not path.is_file():
            print(f"{self.file} is absent")
            return None
        frame = pd.read_csv(path, dtype=str if self.coded else None).drop(columns=list(self.drop))
        return frame.drop(columns=self.sensitive), frame[self.sensitive].astype(str)


FIVE = {
    # The survey's weights and the area code identify more than they describe.
    "acs2019": Public("acs2019_national.csv.gz", "SEX", ("PUMA", "PWGTP", "WGTP")),
    "dutch": Public("dutch.csv.gz", "sex", coded=True),
    "bank": Public("bank-full.csv.gz", "marital"),
    "law": Public("law_school_clean.csv.gz", "race"),
    "credit": Public("credit-card-clients.csv.gz", "SEX"),
}


def heavy_tails(rows: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """A table of heavy tails in which S shows in every column, and whose first row is extreme."""
    generator = np.random.default_rng(seed)
    s = generator.integers(0, 2, rows)
    frame = pd.DataFrame({
        "income": np.exp(1.5 * generator.normal(size=rows) + 0.5 * s).round(2),
        "claim": (generator.pareto(1.1, rows) * (1 + s)).round(3),
        "visits": np.where(generator.random(rows) < 0.7 - 0.2 * s, 0, generator.negative_binomial(1, 0.2, rows)),
        "town": generator.choice(["north", "south", "east"], rows, p=[0.5, 0.3, 0.2]),
    })  # fmt: skip
    frame.loc[0, ["income", "claim", "visits"]] = [1e7, 1e9, 20_000]
    return frame, pd.Series(np.where(s == 1, "b", "a"), name="group")


def on_file(encoder: FairEncoder, x: pd.DataFrame, s: pd.Series) -> float:
    """The distortion of a release written to a file, as its card states it (rounded to a hundredth)."""
    with tempfile.TemporaryDirectory() as folder:
        table, veil, out = (Path(folder) / name for name in ("in.parquet", "s.veil", "out.parquet"))
        x.assign(**{s.name: s}).to_parquet(table)
        encoder.save(veil)
        return float(release_file(table, veil, out, Options(show_progress=False))["distortion"]["total"])


def heavy() -> None:
    print("\n## Heavy tails: `fit` with the defaults, ten seeds\n")
    for rows, budget in ((1500, 1.0), (6000, 0.6)):
        for sees in (True, False):
            found = [MEASURED.take(partial(_heavy, rows, budget, sees, seed), "heavy", rows, budget, sees, seed)
                     for seed in range(10)]  # fmt: skip
            kept = sum(row.get("file", np.inf) <= budget for row in found)
            print(f"{rows} rows, budget {budget}, sees S {sees}: {kept} of 10 fitted and kept\n", flush=True)


def _heavy(rows: int, budget: float, sees: bool, seed: int) -> dict[str, object]:
    x, s = heavy_tails(rows, seed)
    try:
        encoder = FairEncoder(budget, sees_sensitive=sees, sensitive_columns=[s.name], random_state=seed,
                              verbose=False).fit(x.assign(**{s.name: s}))  # fmt: skip
    except BudgetNotMet as error:
        return {"not met": str(error)}
    held = encoder.distortion_
    return {"held out": held.mean, "at most": held.upper, "file": on_file(encoder, x, s)}


def budgets() -> None:
    for name, public in FIVE.items():
        if (found := public.read()) is None:
            continue
        rows = MEASURED.take(partial(_budgets, *found), "budgets", name)
        print(pd.DataFrame(rows).round(4).to_string(index=False))
        met = [row for row in rows if row["met"]]
        broken = sum(row["file"] > row["budget"] for row in met)
        print(f"{name}: {broken} of 20 budgets broken, {len(rows) - len(met)} not met by fit\n", flush=True)


def _budgets(x: pd.DataFrame, s: pd.Series) -> list[dict[str, object]]:
    """Twenty budgets on one table: of two thirds of at most `_MOST` rows, and the file of the others."""
    x, s = (part[:_MOST].reset_index(drop=True) for part in (x, s))
    test = np.arange(len(x)) % 3 == 2
    frontier = FairFrontier(
        FairEncoder(sees_sensitive=True, sensitive_columns=[s.name], handle_unknown="most_frequent", unmet="warn",
                    random_state=0, verbose=False), TWENTY,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frontier.fit(x[~test].assign(**{s.name: s[~test]}))
    rows = []
    for budget, encoder in zip(TWENTY, frontier.estimators_, strict=True):
        row = {"budget": budget, "met": encoder.distortion_.met, "held out": encoder.distortion_.mean,
               "at most": encoder.distortion_.upper}  # fmt: skip
        if row["met"]:
            row["file"] = on_file(encoder, x[test].reset_index(drop=True), s[test].reset_index(drop=True))
        rows.append(row)
    return rows


def small() -> None:
    print("\n## 1,000 rows: AUC from the fitted rows and from new ones, drift of the held-out rows\n")
    rows = []
    for name, public in FIVE.items():
        if (found := public.read()) is None:
            continue
        x, s = found
        s = s.where(s == s.value_counts().index[0], "other")  # two groups, so that an AUC says all
        for seed in range(2):
            order = np.random.default_rng(seed).permutation(len(x))
            parts = [part.iloc[order].reset_index(drop=True) for part in (x, s)]
            for architecture in ("transport", "feedforward"):
                row = MEASURED.take(partial(_judged, *parts, architecture, seed), "small", name, seed, architecture)
                rows.append({"table": name, "seed": seed, "encoder": architecture, **row})
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def _judged(x: pd.DataFrame, s: pd.Series, architecture: str, seed: int) -> dict[str, object]:
    encoder = FairEncoder(1.5, architecture=architecture, sees_sensitive=True, handle_unknown="most_frequent",
                          unmet="warn", random_state=seed, verbose=False)  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder.fit(x[:1000], sensitive_features=s[:1000])
        parts = {k: (encoder.transform(x[k], sensitive_features=s[k]), s[k].to_numpy())
                 for k in (slice(0, 1000), slice(1000, 2000), slice(2000, 5000))}  # fmt: skip
    fitted, new, test = parts.values()
    drift = encoder.drift_
    return {"met": encoder.distortion_.met, "distortion": encoder.distortion_.mean,
            "AUC fitted": probe(*fitted, *test).auc.value, "AUC new": probe(*new, *test).auc.value,
            "KS": drift["ks"].astype(float).max(), "TV": drift["total_variation"].max(),
            "collapsed": ", ".join(drift.loc[drift["collapsed"], "column"])}  # fmt: skip


def collapse() -> None:
    print("\n## Columns that collapse, S not seen\n")
    for name, public in FIVE.items():
        if (found := public.read()) is None:
            continue
        x, s = (part[:6000] for part in found)
        for distortion in ("ranks", "squared"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CollapseWarning)
                frontier = FairFrontier(
                    FairEncoder(distortion=distortion, unmet="warn", random_state=0, verbose=False), [0.5, 1.5, 2.5]
                ).fit(x, sensitive_features=s)
            shown = frontier.points_[["budget", "distortion", "largest_drift", "drifted_column", "collapsed"]]
            print(f"{name}, {distortion}\n{shown.round(3).to_string(index=False)}\n", flush=True)


def wide() -> None:
    print("\n## 3,000 rows of many numbers, default settings\n")
    for columns in (75, 150, 300):
        generator = np.random.default_rng(0)
        s = generator.integers(0, 2, 3000)
        shift = 0.3 * s[:, None] * (generator.random(columns) < 0.2)
        x = pd.DataFrame(generator.normal(size=(3000, columns)) + shift, columns=[f"x{i}" for i in range(columns)])
        start, used = time.monotonic(), time.process_time()
        encoder = FairEncoder(columns / 10, unmet="warn", random_state=0, verbose=False).fit(x, sensitive_features=s)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{columns} columns, {encoder.schema_.layout.width} slots: {time.monotonic() - start:.0f} s, "
              f"{time.process_time() - used:.0f} s of processor time, distortion {encoder.distortion_.mean:.2f} of "
              f"{columns / 10:g}, {memory:.1f} GiB", flush=True)  # fmt: skip


if __name__ == "__main__":
    run_parts(__doc__, {"heavy": heavy, "budgets": budgets, "small": small, "collapse": collapse, "wide": wide})
