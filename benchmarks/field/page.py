"""docs/field.md and its pictures from the collected results."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fairveil._utils.atomic import write_atomic
from field import data
from field.methods import ABSENT, METHODS
from field.summary import LIMITS, OWN, entries, kept, ranks

INTRO, REMARKS = Path(__file__).parent / "intro.md", Path(__file__).parent / "remarks.md"
_NONE = "-"


def write_page(source: Path, docs: Path) -> None:
    """Write field.md and field/*.png into the folder of the documentation."""
    results = json.loads(source.read_text(encoding="utf-8"))
    rows = entries(results)
    (docs / "field").mkdir(exist_ok=True)
    sections = []
    for table in [name for name in data.names() if name in set(rows["table"])]:
        part = rows[rows["table"] == table]
        draw(part, docs / "field" / f"{table}.png", table)
        sections.append(section(table, part, [r for r in results if r["table"] == table]))
    text = "\n\n".join([_head(results), _overall(rows), _best(rows), REMARKS.read_text(encoding="utf-8").strip(),
                        _methods(rows), *sections, _absent(results)])  # fmt: skip
    write_atomic(docs / "field.md", (text + "\n").encode())


def _head(results: list[dict[str, Any]]) -> str:
    seeds, tables, methods = (len({r[key] for r in results}) for key in ("seed", "table", "method"))
    settings = pd.DataFrame([r["settings"] for r in results])
    versions = {name: version for r in results for name, version in r["versions"].items()}
    limits = ", ".join(f"{value:,g}" for value in sorted(settings["rows"].dropna().unique())) or "none"
    tries = ", ".join(f"{value:g}" for value in sorted(settings["tries"].unique()))
    commits = ", ".join(sorted({r["commit"] for r in results}))
    run = [
        f"**What was run.** {len(results)} runs of a method on a table; seeds per run: {seeds}; limit of rows",
        f"per table: {limits}; configurations of the attackers' search: {tries} from fitted and as many from new rows;",
        f"time limit {settings['limit'].max():g} s of processor time. Commits: {commits}.",
        f"Versions: {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}.",
    ]
    if seeds == 1:
        run.append("**One seed has no intervals, and differences of a few hundredths of lift are noise.**")
    return "\n".join([f"# The field: {tables} tables, {methods - 1} methods", "", *run, "",
                      INTRO.read_text(encoding="utf-8").strip()])  # fmt: skip


def _overall(rows: pd.DataFrame) -> str:
    lines = ["## Summary by ranks", "",
             "Mean over tables of the rank by lift kept, as a share: 0 is the first, 1 the last. A method that never "
             "stays within a limit is last. The first two columns rank methods that release data.", ""]  # fmt: skip
    columns = {limit: ranks(rows, limit, "data" if limit.startswith("AUC") else None).mean(axis=1) for limit in LIMITS}
    tables = rows.groupby("method")["table"].nunique()
    frame = pd.DataFrame(columns).assign(tables=tables)
    frame = frame.sort_values(["AUC <= 0.6", "ΔDemP <= 0.05"])
    return "\n".join([*lines, *_markdown(frame.map(lambda v: f"{v:.2f}").assign(tables=frame["tables"]), "method")])


def _best(rows: pd.DataFrame) -> str:
    lines = [
        "## The best method of each table",
        "",
        "Lift kept, and the best of ours where another method is first.",
        "",
    ]
    table = {}
    for name, part in rows.groupby("table", sort=True):
        cells = {}
        for limit in LIMITS:
            found = kept(part[part["kind"] == "data"] if limit.startswith("AUC") else part, limit)
            if not len(found):
                cells[limit] = _NONE
                continue
            first = found["lift"].idxmax()
            cells[limit] = f"{_name(first)} {found.loc[first, 'lift']:.2f}"
            ours = found[found["ours"]]
            if not found.loc[first, "ours"]:
                best = None if not len(ours) else ours["lift"].idxmax()
                cells[limit] += "; ours: none" if best is None else f"; {_name(best)} {ours.loc[best, 'lift']:.2f}"
        table[name] = cells
    return "\n".join([*lines, *_markdown(pd.DataFrame(table).T, "table")])


def _methods(rows: pd.DataFrame) -> str:
    lines = ["## The methods", "", "| method | from | told the task | sees S | seconds of processor time | peak MB |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    for name, method in METHODS.items():
        own = rows[(rows["method"] == name)]
        if not len(own):
            continue
        seconds = own.groupby(["table", "seed"])["seconds"].sum().median()
        lines.append(f"| {_name(name)} | {method.source} | {'yes' if method.told else 'no'} | "
                     f"{'yes' if method.sees else 'no'} | {seconds:.1f} | {own['MB'].median():.0f} |")  # fmt: skip
    return "\n".join(lines)


def section(table: str, rows: pd.DataFrame, results: list[dict[str, Any]]) -> str:
    """Picture and table of one table."""
    first = next(r for r in results if r["method"] == "original")
    base = first["points"][0]["data"]
    parts = first["rows"]
    found = {limit: kept(rows, limit) for limit in LIMITS}
    lines = [
        f"## {table}",
        "",
        f"{data.description(table).get('about', table)}. {first['groups']} groups; {parts['fit']:,} fitted, "
        f"{parts['new']:,} new and {parts['test']:,} test rows. Original: accuracy "
        f"{100 * base['task']['accuracy']:.1f} % (guessing {100 * first['majority']['named']:.1f} %), ΔDemP "
        f"{base['task']['ΔDemP']:.3f}, AUC {base['attack']['auc']:.3f}.",
        "",
        f"![Lift kept against AUC and ΔDemP on {table}](field/{table}.png)",
        "",
        "Lift kept (± half of the 95 % interval over seeds; in brackets the AUC or gap on test rows). Unnamed: mean "
        "lift kept on tasks that no method was told, at the value chosen for AUC <= 0.6; drift: largest total "
        "variation of a column there.",
        "",
    ]
    if first["optimum"]:
        known = ", ".join(f"{limit}: {value:.3f}" for limit, value in first["optimum"].items())
        lines += [f"The best possible lift kept is known ({known}).", ""]
    frame = {}
    for name in [n for n in rows["method"].unique() if n != "original"]:
        cells: dict[str, str] = {limit: _cell(found[limit], name) for limit in LIMITS}
        chosen = found["AUC <= 0.6"]
        there = rows[(rows["method"] == name) & (rows["setting"] == chosen["setting"].get(name))]
        cells["unnamed"] = _number(chosen["unnamed"].get(name))
        cells["drift"] = _number(there["drift"].mean() if len(there) and there["drift"].notna().any() else None)
        cells["least AUC"] = _number(rows.loc[rows["method"] == name, "auc"].min(), 3)
        cells["certified"] = ", ".join(
            f"{v:.2f}" for v in sorted(rows.loc[rows["method"] == name, "certified"].dropna().unique())
        )
        frame[_name(name)] = cells
    lines += _markdown(pd.DataFrame(frame).T, "method")
    failures = [f"{r['method']} ({r['failure']})" for r in results if r["failure"] and r["seed"] == 0]
    return "\n".join([*lines, "", f"Not measured: {'; '.join(failures)}." if failures else ""]).rstrip()


def _cell(found: pd.DataFrame, method: str) -> str:
    if method not in found.index:
        return _NONE
    row = found.loc[method]
    half = "" if pd.isna(row["half"]) else f" ± {row['half']:.2f}"
    return f"{row['lift']:.2f}{half} ({row['measured']:.3f})"


def _number(value: Any, digits: int = 2) -> str:
    return _NONE if value is None or pd.isna(value) else f"{value:.{digits}f}"


def _name(name: str) -> str:
    return f"**{name}**" if METHODS[name.removesuffix(OWN)].ours else name


def _markdown(frame: pd.DataFrame, corner: str) -> list[str]:
    head = [f"| {corner} | " + " | ".join(map(str, frame.columns)) + " |", "|" + "---|" * (len(frame.columns) + 1)]
    names = [_name(name) if name.removesuffix(OWN) in METHODS else name for name in map(str, frame.index)]
    body = [f"| {name} | " + " | ".join(str(v) for v in row) + " |"
            for name, row in zip(names, frame.itertuples(index=False), strict=True)]  # fmt: skip
    return [*head, *body]


def draw(rows: pd.DataFrame, path: Path, title: str) -> None:
    """Lift kept against the attackers' AUC (data) and against ΔDemP (all), means over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(12, 5.6), constrained_layout=True)
    means = rows.groupby(["method", "setting"], sort=False)[["auc", "ΔDemP", "lift"]].mean().reset_index()
    colours = [plt.colormaps["tab20"](i) for i in (*range(0, 20, 2), *range(1, 20, 2))]
    for i, (name, points) in enumerate(means.groupby("method", sort=False)):
        ours = METHODS[str(name).removesuffix(OWN)].ours
        style = {"marker": "o*sDv^<>PXhd"[i % 12], "color": colours[i % 20], "ms": 6 if ours else 4,
                 "lw": 2 if ours else 0.9, "ls": "-" if ours else "--"}  # fmt: skip
        for axis, x in zip(axes, ("auc", "ΔDemP"), strict=True):
            axis.plot(points[x], points["lift"], label=name if axis is axes[0] else None, **style)
    axes[0].set(xlabel="AUC of the strongest attacker on S", ylabel="lift kept", title=f"{title}: releases of data")
    axes[1].set(xlabel="ΔDemP", title="predictions")
    for axis in axes:
        axis.set_ylim(-0.1, 1.1)
    figure.legend(loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)


def _absent(results: list[Mapping[str, Any]]) -> str:
    lines = ["## What is not here", ""]
    lines += [f"- {name}: {reason}." for name, reason in ABSENT.items()]
    run = {r["method"] for r in results}
    lines += [f"- {name}: has an implementation, but no stored results yet." for name in METHODS if name not in run]
    return "\n".join(lines)
