"""Input of a search method: the search that the method works for, and earlier searches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.engine.config import Execution, Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.stopping import RunClock, ShouldStop
from shunter.requests import Limits
from shunter.search.protocol import Cost, Outcome, Parameters, Space

if TYPE_CHECKING:
    from optuna import Study


@dataclass(frozen=True, kw_only=True)
class PastStudy:
    """Finished search of an earlier run.

    Attributes:
        name: Name of the past search's data.
        trials: Points with their outcomes, as parameters of the past search's own space; at least one has a result.
        distance: Distance of the past search's data from the present data; 0 for the same data.
        run_id: MLflow run of the past search; empty if the search does not come from MLflow.
        features: Meta-features of the past search's data; empty if unknown.
        noise: Standard deviation of the loss between seeds; None if no setting was trained twice.
    """

    name: str
    trials: tuple[tuple[Parameters, Outcome], ...]
    distance: float = 0.0
    run_id: str = ""
    features: Mapping[str, float] = field(default_factory=dict)
    noise: float | None = None

    @property
    def with_result(self) -> list[tuple[Parameters, Outcome]]:
        """Trials of the past study that have a result."""
        return [trial for trial in self.trials if trial[1].validation_ne is not None]


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """Input of a search method.

    Attributes:
        space: Search space.
        study: Optuna study with all trials, from every method and machine. A method only reads the study; only the
            search writes trials to the study.
        dataset: Data set; a method does not read the validation and test parts.
        execution: Device, precision and batch size of a trial.
        schedule: Longest training of a trial, and its seed.
        directory: Folder for the method's own state, stored as long as the study; the method creates the folder.
        cost: Name of the second objective besides NE; None: NE is the only objective.
        seed: Seed of the method.
        trials: Budget in trials at the start of the search; None: no limit.
        past: Studies of other data sets, the nearest first.
        limits: The user's limits, for a method that can check a point against them before training.
        run_id: MLflow run of the search, for a method that logs to MLflow; None logs nothing.
        clock: Clock of the command.
        should_stop: Function that a method calls while it takes long to find a point; a returned reason ends the
            search.
    """

    space: Space
    study: "Study"
    dataset: Dataset
    execution: Execution
    schedule: Schedule
    directory: Path
    cost: Cost | None = None
    seed: int = 0
    trials: int | None = None
    past: tuple[PastStudy, ...] = ()
    limits: Limits | None = None
    run_id: str | None = None
    clock: RunClock = field(default_factory=RunClock)
    should_stop: ShouldStop | None = None
