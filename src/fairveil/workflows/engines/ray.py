"""A Ray cluster: an existing one by its address, or one on this machine for the time of the work.

Tasks may run several times, after the death of a worker or a node. They are made for that: each writes files under
names of its own, atomically, and with the same bytes every time.
"""

import importlib.util
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from fairveil._utils.errors import BudgetNotMet, DataNotFound, InputError, TrainingFailed, VeilFileError
from fairveil._utils.stores import StoreError
from fairveil.workflows.engines.shipping import Shipping, unpack

Task = TypeVar("Task")
Result = TypeVar("Result")

#: How often a task is started again after its worker or node died, and after a store did not answer.
_MOST_DEATHS, _MOST_STORE_ERRORS = 100, 5
#: How often a group of workers is started again.
_MOST_GROUPS = 10
#: Errors with texts of our own, besides `InputError`.
_OWN = (BudgetNotMet, DataNotFound, TrainingFailed, VeilFileError)
INSTALL = "--engine ray needs Ray, which is not installed. Run: pip install 'fairveil[ray]'"


class WorkFailed(RuntimeError):
    """A task failed with an error of its own; only its type and place are told, as its text may show data."""


@dataclass(frozen=True)
class _Outcome:
    """What a task gives back: its result, or the description of an error that a user may see."""

    result: Any = None
    problems: tuple[str, ...] = ()
    own: tuple[type[Exception], str] | None = None
    store: str = ""
    internal: str = ""

    @property
    def failed(self) -> bool:
        """Whether the task has not returned a result."""
        return bool(self.problems or self.own or self.store or self.internal)


class RayEngine:
    """Runs functions as Ray tasks of one CPU each."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._shipping = Shipping(ray.put, ray.cloudpickle.CloudPickler)

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
        kept = self._ray.put(shared)
        for _, result in self._complete(_attempt, ((work, kept, task) for task in tasks)):
            yield result

    def map(
        self, work: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], told: Callable[[int], None] | None = None
    ) -> list[Result]:
        """`work(*task)` for every task, in the order of the tasks. told: is called with the number of a finished task.

        Each large array among the arguments is one object in the store, which the workers of a node share.
        """
        found: list[Any] = [None] * len(tasks)
        packed = ((content, *values) for content, values in (self._shipping.pack((work, task)) for task in tasks))
        for number, result in self._complete(_attempt_packed, packed):
            found[number] = result
            if told is not None:
                told(number)
        return found

    def group(self, work: Callable[..., Result], task: tuple[Any, ...], size: int) -> list[Result]:
        """`work(*task, rank, size)` in `size` workers at once, a group of `torch.distributed` over TCP (gloo).

        If a worker dies, the work of all of them starts again.
        """
        if size > int(self._ray.cluster_resources().get("CPU", 0)):
            raise InputError(f"The cluster has fewer than {size} CPUs: --processes must not exceed them.")
        content, values = self._shipping.pack((work, task))
        for _ in range(_MOST_GROUPS):
            found = self._grouped(content, values, size)
            if found is not None:
                return [_result(outcome) for outcome in found]
        raise WorkFailed(f"Training lost one of its processes {_MOST_GROUPS} times.")

    def _grouped(self, content: bytes, values: list[Any], size: int) -> list[_Outcome] | None:
        """The outcome of each worker; None if one of them died."""
        from torch import distributed

        ray = self._ray
        host = ray.util.get_node_ip_address()
        meeting = distributed.TCPStore(host, 0, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
        # The meeting point has to live as long as the group.
        place = ray.util.placement_group([{"CPU": 1}] * size)
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(place)
        remote = ray.remote(num_cpus=1, max_retries=0, scheduling_strategy=strategy)(_attempt_in_group)
        running = [remote.remote((host, meeting.port, rank, size), content, *values) for rank in range(size)]
        try:
            found: dict[Any, _Outcome] = {}
            while len(found) < size:
                [ready], _ = ray.wait([each for each in running if each not in found], num_returns=1)
                found[ready] = ray.get(ready)
                if found[ready].failed:  # the others wait for it in vain
                    return [found[ready]]
            return [found[each] for each in running]
        except ray.exceptions.RayError:
            return None
        finally:
            for each in running:
                ray.cancel(each, force=True)
            ray.util.remove_placement_group(place)

    def together(self, stages: Sequence[Callable[[], Result]]) -> list[Result]:
        """Call functions of this process in threads, so that the cluster has the tasks of all of them."""
        with ThreadPoolExecutor(max(1, len(stages))) as pool:
            return [future.result() for future in [pool.submit(stage) for stage in stages]]

    def _complete(
        self, function: Callable[..., _Outcome], calls: Iterable[tuple[Any, ...]]
    ) -> Iterator[tuple[int, Any]]:
        """Start calls, twice as many as there are CPUs; the number and the result of each as it completes."""
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=_MOST_DEATHS)(function)
        waiting = enumerate(calls)
        running: dict[Any, tuple[int, tuple[Any, ...], int]] = {}
        try:
            while True:
                room = max(2, 2 * int(ray.cluster_resources().get("CPU", 1))) - len(running)
                for number, call in islice(waiting, max(0, room)):
                    running[remote.remote(*call)] = (number, call, 0)
                if not running:
                    return
                finished, _ = ray.wait(list(running), num_returns=1)
                for reference in finished:
                    number, call, failures = running.pop(reference)
                    outcome = self._outcome(reference)
                    if outcome.store and failures < _MOST_STORE_ERRORS:
                        running[remote.remote(*call)] = (number, call, failures + 1)
                        continue
                    yield number, _result(outcome)
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
    if outcome.own is not None:
        kind, text = outcome.own
        raise kind(text)
    if outcome.store:
        raise StoreError(outcome.store)
    if outcome.internal:
        raise WorkFailed(outcome.internal)
    return outcome.result


def _attempt(work: Callable[[Any, Any], Any], shared: Any, task: Any) -> _Outcome:
    """Run in a worker. Errors are returned, not raised: Ray writes the text of exceptions, and so data, to its logs."""
    return _guarded(lambda: work(shared, task))


def _attempt_packed(content: bytes, *values: Any) -> _Outcome:
    """The same for packed arguments, whose large values Ray has fetched."""

    def call() -> Any:
        work, task = unpack(content, values)
        return work(*task)

    return _guarded(call)


def _attempt_in_group(member: tuple[str, int, int, int], content: bytes, *values: Any) -> _Outcome:
    """The same in one member of a group. member: host and port of the meeting point, rank, size."""
    from torch import distributed

    host, port, rank, size = member

    def call() -> Any:
        work, task = unpack(content, values)
        if size == 1:
            return work(*task, rank, size)
        meeting = distributed.TCPStore(host, port)  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=meeting, rank=rank, world_size=size)
        try:
            return work(*task, rank, size)
        finally:
            distributed.destroy_process_group()

    return _guarded(call)


def _guarded(call: Callable[[], Any]) -> _Outcome:
    """In one thread: sums of floats depend on the number of threads."""
    import torch

    torch.set_num_threads(1)
    try:
        return _Outcome(call())
    except InputError as error:
        return _Outcome(problems=error.problems)
    except _OWN as error:
        return _Outcome(own=(type(error), str(error)))
    except StoreError as error:
        return _Outcome(store=str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return _Outcome(internal=f"{type(error).__name__} in {where.name}, line {where.lineno}")
