"""One table of the folder, and the files that belong to it. All state is on disk, under names derived from the table's.

Everything a curator should have is an ordinary file next to the table, as the command line would write it. What only
the studio needs (jobs, and what an inspection found) is in a hidden folder.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairveil._utils.atomic import PRIVATE, write_atomic
from fairveil._utils.errors import InputError

_STATE = ".fairveil-studio"
_SUFFIXES = (".csv", ".parquet")
_MOST_FILES = 200


@dataclass(frozen=True)
class Project:
    """A table and its results."""

    folder: Path
    name: str

    @property
    def key(self) -> str:
        """An identifier for addresses, which do not show names."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:12]

    @property
    def table(self) -> Path:
        """The table."""
        return self.folder / self.name

    @property
    def state(self) -> Path:
        """A private folder for jobs."""
        return self.folder / _STATE / self.key

    def _next_to(self, ending: str) -> Path:
        return self.folder / f"{Path(self.name).stem}{ending}"

    @property
    def schema(self) -> Path:
        """The schema, as `fairveil inspect` writes it."""
        return self._next_to(".schema.yaml")

    @property
    def veils(self) -> Path:
        """The folder of a frontier, as `fairveil frontier` writes it."""
        return self._next_to("-veils")

    @property
    def release(self) -> Path:
        """The release."""
        return self._next_to(f".censored{Path(self.name).suffix.lower()}")

    @property
    def report(self) -> Path:
        """The page of the audit."""
        return self._next_to(".audit.html")

    @property
    def audit(self) -> Path:
        """The audit as JSON."""
        return self._next_to(".audit.json")

    def downloads(self) -> dict[str, Path]:
        """The files a curator may fetch, by what they are."""
        card = self.release.with_name(f"{self.release.name}.card.json")
        every = {
            "release": self.release, "card": card.with_suffix(".md"), "card-json": card, "report": self.report,
            "audit": self.audit, "schema": self.schema, "frontier": self.veils / "frontier.html",
        }  # fmt: skip
        return {} if self.veils.is_symlink() else {what: path for what, path in every.items() if _is_own(path)}

    def prepare(self) -> None:
        """Make the private folder."""
        for path in (self.folder / _STATE, self.state):
            path.mkdir(mode=0o700, exist_ok=True)
            if path.is_symlink():
                raise InputError(f"{path.name} in this folder is a link. Find out who made it, and remove it.")

    def remember(self, what: str, values: dict[str, Any]) -> None:
        """Keep plain values for later pages."""
        self.prepare()
        write_atomic(self.state / f"{what}.json", json.dumps(values).encode(), PRIVATE)

    def recall(self, what: str) -> dict[str, Any]:
        """What was kept; empty if nothing was, or if it is damaged."""
        try:
            values = json.loads((self.state / f"{what}.json").read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}


def _is_own(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def projects(folder: Path) -> list[Project]:
    """The tables of a folder: ordinary files, no links, no releases."""
    found = [
        Project(folder, path.name)
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _SUFFIXES and not path.name.startswith(".") and _is_own(path)
        and not path.name.lower().endswith((".censored.csv", ".censored.parquet"))
    ]  # fmt: skip
    return found[:_MOST_FILES]
