"""Training in this process that goes on elsewhere on this machine, through its checkpoint, where that is better."""

from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from shunter.engine.executors.here import Here
from shunter.engine.executors.watch import Going, MoveError, Watch
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.results import TrainResult
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.types import Placement


class Mover(Protocol):
    """Knows where else a training could be."""

    def choose(self, here: Placement, going: Going) -> Placement | None:
        """Where it should go on instead; None to stay. Called in the thread that trains, and takes nothing."""
        ...

    def take(self, here: Placement, after: Placement) -> bool:
        """Exchange one for the other, of a training whose state is saved; False where that is not to be had any more.

        Called in the thread that has begun the training.
        """
        ...


class HereOrBetter(Here):
    """Trains in this process, and moves when it is told to: then the threads may round otherwise from there on.

    Args:
        placement: Where it begins, whatever the execution of its jobs says.
        mover: Asked now and then.

    Attributes:
        placement: Where it is, or was last.
        moves: Sentences that say where it went, and why.
    """

    def __init__(self, placement: Placement, mover: Mover) -> None:
        super().__init__(placement)
        self._mover = mover
        self._meter: EnergyMeter | None = None
        self._may_move = True

    def run(
        self, job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
    ) -> TrainResult[Any, Any, Any]:
        """Train; one whose state is not kept stays where it is."""
        while True:
            there = replace(job.execution, device=self.placement.device, threads=self.placement.threads)
            if there != job.execution:  # threads that follow the steps know the first place alone
                job, hooks = replace(job, execution=there), replace(hooks, adapt=None)
            if checkpointing is None or not self._may_move:
                return super().run(job, hooks, checkpointing)
            try:
                watch = Watch(partial(self._mover.choose, self.placement))
                return super().run(job, watch.watching(hooks), checkpointing)
            except MoveError as move:
                self._move(move.to)

    def _move(self, after: Placement) -> None:
        self._may_move = self._mover.take(self.placement, after)
        if not self._may_move:  # somebody was faster; it goes on, and saves its state for nothing no more
            return
        self.moves = [*self.moves, f"{after.label} is free: what trained at {self.placement.label} goes on there."]
        self.placement = after
        if self._meter is not None:
            self._meter.count_only([after.accelerator])

    def meter(self) -> EnergyMeter:
        """Meter of this machine, which follows the moves."""
        self._meter = super().meter()
        return self._meter
