"""Charts as inline SVG, for pages: they scale, print, and follow the page's colours. All texts are escaped.

Colours come from the page's style sheet by class, so that a chart works in light and dark pages and without inline
styles, which a strict content security policy forbids.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

_WIDTH, _HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 18, 14, 48


@dataclass(frozen=True)
class Mark:
    """A point of a chart with optional intervals. kind: its CSS class. number: which point of the frontier it is."""

    x: float
    y: float
    label: str
    number: int
    kind: str = "met"
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None


def scatter(
    marks: Sequence[Mark],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_guess: float | None = None,
    y_guess: float | None = None,
    percent: bool = False,
) -> Markup:
    """Points with intervals and labels. The guesses are dotted lines and always within the axes.

    percent: y is a share and shown in percent.
    """
    across = _Axis.over([v for m in marks for v in (m.x, *(m.x_ends or ()))], x_guess, _LEFT, _WIDTH - _RIGHT)
    up = _Axis.over([v for m in marks for v in (m.y, *(m.y_ends or ()))], y_guess, _HEIGHT - _BOTTOM, _TOP)
    parts = [*_grid(across, up, percent), *_guesses(across, up, x_guess, y_guess)]
    placed: list[tuple[float, float]] = []
    for mark in marks:
        x, y = across.at(mark.x), up.at(mark.y)
        lines = [_line(across.at(mark.x_ends[0]), y, across.at(mark.x_ends[1]), y)] if mark.x_ends else []
        if mark.y_ends:
            lines.append(_line(x, up.at(mark.y_ends[0]), x, up.at(mark.y_ends[1])))
        height, late = _free(placed, x, y), x > _WIDTH - 80
        parts.append(
            Markup('<g class="mark {}" data-number="{}"><title>{}</title>{}<circle cx="{}" cy="{}" r="5"/>'
                   '<text x="{}" y="{}" text-anchor="{}">{}</text></g>').format(
                mark.kind, mark.number, f"{mark.label}: {_short(mark.x)}, {_short(mark.y)}", Markup("").join(lines),
                _px(x), _px(y), _px(x - 8 if late else x + 8), _px(height), "end" if late else "start", mark.label)
        )  # fmt: skip
    foot = Markup('<text class="name" x="{}" y="{}" text-anchor="middle">{}</text>').format(
        _px((_LEFT + _WIDTH - _RIGHT) / 2), _HEIGHT - 10, x_label
    )
    side = Markup('<text class="name" transform="translate(14 {}) rotate(-90)" text-anchor="middle">{}</text>').format(
        _px((_TOP + _HEIGHT - _BOTTOM) / 2), y_label
    )
    return _chart(title, _WIDTH, _HEIGHT, [*parts, foot, side])


def bars(pairs: Sequence[tuple[str, float, float]], *, title: str, width: int = 340) -> Markup:
    """Two horizontal bars for each value: its share before and after."""
    top = max([share for _, *both in pairs for share in both] + [1e-9])
    parts = []
    room = width - 190
    for i, (name, before, after) in enumerate(pairs):
        y = 4 + 30 * i
        shown = name if len(name) <= 20 else name[:19] + "…"
        parts.append(
            Markup('<g><title>{}</title><text class="name" x="126" y="{}" text-anchor="end">{}</text>'
                   '<rect class="before" x="132" y="{}" width="{}" height="10"/>'
                   '<rect class="after" x="132" y="{}" width="{}" height="10"/>'
                   '<text class="figure" x="{}" y="{}">{} → {}</text></g>').format(
                f"{name}: {100 * before:.1f} % before, {100 * after:.1f} % after", y + 15, shown,
                y, _px(room * before / top * 0.62), y + 12, _px(room * after / top * 0.62),
                _px(138 + room * max(before, after) / top * 0.62), y + 15,
                f"{100 * before:.1f}", f"{100 * after:.1f} %")
        )  # fmt: skip
    return _chart(title, width, 8 + 30 * len(pairs), parts)


def _chart(title: str, width: int, height: int, parts: Sequence[Markup]) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        width, height, title, Markup("").join(parts)
    )


@dataclass(frozen=True)
class _Axis:
    """A linear axis: values from low to high at pixels from start to stop, with round ticks."""

    low: float
    high: float
    start: float
    stop: float
    ticks: tuple[float, ...]

    @classmethod
    def over(cls, values: Sequence[float], guess: float | None, start: float, stop: float) -> "_Axis":
        known = [v for v in [*values, *([] if guess is None else [guess])] if math.isfinite(v)] or [0.0]
        low, high = min(known), max(known)
        room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
        step = _round_step((high - low + 2 * room) / 5)
        low, high = step * math.floor((low - room) / step), step * math.ceil((high + room) / step)
        if min(known) >= 0 > low:  # no room below zero for what cannot be negative
            low = 0.0
        if max(known) <= 1 < high:  # nor above one for shares
            high = 1.0
        count = math.floor((high - low) / step + 1e-9)
        return cls(low, high, start, stop, tuple(low + step * i for i in range(count + 1)))

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def _round_step(size: float) -> float:
    """The next larger of 1, 2 or 5 times a power of ten.

    >>> [_round_step(size) for size in (0.9, 1.2, 23)]
    [1.0, 2.0, 50.0]
    """
    power = 10.0 ** math.floor(math.log10(size))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= size * 0.999)


def _grid(across: _Axis, up: _Axis, percent: bool) -> list[Markup]:
    parts = []
    for tick in across.ticks:
        x = across.at(tick)
        parts.append(_line(x, _TOP, x, _HEIGHT - _BOTTOM, "grid"))
        parts.append(Markup('<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _px(x), _HEIGHT - _BOTTOM + 16, _tick(tick)))  # fmt: skip
    for tick in up.ticks:
        y = up.at(tick)
        parts.append(_line(_LEFT, y, _WIDTH - _RIGHT, y, "grid"))
        text = f"{_tick(100 * tick)} %" if percent else _tick(tick)
        parts.append(Markup('<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>').format(
            _LEFT - 6, _px(y + 4), text))  # fmt: skip
    return parts


def _guesses(across: _Axis, up: _Axis, x: float | None, y: float | None) -> list[Markup]:
    lines = [] if x is None else [_line(across.at(x), _TOP, across.at(x), _HEIGHT - _BOTTOM, "guess")]
    return lines + ([] if y is None else [_line(_LEFT, up.at(y), _WIDTH - _RIGHT, up.at(y), "guess")])


def _free(placed: list[tuple[float, float]], x: float, y: float) -> float:
    """A height for a label next to (x, y) that no earlier label has taken."""
    for shift in (-6, 14, -20, 28, -34, 42):
        height = y + shift
        if all(abs(x - a) > 34 or abs(height - b) > 11 for a, b in placed) and _TOP < height < _HEIGHT - _BOTTOM:
            break
    placed.append((x, height))
    return height


def _line(x: float, y: float, x2: float, y2: float, kind: str = "ends") -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, _px(x), _px(y), _px(x2), _px(y2))


def _px(value: float) -> str:
    return f"{value:.1f}"


def _tick(value: float) -> str:
    return f"{round(value, 10):g}"


def _short(value: float) -> str:
    return f"{value:.3g}"
