"""Render the plain values of an audit as one HTML file: no network access, no scripts, embedded images."""

import math
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from fairveil._utils.atomic import write_atomic
from fairveil.report.charts import (
    group_picture,
    leakage_picture,
    parity_picture,
    presence_picture,
    utility_picture,
)
from fairveil.report.svg import bars

#: Counts below this are not shown: pages are shared, and a small count may identify people.
FEWEST_SHOWN = 10

#: Templates of all pages.
TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("fairveil.report", "."),
    autoescape=True,  # names of columns and groups come from the data
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write_page(audit: dict[str, Any], path: Path) -> None:
    """Write the page atomically."""
    page = render_page(audit)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} to.")
    write_atomic(path, page.encode())


def render_page(audit: dict[str, Any]) -> str:
    """Render the page as text."""
    names = ("leakage", "attacks", "tails", "tasks", "rates", "information", "controls", "groups", "presence",
             "columns", "marginals")  # fmt: skip
    frames = {name: records(audit[name]) for name in names}
    frames["groups"] = with_counts(frames["groups"])
    pictures = {}
    if audit["valid"]:
        pictures["leakage"] = leakage_picture(frames["attacks"])
        pictures["parity"] = parity_picture(frames["tasks"], frames["leakage"])
        if frames["presence"]:
            pictures["presence"] = presence_picture(frames["presence"])
        if frames["tasks"]:
            pictures["utility"] = utility_picture(frames["tasks"])
        if frames["rates"]:
            pictures["groups"] = group_picture(frames["rates"])
    template = TEMPLATES.get_template("page.html.j2")
    return template.render(
        audit=audit,
        pictures=pictures,
        count=shown_count,
        interval=stacked_interval,
        charts=_marginal_charts(frames["columns"], frames["marginals"]),
        number=shown_number,
        upwards=rounded_up,
        has_fitted=any(not absent(row.get("fitted_advantage")) for row in frames["leakage"]),
        **frames,
    )


def records(frame: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a frame as mappings."""
    return [dict(zip(frame["columns"], row, strict=True)) for row in frame["rows"]]


def shown_count(value: Any) -> str:
    """A count, masked if it is small enough to identify people.

    >>> shown_count(3), shown_count(1234)
    ('fewer than 10', '1,234')
    """
    return f"fewer than {FEWEST_SHOWN}" if int(value) < FEWEST_SHOWN else f"{int(value):,}"


def with_counts(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Group sizes as text; if just one is too small to show, the next smallest is hidden too: the total reveals it."""
    out = []
    for name in dict.fromkeys(row["sensitive"] for row in groups):
        rows = [row for row in groups if row["sensitive"] == name]
        hidden = [row for row in rows if row["rows"] < FEWEST_SHOWN]
        if len(hidden) == 1 and len(rows) > 1:
            hidden = sorted(rows, key=lambda row: row["rows"])[:2]
        for row in rows:
            concealed = any(row is other for other in hidden)
            text = shown_count(row["rows"])
            out.append({**row, "count": "not shown" if concealed and row["rows"] >= FEWEST_SHOWN else text})
    return out


def absent(value: Any) -> bool:
    """Whether a value is missing: None or NaN."""
    return value is None or (isinstance(value, float) and math.isnan(value))


def shown_number(value: Any, digits: int = 3) -> str:
    """A number as text; empty if missing."""
    return "" if absent(value) else f"{float(value):.{digits}f}"


def rounded_up(value: Any, digits: int = 4) -> str:
    """An upper bound, rounded up so that it still holds.

    >>> rounded_up(0.10001)
    '0.1001'
    """
    return f"{math.ceil(float(value) * 10**digits - 1e-9) / 10**digits:.{digits}f}"


def shown_interval(row: dict[str, Any], name: str, digits: int = 3) -> str:
    """A value with its interval, from the three columns of an estimate."""
    if absent(row.get(name)):
        return ""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def stacked_interval(row: dict[str, Any], name: str, digits: int = 3) -> Markup | str:
    """A value with its interval below it, which keeps columns of a table narrow."""
    if absent(row.get(name)):
        return ""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return Markup('{}<br><small class="note">[{}, {}]</small>').format(
        f"{row[name]:.{digits}f}", f"{low:.{digits}f}", f"{high:.{digits}f}"
    )


def _marginal_charts(columns: list[dict[str, Any]], marginals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The distribution of each column before and after, the most changed first."""
    ordered = sorted(columns, key=lambda row: -row["drift"])
    return [{**row, "chart": marginal_chart(row["column"], marginals)} for row in ordered]


def marginal_chart(name: str, marginals: list[dict[str, Any]]) -> Markup:
    """The distribution of one column before and after."""
    pairs = [(str(row["value"]), row["before"], row["after"]) for row in marginals if row["column"] == name]
    return bars(pairs, title=f"Distribution of {name} before and after")
