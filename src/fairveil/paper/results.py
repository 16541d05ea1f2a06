"""The results of an experiment: values that are computed once, and one page of tables and figures."""

import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch

import fairveil
from fairveil._utils.errors import InputError, must_be

Profile = Literal["quick", "paper"]


def check_profile(profile: str) -> Profile:
    """`quick` (minutes, smaller) or `paper` (the paper's sizes)."""
    for known in get_args(Profile):
        if profile == known:
            return cast(Profile, known)
    raise InputError(must_be("reproduce", "profile", "'quick' or 'paper'", profile))


class Store:
    """Named values in one JSON file, written after each, so that an interrupted run does not compute them again.

    settings: everything the values depend on; values of other settings are not reused.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, tell: Callable[[str], None] = lambda text: None):
        self.path, self.tell = path, tell
        self.settings = json.loads(json.dumps(settings, default=str))
        self.values: dict[str, Any] = {}
        if path.is_file():
            try:
                found = json.loads(path.read_text(encoding="utf-8"))
                self.values = dict(found["values"]) if found["settings"] == self.settings else {}
            except (ValueError, KeyError, TypeError):
                self.values = {}  # incomplete or foreign file: compute everything again

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        """The value with this name; computed, with its time, if it is missing."""
        if name not in self.values:
            self.tell(name)
            start = time.monotonic()
            value = compute()
            self.values[name] = {"value": value, "seconds": round(time.monotonic() - start, 2)}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            beside = self.path.with_suffix(".tmp")
            beside.write_text(json.dumps({"settings": self.settings, "values": self.values}, default=_plain, indent=1))
            beside.replace(self.path)
        return self.values[name]["value"]

    def spent(self, name: str, seconds: float) -> None:
        """Add time spent outside the values, such as training; it is written with the next value."""
        before = self.values.get(f"{name}: training", {"seconds": 0.0})["seconds"]
        self.values[f"{name}: training"] = {"value": None, "seconds": round(before + seconds, 2)}

    @property
    def seconds(self) -> float:
        """Total time of all values, including earlier runs."""
        return float(sum(value["seconds"] for value in self.values.values()))

    @contextmanager
    def resumable(self, name: str) -> Iterator[Path]:
        """A checkpoint for one game with these settings; it is removed when the game is over."""
        key = hashlib.sha256(json.dumps([name, self.settings]).encode()).hexdigest()[:8]
        path = self.path.with_name(f".{self.path.stem}-{key}.checkpoint")
        path.parent.mkdir(parents=True, exist_ok=True)
        yield path
        path.unlink(missing_ok=True)


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(type(value).__name__)


@dataclass(frozen=True)
class Table:
    """A table of the page. Cells are shown as they are; None is an empty cell."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""

    def markdown(self) -> str:
        """As Markdown."""
        lines = [f"### {self.title}", "", "| " + " | ".join(self.columns) + " |", "|---" * len(self.columns) + "|"]
        lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %"


@dataclass(frozen=True)
class Figure:
    """An image file in the page's folder, with the paper's label of the figure and a caption."""

    file: str
    caption: str


@dataclass(frozen=True)
class Page:
    """The report of one experiment: what was reproduced, what is better, what differs and why."""

    name: str
    title: str
    summary: Sequence[str]
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    seconds: float = 0.0

    def markdown(self, command: str) -> str:
        """The complete page."""
        parts = [f"# {self.title}", "", f"Made by `{command}` in {self.seconds:.0f} s on {machine()}.", ""]
        parts += [*(f"- {line}" for line in self.summary), ""]
        for figure in self.figures:
            parts += [f"![{figure.caption}]({figure.file})", "", f"*{figure.caption}*", ""]
        parts += [table.markdown() for table in self.tables]
        parts += ["### Settings", "", *(f"- {name}: {value}" for name, value in self.settings.items()), ""]
        return "\n".join(parts)

    def write(self, folder: Path, command: str) -> Path:
        """Write NAME.md into the folder where the figures are."""
        path = folder / f"{self.name}.md"
        path.write_text(self.markdown(command), encoding="utf-8")
        return path


def machine() -> str:
    """Versions and the machine, in one line."""
    where = "a GPU" if torch.cuda.is_available() else f"{torch.get_num_threads()} CPU threads"
    python = ".".join(map(str, sys.version_info[:3]))
    versions = f"fairveil {fairveil.__version__}, torch {torch.__version__}, Python {python}"
    return f"{where} ({versions}, {platform.machine()})"
