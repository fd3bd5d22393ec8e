"""Training in this process that moves to a better placement on this machine by a checkpoint."""

from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.executors.move_monitor import MoveError, MoveMonitor, TrainingProgress
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.results import TrainResult
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.types import Placement


class Mover(Protocol):
    """Interface that chooses other placements for a running job."""

    def choose(self, here: Placement, progress: TrainingProgress) -> Placement | None:
        """Return the placement to move to; None to stay. Called in the training thread; reserves nothing."""
        ...

    def take(self, here: Placement, after: Placement) -> bool:
        """Exchange the lease once the training's state is saved; return False if the new placement is in use.

        Called in the thread that started the training.
        """
        ...


class MigratingExecutor(InProcessExecutor):
    """Executor that trains in this process and can move to another placement; results may then differ by rounding.

    Args:
        placement: First placement, which overrides the execution of the jobs.
        mover: Chooses other placements; called periodically during training.

    Attributes:
        placement: Current or last placement.
        moves: Messages about each move.
    """

    def __init__(self, placement: Placement, mover: Mover) -> None:
        super().__init__(placement)
        self._mover = mover
        self._meter: EnergyMeter | None = None
        self._may_move = True

    def run(
        self, job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
    ) -> TrainResult[Any, Any, Any]:
        """Train the job; without checkpoints it never moves."""
        while True:
            there = replace(job.execution, device=self.placement.device, threads=self.placement.threads)
            if there != job.execution:  # thread adaptation only knows the first placement
                job, hooks = replace(job, execution=there), replace(hooks, adapt=None)
            if checkpointing is None or not self._may_move:
                return super().run(job, hooks, checkpointing)
            try:
                watch = MoveMonitor(partial(self._mover.choose, self.placement))
                return super().run(job, watch.watching(hooks), checkpointing)
            except MoveError as move:
                self._move(move.to)

    def _move(self, after: Placement) -> None:
        self._may_move = self._mover.take(self.placement, after)
        if not self._may_move:  # another process took the placement; this one continues and stays
            return
        self.moves = [*self.moves, f"{after.label} is free: the training at {self.placement.label} continues there."]
        self.placement = after
        if self._meter is not None:
            self._meter.count_only([after.accelerator])

    def meter(self) -> EnergyMeter:
        """Return the energy meter of this machine, which follows the moves."""
        self._meter = super().meter()
        return self._meter
