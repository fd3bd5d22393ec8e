"""What the steps of one training share once its placement is chosen."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.ray.cluster import Cluster
from shunter.engine.stopping import Budget, ShouldStop, StopKind, StopLimit, StoppedError, StopReason
from shunter.engine.stopping_text import stop_text
from shunter.hardware.types import HardwareProfile
from shunter.planner.decide import Decision, Exploration
from shunter.planner.history.record import FlowNotes
from shunter.planner.parallel.plan import processes_of
from shunter.requests import CheckpointRequest, TrainRequest
from shunter.tasks.better import BetterOfThisMachine
from shunter.tasks.run_state import copies_address


class ExplorationEnd:
    """Watches how long an exploration tunes and trains, which is all that it was expected to take.

    Args:
        exploration: What was decided.
    """

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._began: float | None = None

    def reached(self) -> StopReason | None:
        """Return the reason to stop once its time is over; time counts from the first call."""
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        if now - self._began < 3600 * self._exploration.stop_hours:
            return None
        return StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": self._exploration.stop_multiple})


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
        cluster: Nodes that train instead of this machine.
        notes: What the run comes to, for the record that is kept of it.
        exploration: When to give it up; None of a run that is none.
        better: Lets a training move to a better accelerator of this machine that becomes free; None where there is
            none, or where it may not.
        until: What ends the trainings beside the limits; None where nothing does.
    """

    request: TrainRequest
    dataset: Dataset
    profiles: Sequence[HardwareProfile]
    decision: Decision
    directory: Path
    run_id: str
    budget: Budget
    cluster: Cluster | None = None
    notes: FlowNotes = field(default_factory=FlowNotes)
    exploration: ExplorationEnd | None = None
    better: BetterOfThisMachine | None = None
    until: ShouldStop | None = None

    def should_stop(self) -> StopReason | None:
        """Return what ends the search and the training: a limit that is used up, or the end of an exploration."""
        explored = self.exploration.reached() if self.exploration else None
        return self.budget.exhausted() or explored or (self.until() if self.until else None)

    def within(self, until: ShouldStop) -> "RunContext":
        """The same run, whose trainings something else may end too."""
        return replace(self, until=until)

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
        """Processes that train each member together (`shunter.planner.parallel.plan.processes_of`).

        Raises:
            RequestError: The plan cannot be read.
        """
        return processes_of(self.request)

    @property
    def search_directory(self) -> Path:
        """Folder of the search, with the models of its best trials."""
        return self.directory / "tune"
