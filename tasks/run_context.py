"""Data that all steps of one training run share once its placement is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.role import Cluster, ComputeTarget
from shunter.engine.stopping import (
    Budget,
    RunClock,
    ShouldStop,
    StopConditions,
    StopKind,
    StopLimit,
    StopReason,
    time_limit,
)
from shunter.hardware.types import HardwareProfile, Placement
from shunter.planner.decide import Decision
from shunter.planner.history.record import FlowNotes
from shunter.requests import CheckpointRequest, TrainRequest
from shunter.search.study.pair import Pairing
from shunter.tasks.run_state import copies_address
from shunter.tasks.training_plans import processes_of

EXPLORATION = "exploration"  # name of the clock's span


def exploration_limit(clock: RunClock, decision: Decision, span: str = EXPLORATION) -> ShouldStop | None:
    """Return the time limit of an exploration as a stop condition.

    None if the decision is no exploration, or if an extra trial explores.

    The time counts from the first check, at the start of the search, because the prediction of an exploration covers
    tuning and training only.
    """
    if decision.exploration is None or decision.exploration.paired:
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
        budget: Remaining time, energy and cost within the limits.
        stop: Conditions that end the search and the training runs.
        cluster: Nodes that train instead of this machine.
        notes: Notes for the record of the run.
        better: Compute target that moves a training job when a better accelerator of this machine becomes free.
            None if no move is possible or allowed.
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
    better: ComputeTarget | None = None

    @property
    def baseline_stop(self) -> StopConditions:
        """Conditions that end the training of a baseline."""
        return self.stop

    def should_stop(self) -> StopReason | None:
        """Return the reason to end the search and the training runs; None while they continue."""
        return self.stop.check()

    def within(self, condition: ShouldStop) -> "RunContext":
        """Return the same run context with a further condition that ends its training runs."""
        return replace(self, stop=self.stop.also(condition))

    @property
    def pairing(self) -> Pairing | None:
        """Placement that a trial of the search explores; None if the run explores nothing."""
        exploration = self.decision.exploration
        if exploration is None:
            return None
        if exploration.paired is not None:
            return Pairing(exploration.paired, exploration.stop_multiple)
        return Pairing(exploration.best_known, exploration.stop_multiple, 3600 * exploration.stop_hours)

    def at(self, placement: Placement) -> "RunContext":
        """Return the same run context at another placement, without exploration."""
        decision = self.decision.model_copy(update={"placement": placement, "exploration": None})
        return replace(self, decision=decision)

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
        """Folder of the search with the models of its best trials."""
        return self.directory / "tune"
