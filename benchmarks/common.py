"""What the benchmarks share: how their parts are called, how they resume, the budgets of a frontier, and the rows that
judge.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

#: A whole frontier of UCI Adult, case I, from hardly changed to nothing left of sex.
EIGHT = (0.7, 0.9, 1.0, 1.05, 1.1, 1.4, 1.8, 2.3)


def fit_and_judge(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Four fifths of the training rows to fit on, and the others to judge by: test rows are not touched."""
    order = np.random.default_rng(0).permutation(rows)
    return np.sort(order[rows // 5 :]), np.sort(order[: rows // 5])


class Measurements:
    """Measurements by their keys, kept in a file of JSON lines: a part that was stopped goes on where it was.

    After the given seconds, no further measurement is started.
    """

    def __init__(self) -> None:
        self.open(None, None)

    def open(self, path: Path | None, seconds: float | None) -> None:
        """Read what a file holds, and add to it from now on."""
        self.path, self.until = path, None if seconds is None else time.monotonic() + seconds
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self.found = {_text(key): value for key, value in map(json.loads, lines)}

    def take(self, compute: Callable[[], Any], *key: Any) -> Any:
        """The measurement of this key: numbers, text, lists and dictionaries of them."""
        if _text(key) not in self.found:
            if self.until is not None and time.monotonic() > self.until:
                raise SystemExit("Out of time. The same command goes on from here.")
            value = json.loads(json.dumps(compute(), default=float))
            self.found[_text(key)] = value
            print(*key, value, flush=True)
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([key, value]) + "\n")
        return self.found[_text(key)]


def _text(key: Any) -> str:
    return json.dumps(key)


#: The measurements of this run; `run_parts` opens the file that the command line names.
MEASURED = Measurements()


def run_parts(description: str | None, parts: Mapping[str, Callable[[], object]]) -> None:
    """Run the parts named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(parts)}; all of them by default")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep measurements here, and go on where it ends")
    parser.add_argument("--seconds", type=float, help="start no measurement after this time (of parts that resume)")
    arguments = parser.parse_args()
    MEASURED.open(arguments.keep, arguments.seconds)
    for name in arguments.parts or list(parts):
        parts[name]()
