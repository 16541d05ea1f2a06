"""Runs one method on one table with one seed, in a process of its own, within a time limit.

Limit and times are seconds of processor time, so that results do not depend on what else the machine does. A process
that waits for anything else is ended after ten times as many seconds."""

import math
import multiprocessing
import resource
import signal
import time
import traceback
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from field import store
from field.data import PARTS, Table, load
from field.judges import battery, judge_tables, task_scores
from field.methods import METHODS
from field.protocol import Fitted, Method, Output

#: Seconds of waiting per second of the limit.
_PATIENCE = 10.0


def run(table: str, method: str, seed: int, folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The stored result, if it was made with these settings and is complete, else a new one.

    settings: rows (of all parts), tries (of the search), limit (seconds of processor time, judging included), battery.
    """
    path = store.path_of(folder, table, method, seed)
    found = store.read(path)
    if found is not None and found["done"] and found["settings"] == dict(settings):
        return found
    result = {"table": Path(table).stem, "method": method, "seed": seed, "settings": dict(settings),
              "commit": store.commit(), "versions": store.versions(), "points": [], "failure": None,
              "done": False}  # fmt: skip
    store.write(path, result)
    # Forked from a server that has everything imported; what it leaks or breaks ends with it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["field.run"])
    child = context.Process(target=_limited, args=(table, result, path))
    child.start()
    child.join(_PATIENCE * settings["limit"])
    if child.is_alive():
        child.kill()
        child.join()
    found = store.read(path)
    assert found is not None
    if not found["done"]:
        late = child.exitcode in (-signal.SIGXCPU, -signal.SIGKILL)
        reason = f"time limit of {settings['limit']:g} s" if late else f"the process ended with {child.exitcode}"
        store.write(path, found := {**found, "failure": reason, "done": True})
    return found


def _limited(name: str, result: dict[str, Any], path: Path) -> None:
    """Measure; the system ends this process at the limit."""
    limit = math.ceil(time.process_time() + result["settings"]["limit"])
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    measure(name, result, path)


def measure(name: str, result: dict[str, Any], path: Path) -> None:
    """Fit the method, judge every value of its trade-off, and store each as soon as it is known."""
    method, settings, seed = METHODS[result["method"]], result["settings"], result["seed"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = load(name, seed, settings["rows"])
            result |= {"rows": {part: len(rows) for part, rows in table.parts.items()}, "groups": table.groups,
                       "majority": _majority(table), "optimum": dict(table.optimum)}  # fmt: skip
            result["failure"] = method.problem(table.groups)
            if result["failure"] is None:
                _points(method, table, result, path, seed)
    except Exception as error:  # a method that fails is a row of the table, whatever its reason
        text = str(error).strip().splitlines()
        result["failure"] = f"{type(error).__name__}: {text[0][:120] if text else ''}"
        result["trace"] = traceback.format_exc(limit=-3)
    store.write(path, {**result, "done": True})


def _points(method: Method, table: Table, result: dict[str, Any], path: Path, seed: int) -> None:
    settings, start = result["settings"], time.process_time()
    for fitted in method.fit(table.parts["fit"], seed):
        outputs = apply(fitted, table, sees=method.sees)
        seconds = time.process_time() - start
        point: dict[str, Any] = {"setting": fitted.setting, "certified": fitted.certified, "seconds": seconds,
                                 "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}  # fmt: skip
        tables = {part: output.table for part, output in outputs.items() if output.table is not None}
        if tables:
            point["data"] = judge_tables(tables, table, seed, settings["tries"])
            if settings["battery"]:
                point["data"]["battery"] = battery(tables, table)
        predicted = {part: output.predicted for part, output in outputs.items() if output.predicted is not None}
        if predicted:
            point["predictor"] = task_scores(predicted, table.parts)
        result["points"].append(point)
        store.write(path, result)
        start = time.process_time()
    if not result["points"]:
        result["failure"] = "no value of its trade-off could be reached"


def apply(fitted: Fitted, table: Table, *, sees: bool) -> dict[str, Output]:
    """What a fitted method makes of every part, without the labels, and without S unless it sees it."""
    made = {part: fitted.apply(table.parts[part].withheld(sees=sees)) for part in PARTS}
    for part, output in made.items():
        for value in (output.table, output.predicted):
            if value is not None and len(value) != len(table.parts[part]):
                raise ValueError(f"the method returned {len(value)} of {len(table.parts[part])} rows")
    return made


def _majority(table: Table) -> dict[str, float]:
    """The accuracy of guessing, for the named and the unnamed tasks, on test rows."""
    truth = {"named": table.parts["test"].truth, **{name: y["test"] for name, y in table.unnamed.items()}}
    return {name: float(pd.Series(y).value_counts(normalize=True).max()) for name, y in truth.items()}
