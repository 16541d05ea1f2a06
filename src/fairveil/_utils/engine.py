"""Where independent pieces of work run: here one after another, or on a cluster (`workflows.engines`)."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Engine(Protocol):
    """Runs functions whose results depend on their arguments alone, so that every engine gives the same results."""

    def map(
        self, work: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], told: Callable[[int], None] | None = None
    ) -> list[Result]:
        """`work(*task)` for every task, in the order of the tasks.

        told: is called with the number of each task, when it begins or when it has ended. Large arrays and tables among
        the arguments are sent once, however many tasks use them.
        """
        ...

    def group(self, work: Callable[..., Result], task: tuple[Any, ...], size: int) -> list[Result]:
        """`work(*task, rank, size)` in `size` processes at once, which form a group of `torch.distributed`."""
        ...

    def together(self, stages: Sequence[Callable[[], Result]]) -> list[Result]:
        """Call functions of this process that do not depend on each other; their calls of `map` may overlap."""
        ...


class InProcess:
    """One piece after another in this process."""

    def map(
        self, work: Callable[..., Result], tasks: Sequence[tuple[Any, ...]], told: Callable[[int], None] | None = None
    ) -> list[Result]:
        """Call `work` for one task after another."""
        found = []
        for number, task in enumerate(tasks):
            if told is not None:
                told(number)
            found.append(work(*task))
        return found

    def group(self, work: Callable[..., Result], task: tuple[Any, ...], size: int) -> list[Result]:
        """One process only: this one."""
        if size != 1:
            raise ValueError("a group of several processes needs a cluster")
        return [work(*task, 0, 1)]

    def together(self, stages: Sequence[Callable[[], Result]]) -> list[Result]:
        """Call one after another."""
        return [stage() for stage in stages]


HERE: Engine = InProcess()
