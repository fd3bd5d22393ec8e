"""Work in background threads: a parallel map that preserves the order, and periodic calls."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from shunter.errors import ShunterError

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


INTERVAL_SECONDS = 2.0
log = logging.getLogger(__name__)


@contextmanager
def periodic(work: Callable[[], None]) -> Iterator[None]:
    """Call `work` in a thread of its own every few seconds while the block runs.

    An error of `work` is logged once for each message and does not end the block.

    Args:
        work: Function without arguments, safe to call from another thread while the block runs.
    """
    ended = threading.Event()

    def repeat() -> None:
        said = set()
        while not ended.wait(INTERVAL_SECONDS):
            try:
                work()
            except ShunterError as error:
                if str(error) not in said:
                    log.warning("%s", error)
                said.add(str(error))

    thread = threading.Thread(target=repeat, name="regularly", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
