"""Several trainings of one job at a time, each in a process, or on an accelerator or node, of its own."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TypeVar

from shunter.engine.executors.role import Executor, Place
from shunter.engine.stopping import ShouldStop
from shunter.hardware.types import Placement
from shunter.search.study.workers import open_executors

Result_co = TypeVar("Result_co", covariant=True)


class Training(Protocol[Result_co]):
    """One of the trainings."""

    def __call__(self, place: Place | None = None) -> Result_co:
        """Train, at a place of one executor where one is given, else where the run is."""
        ...


@dataclass(frozen=True)
class One:
    """A place of one executor, which is kept for the trainings that come."""

    own: Executor

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """The executor, whatever the placement says of threads."""
        return self.own

    def executors(self, placement: Placement, count: int) -> Sequence[Executor]:
        """The same."""
        return [self.own]


def side_by_side(
    trainings: Sequence[Training[Result_co]],
    placement: Placement | None,
    count: int,
    place: Place | None,
    should_stop: ShouldStop,
) -> list[Result_co]:
    """Run trainings, so many at a time, and give their results in their order; the first is run whatever is left.

    Args:
        trainings: Each is called, with where it runs if several do at a time.
        placement: Where one of them runs; None where they run one after the other.
        count: How many at a time.
        place: Machines that train instead of this one.
        should_stop: Asked before each; a reason leaves it out.
    """
    if count == 1 or placement is None:
        found: list[Result_co] = []
        for training in trainings:
            if found and should_stop():
                break
            found.append(training())
        return found
    with open_executors(placement, count, place) as executors:
        free: SimpleQueue[Executor] = SimpleQueue()
        for executor in executors:
            free.put(executor)

        def run(number: int, training: Training[Result_co]) -> Result_co | None:
            if number and should_stop():
                return None
            executor = free.get()
            try:
                return training(place=One(executor))
            finally:
                free.put(executor)

        with ThreadPoolExecutor(count, thread_name_prefix="member") as threads:
            running = [
                threads.submit(copy_context().run, run, number, training) for number, training in enumerate(trainings)
            ]
            done = [one.result() for one in running]
    return [one for one in done if one is not None]
