"""Charts of an audit as PNG data URIs. Their text is rasterised, so names cannot inject markup.

matplotlib is imported when the first chart is drawn: importing it takes a third of the time of importing PyTorch.
"""

import base64
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]


def leakage_picture(attacks: Rows) -> str:
    """The axes of `leakage_axes` as a picture."""
    return data_uri(leakage_axes(attacks)[0].figure)


def leakage_axes(attacks: Rows) -> Any:
    """Accuracy (or explained variance) of every attacker with its interval, and the majority rate."""
    names = list(dict.fromkeys(row["sensitive"] for row in attacks))
    tallest = max(sum(row["sensitive"] == name for row in attacks) for name in names)
    figure = _figure(5.2 * len(names), 0.36 * tallest + 1.2)
    every = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, name in zip(every, names, strict=True):
        rows = [row for row in attacks if row["sensitive"] == name][::-1]
        measure = "accuracy" if rows[0].get("accuracy") is not None else "advantage"
        for height, row in enumerate(rows):
            # An attacker with the originals may predict S from them: that is not leakage of the release.
            colour = "grey" if row["view"] == "original" else "C3" if row["found"] else "C0"
            axes.errorbar(row[measure], height, xerr=_sides(row, measure), fmt="o", color=colour, capsize=3)
        axes.set_yticks(range(len(rows)), [_plain(f"{row['attacker']} ({row['view']})") for row in rows], fontsize=8)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        if rows[0].get("majority") is not None:
            axes.axvline(rows[0]["majority"], color="grey", ls=":", label="always the most frequent value")
            axes.legend(fontsize=7)
        axes.set_xlabel("accuracy" if measure == "accuracy" else "share of the variance explained")
        axes.set_title(_plain(str(name)), fontsize=10)
        axes.grid(axis="x", alpha=0.3)
    return every


def marginal_axes(marginals: Rows) -> Any:
    """The distribution of each column before and after, as pairs of bars; three panels per row."""
    names = list(dict.fromkeys(row["column"] for row in marginals))
    across = min(len(names), 3)
    down = -(-len(names) // across)
    figure = _figure(4.2 * across, 2.6 * down)
    every = figure.subplots(down, across, squeeze=False).ravel()
    for axes, name in zip(every, names, strict=False):
        rows = [row for row in marginals if row["column"] == name][::-1]
        places = np.arange(len(rows))
        axes.barh(places + 0.2, [100 * row["before"] for row in rows], 0.38, color="0.5", label="before")
        axes.barh(places - 0.2, [100 * row["after"] for row in rows], 0.38, color="C0", label="after")
        axes.set_yticks(places, [_plain(str(row["value"])) for row in rows], fontsize=7)
        axes.set_title(_plain(str(name)), fontsize=9)
        axes.set_xlabel("% of the rows", fontsize=8)
    every[0].legend(fontsize=7)
    for axes in every[len(names) :]:
        axes.set_axis_off()
    return every[: len(names)]


def utility_picture(tasks: Rows) -> str:
    """Utility of every task model on the release, and of the same model on the original data."""
    rows = _once(tasks)[::-1]
    figure = _figure(7, 0.42 * len(rows) + 1.2)
    axes = figure.subplots()
    for height, row in enumerate(rows):
        axes.errorbar(row["utility"], height, xerr=_sides(row, "utility"), fmt="o", color="C0", capsize=3,
                      label="release" if height == 0 else None)  # fmt: skip
        if row.get("baseline") is not None:
            axes.plot(row["baseline"], height, "k*", ms=9, label="original data" if height == 0 else None)
        axes.plot(row["majority"], height, "|", color="grey", ms=14, label="no model" if height == 0 else None)
    axes.set_yticks(range(len(rows)), [_plain(f"{row['target']}: {row['model']}") for row in rows], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("accuracy (R² for numbers) on test rows")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=7)
    return data_uri(figure)


def parity_picture(tasks: Rows, leakage: Rows) -> str:
    """ΔDemP of every task model, and the worst ΔDemP of a predictor built from an attacker's scores."""
    bars = [
        (f"{r['target']}: {r['model']}, {r['sensitive']}", r, "parity_gap")
        for r in tasks
        if r["tested_on"] == "released"
    ]
    bars += [(f"worst found, {row['sensitive']}", row, "worst_gap") for row in leakage]
    bars = bars[::-1]
    figure = _figure(7, 0.42 * len(bars) + 1.2)
    axes = figure.subplots()
    for height, (_, row, name) in enumerate(bars):
        colour = "C3" if name == "worst_gap" else "C0"
        axes.errorbar(row[name], height, xerr=_sides(row, name), fmt="s", color=colour, capsize=3)
    axes.set_yticks(range(len(bars)), [_plain(label) for label, _, _ in bars], fontsize=8)
    axes.set_ylim(-0.6, len(bars) - 0.4)
    axes.axvline(0.0, color="grey", ls=":")
    axes.set_xlabel("ΔDemP between groups on test rows")
    axes.grid(axis="x", alpha=0.3)
    return data_uri(figure)


def group_picture(rates: Rows) -> str:
    """Selection rate of each group with its interval: one panel per binary task, model and sensitive column."""
    shown = [row for row in rates if row["tested_on"] == "released"]
    panels = list(dict.fromkeys((row["target"], row["model"], row["sensitive"]) for row in shown))
    tallest = max(sum((r["target"], r["model"], r["sensitive"]) == panel for r in shown) for panel in panels)
    across = min(len(panels), 3)
    down = -(-len(panels) // across)
    figure = _figure(4.4 * across, down * (0.4 * tallest + 1.2))
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        rows = [row for row in shown if (row["target"], row["model"], row["sensitive"]) == panel][::-1]
        for height, row in enumerate(rows):
            axes.errorbar(row["selection_rate"], height, xerr=_sides(row, "selection_rate"), fmt="o", capsize=3)
        axes.set_yticks(range(len(rows)), [_plain(str(row["group"])) for row in rows], fontsize=8)
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlabel(_plain(f"share told {panel[0]} = {rows[0]['positive']}"), fontsize=8)
        axes.set_title(_plain(f"{panel[1]}, by {panel[2]}"), fontsize=9)
        axes.grid(axis="x", alpha=0.3)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    return data_uri(figure)


def presence_picture(presence: Rows) -> str:
    """The share of each group about which an attacker is certain: by facts alone, and with the release."""
    rows = [row for row in presence if row["group"] is not None][::-1]
    figure = _figure(7, 0.42 * len(rows) + 1.2)
    axes = figure.subplots()
    for height, row in enumerate(rows):
        colour = "C3" if row["newly_certain_low"] > 0.0 else "C0"
        axes.plot([row["certain_facts"], row["certain"]], [height, height], color=colour, lw=2)
        axes.plot(row["certain_facts"], height, "|", color="grey", ms=14, label="" if height else "facts alone")
        axes.plot(row["certain"], height, "o", color=colour, label="" if height else "facts and release")
    axes.set_yticks(range(len(rows)), [_plain(f"{row['sensitive']}: {row['group']}") for row in rows], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of the group about whom the attacker is more than 90 % certain")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=7)
    return data_uri(figure)


def frontier_figure(points: Rows) -> "Figure":
    """Achieved value for each budget, and the gain of the training adversaries on validation rows."""
    figure = _figure(9.6, 4.0)
    spent, leak = figure.subplots(1, 2)
    for row in points:
        colour, filled = ("C0", "C0") if row["met"] else ("C3", "none")
        above = max(row["upper"] - row["achieved"], 0.0) if math.isfinite(row["upper"]) else 0.0
        spent.errorbar(row["budget"], row["achieved"], yerr=[[0.0], [above]], fmt="o", color=colour, mfc=filled,
                       capsize=3)  # fmt: skip
        leak.plot(row["achieved"], row["advantage"], "o", color=colour, mfc=filled)
        leak.annotate(f"{row['budget']:g}", (row["achieved"], row["advantage"]), fontsize=7,
                      textcoords="offset points", xytext=(4, 4))  # fmt: skip
    ends = [0.0, max(row["budget"] for row in points)]
    spent.plot(ends, ends, color="grey", ls=":", label="the budget")
    spent.set(xlabel="budget", ylabel="achieved on held-out rows, and its upper bound")
    spent.legend(fontsize=8)
    leak.axhline(0.0, color="grey", ls=":", label="guessing")
    leak.set(xlabel="achieved on held-out rows", ylabel="gain of training adversaries (units of their loss)")
    leak.legend(fontsize=8)
    for axes in (spent, leak):
        axes.grid(alpha=0.3)
    return figure


def points_figure(frontier: dict[str, Any]) -> "Figure":
    """The points of a file's frontier with intervals, one row per target.

    Leakage of S against the budget, accuracy of the target against the leakage and against ΔDemP. The axes include
    guessing and the original data, so that small differences look small; points are not joined, because their order
    along an axis is noise where they are close.
    """
    points = [point for point in frontier["points"] if point["met"] and point.get("S AUC") is not None]
    targets = frontier["targets"]
    figure = _figure(4.8 * (3 if targets else 1), 4.0 * max(len(targets), 1))
    grid = figure.subplots(max(len(targets), 1), 3 if targets else 1, squeeze=False)
    hidden, leak = " & ".join(frontier["hides"]), "AUC of a fresh attacker"
    for row, target in zip(grid, targets or [None], strict=True):
        _points(row[0], points, "budget", "S AUC")
        row[0].axhline(0.5, color="grey", ls=":", label="guessing")
        row[0].set(xlabel="budget (0: the original)", ylabel=_plain(f"{leak} on {hidden}"))
        row[0].legend(fontsize=8)
        if target is None or not points:
            continue
        for axes, x, label, guess in ((row[1], "S AUC", leak, 0.5), (row[2], f"{target} ΔDemP", "ΔDemP", 0.0)):
            _points(axes, points, x, f"{target} accuracy", scale=100)
            axes.axvline(guess, color="grey", ls=":")
            axes.axhline(100 * points[0][f"{target} majority"], color="grey", ls=":", label="guessing")
            axes.set(xlabel=_plain(f"{label} of {target}" if x != "S AUC" else f"{label} on {hidden}"),
                     ylabel=_plain(f"accuracy of {target} (%)"))  # fmt: skip
            axes.legend(fontsize=8)
    return figure


def _points(axes: Any, points: Rows, x: str, y: str, scale: float = 1.0) -> None:
    for point in points:
        colour = "0.4" if point["budget"] == 0 else "C2" if point.get("recommended") else "C0"
        across = (
            None if x == "budget" else [[max(point[x] - point[f"{x} low"], 0)], [max(point[f"{x} high"] - point[x], 0)]]
        )
        up = [[scale * max(point[y] - point[f"{y} low"], 0)], [scale * max(point[f"{y} high"] - point[y], 0)]]
        axes.errorbar(point[x], scale * point[y], xerr=across, yerr=up, fmt="o", color=colour, capsize=3)
        name = "original" if point["budget"] == 0 else f"{point['budget']:g}" + " *" * bool(point.get("recommended"))
        axes.annotate(name, (point[x], scale * point[y]), fontsize=8, textcoords="offset points", xytext=(5, 5))
    axes.grid(alpha=0.3)
    axes.margins(0.12)


def _once(tasks: Rows) -> Rows:
    """One row per task and model: utility does not depend on the sensitive column."""
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in tasks:
        if row["tested_on"] == "released":
            seen.setdefault((row["target"], row["model"]), row)
    return list(seen.values())


def _sides(row: dict[str, Any], name: str) -> list[list[float]]:
    return [[max(row[name] - row[f"{name}_low"], 0.0)], [max(row[f"{name}_high"] - row[name], 0.0)]]


def _plain(text: str) -> str:
    """Escape `$` so that matplotlib does not parse names as math."""
    short = text if len(text) <= 48 else text[:47] + "…"
    return short.replace("$", r"\$")


def _few_ticks(figure: "Figure") -> None:
    """Few enough ticks that their labels do not overlap."""
    from matplotlib.ticker import MaxNLocator

    for axes in figure.axes:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.tick_params(axis="x", labelsize=8)


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def data_uri(figure: "Figure") -> str:
    """A figure as a PNG data URI."""
    _few_ticks(figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
