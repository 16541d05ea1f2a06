"""Progress of long tasks: a bar on a terminal, an occasional plain line elsewhere, a caller's function, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

#: Seconds between two plain lines.
_QUIET = 10.0


class Reporter(Protocol):
    """Reports progress after every step."""

    def __call__(self, done: int, note: str = "") -> None:
        """Report."""
        ...


@dataclass(frozen=True)
class Status:
    """How far a task is. seconds: since its start. left: seconds until the whole job is done, an estimate."""

    title: str
    done: int
    total: int
    unit: str
    seconds: float
    left: float
    note: str


class Job:
    """A job of several stages: the time left in one of them includes the later ones.

    expected: the seconds of the stages to come, by title and in order; None if unknown, then a stage is taken to last
    as long as the current one.
    """

    def __init__(self, expected: Mapping[str, float | None]) -> None:
        self._expected = dict(expected)

    def expect(self, title: str, seconds: float) -> None:
        """State how long a later stage will take."""
        self._expected[title] = seconds

    def begin(self, title: str) -> None:
        """Begin a stage: those listed before it are done. A stage that is not listed comes before all listed ones."""
        if title in self._expected:
            titles = list(self._expected)
            self._expected = {name: self._expected[name] for name in titles[titles.index(title) + 1 :]}

    def after(self, current: float) -> float:
        """The seconds of all later stages, if the current one takes `current` seconds."""
        return sum(current if seconds is None else seconds for seconds in self._expected.values())


_JOB: ContextVar[Job | None] = ContextVar("job", default=None)
_LISTENER: ContextVar[Callable[[Status], None] | None] = ContextVar("listener", default=None)


@contextmanager
def whole_job(expected: Mapping[str, float | None]) -> Iterator[Job]:
    """Within the block, every time left includes the stages to come."""
    token = _JOB.set(Job(expected))
    try:
        job = _JOB.get()
        assert job is not None
        yield job
    finally:
        _JOB.reset(token)


@contextmanager
def told_to(listener: Callable[[Status], None]) -> Iterator[None]:
    """Within the block, progress goes to a function instead of standard error."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@contextmanager
def progress(total: int, title: str, enabled: bool = True, unit: str = "steps") -> Iterator[Reporter]:
    """Report `done` of `total` on standard error, or to the listener."""
    job, listener = _JOB.get() or Job({}), _LISTENER.get()
    job.begin(title)
    if not enabled:
        yield lambda done, note="": None
        return
    if listener is not None:
        yield _measured(total, title, unit, job, listener)
    elif sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TextColumn("{task.fields[left]}"), TextColumn("{task.fields[note]}"))  # fmt: skip
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(title, total=total, note="", left="")
            yield _measured(total, title, unit, job, lambda at: bar.update(
                task, completed=at.done, note=at.note, left=f"{duration(at.left)} left"))  # fmt: skip
    else:
        yield _measured(total, title, unit, job, _plain_lines())


def say(text: str, enabled: bool = True) -> None:
    """One line on standard error, beside the progress; nothing where progress goes to a listener."""
    if enabled and _LISTENER.get() is None:
        print(text, file=sys.stderr, flush=True)


def _measured(total: int, title: str, unit: str, job: Job, tell: Callable[[Status], None]) -> Reporter:
    """A reporter that adds the time passed and the time left."""
    start = time.monotonic()
    first: int | None = None
    latest = ""

    def report(done: int, note: str = "") -> None:
        nonlocal first, latest
        seconds = time.monotonic() - start
        first = done - 1 if first is None else first
        latest = note or latest
        each = seconds / max(done - first, 1)
        left = each * (total - done) + job.after(each * (total - first))
        tell(Status(title, done, total, unit, seconds, left, latest))

    return report


def _plain_lines() -> Callable[[Status], None]:
    last = time.monotonic()

    def tell(at: Status) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _QUIET and at.done < at.total:
            return
        last = now
        passed, left = duration(at.seconds), duration(at.left)
        print(f"{at.title}: {at.done}/{at.total} {at.unit}, {passed}, {left} left. {at.note}", file=sys.stderr)

    return tell


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(44.6), duration(125), duration(7300)
    ('45 s', '2 min 5 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
