"""A Ray cluster: an existing one by its address, or one on this machine for the time of the work.

Tasks may run several times, after the death of a worker or a node. They are made for that: each writes files under
names of its own, atomically, and with the same bytes every time.
"""

import importlib.util
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from fairveil._utils.errors import InputError
from fairveil._utils.stores import StoreError

Task = TypeVar("Task")
Result = TypeVar("Result")

#: How often a task is started again after its worker or node died, and after a store did not answer.
_MOST_DEATHS, _MOST_STORE_ERRORS = 100, 5
INSTALL = "--engine ray needs Ray, which is not installed. Run: pip install 'fairveil[ray]'"


class WorkFailed(RuntimeError):
    """A task failed with an error of its own; only its type and place are told, as its text may show data."""


@dataclass(frozen=True)
class _Outcome:
    """What a task gives back: its result, or the description of an error that a user may see."""

    result: Any = None
    problems: tuple[str, ...] = ()
    store: str = ""
    internal: str = ""


class RayEngine:
    """Runs functions as Ray tasks of one CPU each."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    @classmethod
    @contextmanager
    def started(cls, address: str | None) -> Iterator["RayEngine"]:
        """Connect to a cluster, or start one on this machine; a connection that existed before is left as it is."""
        require_ray()
        import ray

        if ray.is_initialized():
            yield cls(ray)
            return
        # Lines of workers are not shown: they could hold data.
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is None:
            quiet["include_dashboard"] = False
        try:
            ray.init(address=address or "local", **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            named = "on this machine" if address is None else "at the address given"
            raise InputError(f"There is no Ray cluster {named} ({type(error).__name__}).") from None
        try:
            yield cls(ray)
        finally:
            ray.shutdown()

    def run(self, work: Callable[[Any, Task], Result], shared: Any, tasks: Iterable[Task]) -> Iterator[Result]:
        """Call `work(shared, task)` for every task on the cluster; yield results as they complete.

        shared: is stored once and read by each task. All of these must be picklable.
        """
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=_MOST_DEATHS)(_attempt)
        kept = ray.put(shared)
        waiting = iter(tasks)
        running: dict[Any, tuple[Task, int]] = {}
        try:
            while True:
                room = max(2, 2 * int(ray.cluster_resources().get("CPU", 1))) - len(running)
                for task in islice(waiting, max(0, room)):
                    running[remote.remote(work, kept, task)] = (task, 0)
                if not running:
                    return
                finished, _ = ray.wait(list(running), num_returns=1)
                for reference in finished:
                    task, failures = running.pop(reference)
                    outcome = self._outcome(reference)
                    if outcome.store and failures < _MOST_STORE_ERRORS:
                        running[remote.remote(work, kept, task)] = (task, failures + 1)
                        continue
                    yield _result(outcome)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _outcome(self, reference: Any) -> _Outcome:
        try:
            outcome: _Outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            text = f"A task of the cluster did not finish ({type(error).__name__}). --resume continues."
            raise WorkFailed(text) from None
        return outcome


def require_ray() -> None:
    """Raise if Ray is not installed. A folder named `ray` in the current folder is not Ray: it has no origin."""
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:
        raise InputError(INSTALL)


def _result(outcome: _Outcome) -> Any:
    if outcome.problems:
        raise InputError(outcome.problems)
    if outcome.store:
        raise StoreError(outcome.store)
    if outcome.internal:
        raise WorkFailed(outcome.internal)
    return outcome.result


def _attempt(work: Callable[[Any, Any], Any], shared: Any, task: Any) -> _Outcome:
    """Run in a worker. Errors are returned, not raised: Ray writes the text of exceptions, and so data, to its logs."""
    import torch

    torch.set_num_threads(1)
    try:
        return _Outcome(work(shared, task))
    except InputError as error:
        return _Outcome(problems=error.problems)
    except StoreError as error:
        return _Outcome(store=str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return _Outcome(internal=f"{type(error).__name__} in {where.name}, line {where.lineno}")
