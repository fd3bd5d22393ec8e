"""Parallel map over chunks that preserves their order."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_MOST_WORKERS = 8


def ordered_map(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    most_workers: int = _MOST_WORKERS,
    *,
    workers: int | None = None,
) -> Iterator[Result]:
    """Apply `function` in threads and yield the results in order.

    At most `workers + 2` items are in progress, which bounds the memory. Errors of `items` and `function` are raised to
    the caller.

    Args:
        function: Function of one item.
        items: Items to process.
        most_workers: Largest number of threads, which bounds the memory.
        workers: Exact number of threads; None for one per core, at most `most_workers`.
    """
    if workers is None:
        workers = min(len(os.sched_getaffinity(0)), most_workers)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="ordered") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
