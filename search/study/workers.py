"""The executors of a search: how many trainings run at a time, and where each of them runs."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shunter.engine.executors.role import Executor, Place
from shunter.engine.executors.this_machine import ThisMachine
from shunter.hardware.types import Placement

log = logging.getLogger(__name__)


@contextmanager
def open_executors(placement: Placement, count: int, place: Place | None = None) -> Iterator[Sequence[Executor]]:
    """Executors for so many trials at a time, which end with the block.

    One trial at a time trains in this process. Several train in a process each, which share the threads of the
    placement, or on nodes of a cluster. What they measure of a step holds for so many at a time.

    Args:
        placement: The chosen placement.
        count: Trials at a time.
        place: Place that trains instead of this machine.

    Raises:
        RequestError: There are fewer GPUs than trials at a time.
    """
    executors = (place or ThisMachine()).executors(placement, count)
    if count > 1:
        log.info("%d trials at a time: %s", count, ", ".join(executor.placement.label for executor in executors))
    try:
        yield executors
    finally:
        for executor in executors:
            executor.close()
