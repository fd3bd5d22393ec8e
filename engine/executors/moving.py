"""Training in this process that goes on elsewhere on this machine, through its checkpoint, where that is better."""

import time
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from engine.executors.here import Here
from engine.job import Checkpointing, Hooks, TrainingJob
from engine.results import TrainResult
from hardware.meters.meter import EnergyMeter
from hardware.types import Placement

LOOK_SECONDS = 5.0  # between two looks at what is free


class Going(NamedTuple):
    """How a training goes where it is.

    Attributes:
        share: Share of its longest schedule that is done.
        seconds_left: That the rest takes, by the steps seen here.
        start_seconds: From its start here to its first step.
    """

    share: float
    seconds_left: float
    start_seconds: float


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


class _MoveError(KeyboardInterrupt):
    """Ends a training after a step, with its state saved."""

    def __init__(self, placement: Placement) -> None:
        super().__init__(placement.label)
        self.placement = placement


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
                return super().run(job, _Watch(self.placement, self._mover).watching(hooks), checkpointing)
            except _MoveError as move:
                self._move(move.placement)

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


class _Watch:
    """Asks while a training runs; in its first steps nothing is known."""

    def __init__(self, placement: Placement, mover: Mover) -> None:
        self._placement, self._mover = placement, mover
        self._began = self._looked_at = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._going: Going | None = None

    def watching(self, hooks: Hooks) -> Hooks:
        """The hooks of the training, with a look now and then."""

        def on_step(done: int, total: int) -> None:
            self._note(done, total)
            if hooks.on_step:
                hooks.on_step(done, total)

        def should_stop() -> str | None:
            self._look()
            return hooks.should_stop() if hooks.should_stop else None

        return replace(hooks, on_step=on_step, should_stop=should_stop)

    def _note(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
            return
        at, first = self._first
        if done > first and total:
            left = (now - at) / (done - first) * (total - done)
            self._going = Going(done / total, left, at - self._began)

    def _look(self) -> None:
        now = time.monotonic()
        if self._going is None or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        better = self._mover.choose(self._placement, self._going)
        if better is not None:
            raise _MoveError(better)
