"""Small HTML fragments for notebooks: a title, a sentence and tables. No scripts, all texts escaped."""

from collections.abc import Sequence
from html import escape

_CELL = "padding:2px 10px 2px 0;text-align:left;vertical-align:top;border-bottom:1px solid #8884"


def fragment(title: str, text: str, *tables: Sequence[Sequence[object]]) -> str:
    """A box with a title, a text and tables; the first row of each table is its header.

    >>> "&lt;b&gt;" in fragment("Schema", "<b>", [["column"], ["age"]])
    True
    """
    shown = "".join(_table(rows) for rows in tables if len(rows) > 1)
    head = f'<div style="font-weight:600">{escape(title)}</div><div>{escape(text)}</div>'
    return f'<div style="border-left:4px solid #4a90d9;padding:4px 12px;margin:4px 0">{head}{shown}</div>'


def _table(rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th style="{_CELL}">{_shown(value)}</th>' for value in rows[0])
    body = "".join("<tr>" + "".join(f'<td style="{_CELL}">{_shown(v)}</td>' for v in row) + "</tr>" for row in rows[1:])
    return f'<table style="border-collapse:collapse;margin-top:6px"><tr>{head}</tr>{body}</table>'


def _shown(value: object) -> str:
    return escape("" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value))
