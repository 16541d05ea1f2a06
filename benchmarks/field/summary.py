"""From stored results to the figures of the page: lift kept within a limit, and ranks."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from field.methods import METHODS

#: Limits of the summary: name, the measure, its value on rows to choose by, and the limit.
LIMITS = {
    "AUC <= 0.55": ("auc", 0.55),
    "AUC <= 0.6": ("auc", 0.6),
    "ΔDemP <= 0.02": ("ΔDemP", 0.02),
    "ΔDemP <= 0.05": ("ΔDemP", 0.05),
}
OWN = ", own predictor"


def entries(results: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per table, seed, method (or a code's own predictor) and value, with the lift kept.

    lift: accuracy above guessing, as a share of that of the original rows with the same seed.
    """
    found = list(results)
    base = {(r["table"], r["seed"]): r["points"][0]["data"] for r in found if r["method"] == "original" and r["points"]}
    rows = []
    for result in found:
        start = base.get((result["table"], result["seed"]))
        if start is None or result["method"] not in METHODS:
            continue
        for point in result["points"]:
            rows += [{**_of_result(result, point), **row} for row in _of_point(result, point, start)]
    return pd.DataFrame(rows)


def _of_result(result: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    method = METHODS[result["method"]]
    return {"table": result["table"], "seed": result["seed"], "method": method.name, "told": method.told,
            "sees": method.sees, "ours": method.ours, "setting": point["setting"], "certified": point["certified"],
            "seconds": point["seconds"], "MB": point["MB"]}  # fmt: skip


def _of_point(result: Mapping[str, Any], point: Mapping[str, Any], start: Mapping[str, Any]) -> list[dict[str, Any]]:
    majority = result["majority"]

    def kept(value: float, original: float, guess: float) -> float:
        return (value - guess) / (original - guess) if original > guess else float("nan")

    rows = []
    if "data" in point:
        data = point["data"]
        others = [kept(value, start["unnamed"][name], majority[name]) for name, value in data["unnamed"].items()]
        rows.append({**data["task"], "kind": "data", "auc": data["attack"]["auc"],
                     "choose auc": data["attack"]["choose auc"], "by": data["attack"]["by"], "drift": data["drift"],
                     "unnamed": float(np.mean(others)) if others else float("nan")})  # fmt: skip
    if "predictor" in point:
        suffix = {"method": result["method"] + OWN} if "data" in point else {}
        rows.append({**point["predictor"], **suffix, "kind": "predictor"})
    for row in rows:
        row["lift"] = kept(row["accuracy"], start["task"]["accuracy"], majority["named"])
    return rows


def within(rows: pd.DataFrame, limit: str) -> pd.DataFrame:
    """For each method and seed of one table: the value with the best accuracy within the limit, chosen on new rows."""
    measure, most = LIMITS[limit]
    inside = rows[(rows["method"] != "original") & (rows[f"choose {measure}"] <= most)]
    return inside.loc[inside.groupby(["method", "seed"], sort=False)["choose accuracy"].idxmax()]


def kept(rows: pd.DataFrame, limit: str) -> pd.DataFrame:
    """For each method of one table: mean lift kept within a limit and its interval over seeds, scored on test rows.

    A method that stays within the limit for some seeds only has no entry.
    """
    chosen, measure, seeds = within(rows, limit), LIMITS[limit][0], rows["seed"].nunique()
    table = []
    for method, points in chosen.groupby("method", sort=False):
        if len(points) == seeds:
            table.append({"method": method, "lift": points["lift"].mean(), "half": half_width(points["lift"]),
                          "measured": points[measure].mean(), "accuracy": points["accuracy"].mean(),
                          "unnamed": points["unnamed"].mean(), "setting": points["setting"].iloc[0],
                          "ours": bool(points["ours"].iloc[0]), "kind": points["kind"].iloc[0]})  # fmt: skip
    columns = ["method", "lift", "half", "measured", "accuracy", "unnamed", "setting", "ours", "kind"]
    return pd.DataFrame(table, columns=columns).set_index("method")


def half_width(values: pd.Series, confidence: float = 0.95) -> float:
    """Half the width of Student's interval for the mean; NaN for a single value."""
    n = len(values)
    if n < 2:
        return float("nan")
    return float(stats.t.ppf(0.5 + confidence / 2, n - 1) * values.std(ddof=1) / np.sqrt(n))


def ranks(rows: pd.DataFrame, limit: str, kind: str | None = None) -> pd.DataFrame:
    """Each method's rank by lift kept in every table that it was run on: 1 is the best, no entry is last.

    kind: rank only releases of data. Ranks are shares of the way from the first (0) to the last (1), as not all methods
    run on all tables.
    """
    columns = {}
    for table, part in rows.groupby("table", sort=False):
        if kind is not None:
            part = part[part["kind"] == kind]
        present = [name for name in part["method"].unique() if name != "original"]
        lift = kept(part, limit)["lift"].reindex(present)
        place = lift.rank(ascending=False, na_option="bottom", method="average")
        columns[table] = (place - 1.0) / max(len(present) - 1, 1)
    return pd.DataFrame(columns)
