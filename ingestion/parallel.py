"""Work on many chunks at once without losing their order."""

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

    At most two items more than there are threads are under way, which bounds the memory. An error of `items` or
    `function` is raised here.

    Args:
        function: The work.
        items: What it is done to.
        most_workers: Most threads; more would need more memory.
        workers: Threads exactly, where they only wait for what others do; None for the cores of this machine.
    """
    if workers is None:
        workers = min(len(os.sched_getaffinity(0)), most_workers)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="ingest") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > workers + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
