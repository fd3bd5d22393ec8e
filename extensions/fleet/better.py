"""Move a training run on this machine to a better accelerator, or to more cores, that other processes have released."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.executors.move_monitor import MoveError, MoveMonitor, TrainingProgress
from shunter.engine.executors.role import Executor
from shunter.engine.executors.this_machine import ThisMachine
from shunter.engine.job import Checkpointing, Hooks, TrainingJob
from shunter.engine.results import TrainResult
from shunter.errors import ShunterError
from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job, JobState
from shunter.extensions.fleet.policies import make_policy
from shunter.hardware.leases import CPU, leases_of_others, slots
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.reservation import Reservation
from shunter.hardware.reservation_queue import is_wanted
from shunter.hardware.types import Placement
from shunter.planner.assessment import Assessment
from shunter.planner.decide import Decision
from shunter.tasks.accelerators import announce

POLICY = "fifo-move"  # serves waiting jobs first, then moves running jobs that a free accelerator would speed up


class MigratingExecutor(InProcessExecutor):
    """Executor that trains in this process and can move to another placement; results may then differ by rounding.

    Args:
        placement: First placement, which overrides the execution of the jobs.
        mover: Chooses other placements; called periodically during training.

    Attributes:
        placement: Current or last placement.
        moves: Messages about each move.
    """

    def __init__(self, placement: Placement, mover: "DeviceUpgrade") -> None:
        super().__init__(placement)
        self._mover = mover
        self._meter: EnergyMeter | None = None
        self._may_move = True

    def run(
        self, job: TrainingJob[Any, Any, Any], hooks: Hooks = Hooks(), checkpointing: Checkpointing | None = None
    ) -> TrainResult[Any, Any, Any]:
        """Train the job; without checkpoints the job never moves to another device."""
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
                here, after = self.placement, move.to
                self._may_move = self._mover.take(here, after)
                if not self._may_move:  # another process took the placement; this one continues and stays
                    continue
                self.moves = [*self.moves, f"{after.label} is free: the training at {here.label} continues there."]
                self.placement = after
                if self._meter is not None:
                    self._meter.count_only([after.accelerator])

    def meter(self) -> EnergyMeter:
        """Return an energy meter of the accelerator that trains; it follows the training to another accelerator."""
        self._meter = super().meter()
        return self._meter


@dataclass
class DeviceUpgrade:
    """`ComputeTarget` for one training job at a time, which moves when better accelerators become free.

    Args:
        reservation: Reservation of the current placement; a move exchanges it.
        estimate: Function that returns the predicted times of all placements of this machine, as if all were free.
    """

    reservation: Reservation
    estimate: Callable[[], Decision]
    _now: Placement | None = None
    _progress: TrainingProgress | None = None
    _table: Sequence[Assessment] | None = None

    def executor(self, placement: Placement, checkpoints: Path | None = None) -> Executor:
        """Return an executor, see `ComputeTarget.executor`; it starts on the placement of the last move, if any."""
        found = ThisMachine().executor(placement, checkpoints)
        return MigratingExecutor(self._now or placement, self) if isinstance(found, InProcessExecutor) else found

    def executors(self, placement: Placement, count: int) -> Sequence[Executor]:
        """Return executors, see `ComputeTarget.executors`; parallel training runs do not move."""
        return ThisMachine().executors(placement, count)

    def choose(self, here: Placement, progress: TrainingProgress) -> Placement | None:
        """Return the free placement that the fleet policy `fifo-move` chooses; None to stay or if another job waits.

        Called in the training thread; reserves nothing.
        """
        rows = self._rows(here)
        was = _row_of(here, rows)
        if was is None or is_wanted({row.candidate.placement.accelerator for row in rows}):
            return None
        self._progress = progress
        free = {here.label: was} | {
            row.candidate.placement.label: row for row in rows if row.candidate.placement != here and _is_free(row)
        }
        weighed = self.estimate().weighed
        totals = {label: weighed(row) for label, row in free.items()}
        label = select_upgrade(totals, here.label, progress) if len(totals) > 1 else None
        return None if label is None else free[label].candidate.placement

    def take(self, here: Placement, after: Placement) -> bool:
        """Lease the new placement and release the current one; return False if the new one is in use.

        Called in the thread that started the training, after the training's state has been saved.
        """
        rows = self._rows(here)
        was, row = _row_of(here, rows), _row_of(after, rows)
        assert was is not None, "it was chosen"
        assert row is not None, "it was chosen"
        assert self._progress is not None, "it was chosen"
        seconds = self._progress.seconds_left * row.hours / was.hours
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        if not self.reservation.exchange(after, row.candidate.prediction.memory_bytes, until):
            return False
        announce(f"{after.label} is free: the training at {here.label} continues there, from its checkpoint.")
        self._now = after
        return True

    def _rows(self, here: Placement) -> list[Assessment]:
        """Return assessments of the placements on which the training run could continue, as if all were free."""
        if self._table is None:
            try:
                self._table = self.estimate().table
            except ShunterError:  # no placement satisfies the predicted limits
                self._table = ()

        def alike(one: Placement) -> tuple[object, ...]:
            return one.batch_size, one.precision, one.processes, one.embedding_memory_bytes

        return [
            row
            for row in self._table
            if alike(row.candidate.placement) == alike(here)
            and row.candidate.is_here
            and not row.excluded_by
            and row.candidate.placement.power_limit_watts is None
        ]


def _row_of(placement: Placement, rows: Sequence[Assessment]) -> Assessment | None:
    """Return the assessment with the closest number of threads on the placement's accelerator, preferably not fewer."""
    alike = [row for row in rows if row.candidate.placement.accelerator == placement.accelerator]
    return min(
        alike,
        key=lambda row: (
            row.candidate.placement.threads < placement.threads,
            abs(row.candidate.placement.threads - placement.threads),
        ),
        default=None,
    )


def _is_free(row: Assessment) -> bool:
    """Return True if no other process holds the accelerator or, on the CPU, if enough cores and memory are free."""
    placement = row.candidate.placement
    others = leases_of_others(placement.accelerator)
    if placement.accelerator != CPU or not others:
        return not others
    memory = sum(lease.memory_bytes for lease in others) + row.candidate.prediction.memory_bytes
    is_known = all(lease.memory_bytes for lease in others)
    has_cores = placement.threads <= len(slots(CPU)) - sum(lease.cores for lease in others)
    return is_known and has_cores and memory <= row.candidate.accelerator_memory_bytes


def select_upgrade(totals: Mapping[str, float], here: str, progress: TrainingProgress) -> str | None:
    """Return the placement to which the policy moves a running job; None to stay.

    The policy sees a cluster of one accelerator per placement: the run's current placement and every free one.

    Args:
        totals: Time of the whole training run, in any unit, by its current placement and every placement that is free
            now.
        here: Current placement.
        progress: Progress of the training.
    """
    names = [here, *(name for name in totals if name != here)]
    whole = progress.seconds_left / (1 - progress.share) if progress.share < 1 else 0.0
    work = Iterations(1.0, {name: whole * totals[name] / totals[here] for name in names})
    machines = tuple(Machine(name=f"place {i}", accelerator=name) for i, name in enumerate(names))
    board = Board(Cluster(machines=machines))
    state = JobState(Job("this training", 0.0, 1, work, restore_seconds=progress.start_seconds), done=progress.share)
    board.waiting[state.name] = state
    board.start(state, ((0, 1),))
    board.touched.clear()
    state.conditions = board.conditions(((0, 1),))
    make_policy(POLICY).decide(board)
    assert state.placement is not None, "no other job waits for the placement"
    found = names[state.placement[0][0]]
    return None if found == here else found
