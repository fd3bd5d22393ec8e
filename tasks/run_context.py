"""What the steps of one training share once its placement is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine.data.dataset import Dataset
from engine.executors.ray.cluster import Cluster
from hardware.budget import Budget
from hardware.types import HardwareProfile
from planner.decide import Decision
from planner.history.record import FlowNotes
from shunter.requests import TrainRequest


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

    @property
    def search_directory(self) -> Path:
        """Folder of the search, with the models of its best trials."""
        return self.directory / "tune"
