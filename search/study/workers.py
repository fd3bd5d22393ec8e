"""Executors of a search: how many training runs run at the same time, and where each of them runs."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shunter.engine.executors.role import ComputeTarget, Executor
from shunter.engine.executors.this_machine import ThisMachine
from shunter.hardware.types import Placement

log = logging.getLogger(__name__)


@contextmanager
def open_executors(
    placement: Placement, count: int, place: ComputeTarget | None = None
) -> Iterator[Sequence[Executor]]:
    """Open executors for `count` trials at the same time; they are closed at the end of the block.

    A single trial at a time trains in this process. Several trials train in one process each, which share the threads
    of the placement, or on nodes of a cluster. Step times measured there hold for `count` trials at the same time.

    Args:
        placement: The chosen placement.
        count: Number of trials at the same time.
        place: Target that trains instead of this machine.

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
