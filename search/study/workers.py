"""Executors of a search, for the training runs at the same time, on this machine or a cluster."""

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
    """Open executors for `count` trials at the same time, and close them at the end of the block.

    A single trial at a time trains in this process. Several trials train in separate processes, which share the threads
    of the placement, or on nodes of a cluster. Measured step times are those of `count` trials at the same time.

    Args:
        placement: Chosen placement.
        count: Number of trials at the same time.
        place: Compute target that trains instead of this machine.

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
