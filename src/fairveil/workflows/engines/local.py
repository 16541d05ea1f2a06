"""Threads of this machine."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def concurrently(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """Yield results as they complete; no more items are read ahead than there are workers."""
    # One thread per item: encoding does not parallelise, and sums of floats depend on the number of threads.
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1)) as pool:
        pending: set[Future[Result]] = set()
        try:
            for item in items:
                pending.add(pool.submit(work, item))
                if len(pending) > workers:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in finished)
            yield from (future.result() for future in pending)
        except BaseException:
            for future in pending:
                future.cancel()
            raise
        finally:
            torch.set_num_threads(threads)
