"""The points of a frontier as one explorable page: charts, a slider over the budgets, and a table for each point."""

import base64
import hashlib
import math
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fairveil._utils.atomic import write_atomic
from fairveil.report.page import TEMPLATES, shown_number
from fairveil.report.svg import Mark, scatter

Point = dict[str, Any]

#: Shows one point at a time: the slider's number selects the panels and marks with the same number.
SCRIPT = """
(() => {
  const slider = document.getElementById("budget");
  if (!slider) return;
  const told = document.getElementById("budget-told");
  const show = () => {
    for (const part of document.querySelectorAll("[data-number]")) {
      const own = part.dataset.number === slider.value;
      if (part.classList.contains("mark")) part.classList.toggle("chosen", own);
      else part.hidden = !own;
      if (own && part.dataset.label) {
        told.textContent = part.dataset.label;
        slider.setAttribute("aria-valuetext", part.dataset.label);
      }
    }
  };
  slider.addEventListener("input", show);
  for (const mark of document.querySelectorAll(".mark")) {
    mark.addEventListener("click", () => {
      slider.value = mark.dataset.number;
      show();
      slider.dispatchEvent(new Event("change"));
    });
  }
  show();
})();
"""


def write_points(frontier: dict[str, Any], path: Path) -> None:
    """Write the frontier of a file, as `workflows.points.Frontier.to_dict` gives it."""
    intro = (
        f"Releases of {frontier['file']} that hide {' & '.join(frontier['hides'])}. Fresh models learned from releases "
        "of some rows and were scored on releases of others, with 95 % intervals. Budget 0 is the original data."
    )
    _write(path, "Frontier", intro, points_charts(frontier), points_panels(frontier), frontier["recommended"])


def write_training(points: list[Point], varied: str, path: Path) -> None:
    """Write the points of a `FairFrontier`, which knows only its training. varied: what differs between the points."""
    intro = (
        'Every point is one encoder or classifier; all were trained together. "Achieved" is measured on held-out rows, '
        "with its upper confidence bound. The gain is that of the training adversaries on validation rows: what fresh "
        "attackers find in a release is for an audit to say."
    )
    panels = [
        _panel(i, f"{varied} {point['shown']}, seed {point['seed']}", point, [
            ("achieved", shown_number(point["achieved"])), ("upper bound", shown_number(point["upper"])),
            ("gain of training adversaries", shown_number(point["advantage"], 4)),
        ])
        for i, point in enumerate(points)
    ]  # fmt: skip
    _write(path, "Frontier", intro, _training_charts(points, varied), panels, None)


def _write(path: Path, title: str, intro: str, charts: list[Markup], panels: list[Point], advice: Point | None) -> None:
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to.")
    chosen = next((panel["number"] for panel in panels if panel["recommended"]), 0)
    page = TEMPLATES.get_template("frontier.html.j2").render(
        title=title, intro=intro, charts=charts, panels=panels, advice=advice, chosen=chosen, script=Markup(SCRIPT),
        digest=script_digest(),
    )  # fmt: skip
    write_atomic(path, page.encode())


def script_digest() -> str:
    """The hash of `SCRIPT` as content security policies name it: only this script may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()


def points_charts(frontier: dict[str, Any]) -> list[Markup]:
    """Leakage against the budget and, for each target, its accuracy against the leakage and against ΔDemP."""
    points = [(i, p) for i, p in enumerate(frontier["points"]) if p["met"] and p.get("S AUC") is not None]
    leak = "AUC of a fresh attacker on S"
    charts = [
        scatter(
            [Mark(p["budget"], p["S AUC"], _name(p), i, _kind(p), y_ends=_ends(p, "S AUC")) for i, p in points],
            title="Leakage of S against the budget", x_label="budget (0: the original)", y_label=leak, y_guess=0.5,
        )
    ]  # fmt: skip
    for target in frontier["targets"]:
        score, gap = f"{target} accuracy", f"{target} ΔDemP"
        for x, label, guess in (("S AUC", leak, 0.5), (gap, f"ΔDemP of {target} between groups", 0.0)):
            charts.append(
                scatter(
                    [Mark(p[x], p[score], _name(p), i, _kind(p), _ends(p, x), _ends(p, score)) for i, p in points],
                    title=f"Accuracy of {target} against {label}", x_label=label, y_label=f"accuracy of {target}",
                    x_guess=guess, y_guess=points[0][1][f"{target} majority"] if points else None, percent=True,
                )
            )  # fmt: skip
    return charts


def points_panels(frontier: dict[str, Any]) -> list[Point]:
    """What is known of each point, as label and text."""
    panels = []
    for i, point in enumerate(frontier["points"]):
        rows = [("distortion of a row", _spent(point))] if point["budget"] else []
        if point.get("S AUC") is not None:
            rows += [("attacker on S: AUC (0.5 is guessing)", _interval(point, "S AUC")),
                     ("attacker on S: accuracy", f"{_interval(point, 'S accuracy', 100)} % "
                      f"(guessing: {100 * point['S majority']:.1f} %)")]  # fmt: skip
        for target in frontier["targets"]:
            if point.get(f"{target} accuracy") is not None:
                rows += [(f"{target}: accuracy", f"{_interval(point, f'{target} accuracy', 100)} % "
                          f"(guessing: {100 * point[f'{target} majority']:.1f} %)"),
                         (f"{target}: ΔDemP", _interval(point, f"{target} ΔDemP"))]  # fmt: skip
                rows += [(f"{target}: told {rate['predicted']}, {rate['group']}",
                          f"{100 * rate['rate']:.1f} % [{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]")
                         for rate in (point.get("rates") or {}).get(target, [])]  # fmt: skip
        panels.append(_panel(i, _label(point), point, rows))
    return panels


def _panel(number: int, label: str, point: Point, rows: list[tuple[str, str]]) -> Point:
    return {"number": number, "label": label, "rows": rows, "met": point["met"], "reason": point.get("reason", ""),
            "recommended": bool(point.get("recommended", False)), "veil": point.get("veil"),
            "budget": point["budget"]}  # fmt: skip


def _training_charts(points: list[Point], varied: str) -> list[Markup]:
    known = [(i, p) for i, p in enumerate(points) if math.isfinite(p["achieved"])]
    spent = [
        Mark(p["budget"], p["achieved"], f"{p['budget']:g}", i, _kind(p),
             y_ends=(p["achieved"], p["upper"] if math.isfinite(p["upper"]) else p["achieved"]))
        for i, p in known
    ]  # fmt: skip
    gains = [Mark(p["achieved"], p["advantage"], f"{p['budget']:g}", i, _kind(p)) for i, p in known]
    return [
        scatter(spent, title="Achieved value and its upper bound", x_label=varied, y_label="achieved, upper bound"),
        scatter(gains, title="Gain of training adversaries", x_label="achieved", y_label="gain of training adversaries",
                y_guess=0.0),
    ]  # fmt: skip


def _kind(point: Point) -> str:
    if not point["met"]:
        return "unmet"
    return "original" if point["budget"] == 0 else "recommended" if point.get("recommended") else "met"


def _name(point: Point) -> str:
    return "original" if point["budget"] == 0 else f"{point['budget']:g}"


def _label(point: Point) -> str:
    if point["budget"] == 0:
        return "The original data"
    told = ", recommended" if point.get("recommended") else "" if point["met"] else ", not met"
    return f"Budget {point['budget']:g}{told}"


def _spent(point: Point) -> str:
    upper = "without a bound" if point["upper"] is None else f"at most {point['upper']:.3g}"
    return f"{point['distortion']:.3g}, {upper}"


def _ends(point: Point, name: str) -> tuple[float, float]:
    return point[f"{name} low"], point[f"{name} high"]


def _interval(point: Point, name: str, times: float = 1.0) -> str:
    digits = 1 if times == 100 else 3
    value, (low, high) = point[name], _ends(point, name)
    return f"{times * value:.{digits}f} [{times * low:.{digits}f}, {times * high:.{digits}f}]"
