"""Data that all steps of one training share once its placement is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.role import Cluster, Place
from shunter.engine.stopping import (
    Budget,
    RunClock,
    ShouldStop,
    StopConditions,
    StopKind,
    StopLimit,
    StoppedError,
    StopReason,
    time_limit,
)
from shunter.engine.stopping_text import stop_text
from shunter.hardware.types import HardwareProfile
from shunter.planner.decide import Decision
from shunter.planner.history.record import FlowNotes
from shunter.requests import CheckpointRequest, TrainRequest
from shunter.tasks.run_state import copies_address
from shunter.tasks.training_plans import processes_of

EXPLORATION = "exploration"  # name of the clock's span


def exploration_limit(clock: RunClock, decision: Decision, span: str = EXPLORATION) -> ShouldStop | None:
    """Return the condition that ends an exploration; None if the decision is no exploration.

    The time counts from the first check, at the start of the search, because the prediction of an exploration covers
    tuning and training only.

    Args:
        clock: Clock of the command.
        decision: Decision on the placement.
        span: Name of the clock's span that measures the time.
    """
    if decision.exploration is None:
        return None
    reason = StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": decision.exploration.stop_multiple})
    return time_limit(clock, span, 3600 * decision.exploration.stop_hours, reason)


@dataclass(frozen=True)
class RunContext:
    """Context of one training run, from its decision on.

    Attributes:
        request: Request of the run.
        dataset: Data set.
        profiles: Accelerators that may be used.
        decision: Decision on the placement, with its reason.
        directory: Folder of the run's state.
        run_id: Parent run in MLflow.
        budget: Rest of the limits.
        stop: Conditions that end the search and the trainings.
        cluster: Nodes that train instead of this machine.
        notes: Notes for the record of the run.
        exploration: Condition in `stop` that ends an exploration; None if the run is no exploration.
        better: Place that lets a training move to a better accelerator of this machine when one becomes free; None if
            no move is possible or allowed.
    """

    request: TrainRequest
    dataset: Dataset
    profiles: Sequence[HardwareProfile]
    decision: Decision
    directory: Path
    run_id: str
    budget: Budget
    stop: StopConditions
    cluster: Cluster | None = None
    notes: FlowNotes = field(default_factory=FlowNotes)
    exploration: ShouldStop | None = None
    better: Place | None = None

    @property
    def baseline_stop(self) -> StopConditions:
        """Conditions that end a baseline: all except the end of an exploration."""
        return self.stop.without(self.exploration)

    def should_stop(self) -> StopReason | None:
        """Return the reason to end the search and the trainings; None while they continue."""
        return self.stop.check()

    def within(self, condition: ShouldStop) -> "RunContext":
        """Return the same run with a further condition that ends its trainings."""
        return replace(self, stop=self.stop.also(condition))

    def check_exploration(self, reason: StopReason | None) -> None:
        """Raise if the time limit of an exploration ended a search or a training.

        Args:
            reason: Reason for the end of the search or training; None if it ran to its end.

        Raises:
            StoppedError: The time of the exploration is used up.
        """
        if reason is not None and reason.kind is StopKind.EXPLORATION:
            raise StoppedError(stop_text(reason), reason)

    @property
    def checkpoints(self) -> CheckpointRequest:
        """Options of the checkpoints, with this run's own address for the copies."""
        copies = copies_address(self.request, self.dataset)
        return self.request.checkpoints.model_copy(update={"checkpoint_copy": copies})

    @property
    def processes(self) -> int:
        """Number of processes that train each member together (`shunter.tasks.training_plans.processes_of`).

        Raises:
            RequestError: The plan cannot be read.
        """
        return processes_of(self.request)

    @property
    def search_directory(self) -> Path:
        """Folder of the search, with the models of its best trials."""
        return self.directory / "tune"
