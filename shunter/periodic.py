"""Periodic calls in a background thread, such as writes that limit the loss after a kill."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shunter.errors import ShunterError

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
