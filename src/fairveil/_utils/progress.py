"""Progress of long tasks: a bar on a terminal, an occasional plain line elsewhere, or nothing."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Seconds between two plain lines.
_QUIET = 10.0


class Reporter(Protocol):
    """Reports progress after every step."""

    def __call__(self, done: int, note: str = "") -> None:
        """Report."""
        ...


@contextmanager
def progress(total: int, title: str, enabled: bool = True, unit: str = "steps") -> Iterator[Reporter]:
    """Report `done` of `total` on standard error."""
    if not enabled:
        yield lambda done, note="": None
    elif sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))  # fmt: skip
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=total, note="")
            yield lambda done, note="": bar.update(task, completed=done, **({"note": note} if note else {}))
    else:
        yield _plain_lines(total, title, unit)


def say(text: str, enabled: bool = True) -> None:
    """One line on standard error, beside the progress."""
    if enabled:
        print(text, file=sys.stderr, flush=True)


def _plain_lines(total: int, title: str, unit: str) -> Reporter:
    start = last = time.monotonic()
    first: int | None = None
    latest = ""

    def report(done: int, note: str = "") -> None:
        nonlocal last, first, latest
        now = time.monotonic()
        first = done - 1 if first is None else first
        latest = note or latest
        if now - last < _QUIET and done < total:
            return
        last = now
        left = (now - start) / max(done - first, 1) * (total - done)
        print(f"{title}: {done}/{total} {unit}, {now - start:.0f} s, {left:.0f} s left. {latest}", file=sys.stderr)

    return report
