"""Parallel training runs of one job, each in a separate process, or on a separate accelerator or node."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TypeVar

from shunter.engine.executors.role import ComputeTarget, Executor
from shunter.hardware.types import Placement
from shunter.search.study.workers import open_executors

Result_co = TypeVar("Result_co", covariant=True)


class Training(Protocol[Result_co]):
    """Function that executes one training run."""

    def __call__(self, place: ComputeTarget | None = None) -> Result_co:
        """Train with the executor of `place`; with None, use the compute target of the run."""
        ...


@dataclass(frozen=True)
class One:
    """Compute target with a single executor, which several training runs use one after the other."""

    own: Executor

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """Return the executor; the placement is ignored."""
        return self.own

    def executors(self, placement: Placement, count: int) -> Sequence[Executor]:
        """Return the executor in a list; the placement is ignored."""
        return [self.own]


def side_by_side(
    trainings: Sequence[Training[Result_co]],
    placement: Placement | None,
    count: int,
    place: ComputeTarget | None,
) -> list[Result_co]:
    """Run training runs, at most `count` in parallel; return their results in order.

    Args:
        trainings: Functions that train; if several run in parallel, each receives a compute target.
        placement: Placement of one training run; None runs them one after the other.
        count: Number of parallel training runs.
        place: Machines that train instead of this one.
    """
    if count == 1 or placement is None:
        return [training() for training in trainings]
    with open_executors(placement, count, place) as executors:
        free: SimpleQueue[Executor] = SimpleQueue()
        for executor in executors:
            free.put(executor)

        def run(training: Training[Result_co]) -> Result_co:
            executor = free.get()
            try:
                return training(place=One(executor))
            finally:
                free.put(executor)

        with ThreadPoolExecutor(count, thread_name_prefix="member") as threads:
            running = [threads.submit(copy_context().run, run, training) for training in trainings]
            return [one.result() for one in running]
