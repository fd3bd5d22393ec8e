"""What the steps of one training share once its placement is chosen."""

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

EXPLORATION = "exploration"  # span of the clock


def exploration_limit(clock: RunClock, decision: Decision, span: str = EXPLORATION) -> ShouldStop | None:
    """Return the condition that ends an exploration; None for a decision that is none.

    Its time counts from the first check, which is that of the search: tuning and training are all that an exploration
    was expected to take.

    Args:
        clock: Clock of the command.
        decision: Decision on the placement.
        span: Span of the clock that counts.
    """
    if decision.exploration is None:
        return None
    reason = StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": decision.exploration.stop_multiple})
    return time_limit(clock, span, 3600 * decision.exploration.stop_hours, reason)


@dataclass(frozen=True)
class RunContext:
    """One training, from its decision on.

    Attributes:
        request: What was asked for.
        dataset: The data.
        profiles: Accelerators that may be used.
        decision: The placement, and why.
        directory: Folder of the run's state.
        run_id: Parent run in MLflow.
        budget: What is left of the limits.
        stop: What ends the search and the trainings.
        cluster: Nodes that train instead of this machine.
        notes: What the run comes to, for the record that is kept of it.
        exploration: Condition among these that ends an exploration; None of a run that is none.
        better: Lets a training move to a better accelerator of this machine that becomes free; None where there is
            none, or where it may not.
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
        """What ends a baseline: everything but the end of an exploration."""
        return self.stop.without(self.exploration)

    def should_stop(self) -> StopReason | None:
        """Return what ends the search and the trainings; None while they go on."""
        return self.stop.check()

    def within(self, condition: ShouldStop) -> "RunContext":
        """Return the same run, whose trainings another condition may end too."""
        return replace(self, stop=self.stop.also(condition))

    def check_exploration(self, reason: StopReason | None) -> None:
        """Raise if the time of an exploration ended a search or a training.

        Args:
            reason: What ended it; None where it came to its end.

        Raises:
            StoppedError: The exploration took its time.
        """
        if reason is not None and reason.kind is StopKind.EXPLORATION:
            raise StoppedError(stop_text(reason), reason)

    @property
    def checkpoints(self) -> CheckpointRequest:
        """How checkpoints are kept, with the place of this run among the copies."""
        copies = copies_address(self.request, self.dataset)
        return self.request.checkpoints.model_copy(update={"checkpoint_copy": copies})

    @property
    def processes(self) -> int:
        """Processes that train each member together (`shunter.tasks.training_plans.processes_of`).

        Raises:
            RequestError: The plan cannot be read.
        """
        return processes_of(self.request)

    @property
    def search_directory(self) -> Path:
        """Folder of the search, with the models of its best trials."""
        return self.directory / "tune"
