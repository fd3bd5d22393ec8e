"""What a search method may know of the search it serves, and of the searches before it."""

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
    """An earlier search.

    Attributes:
        name: Name of its data.
        trials: Points, in the terms of its own space, with their outcomes; at least one has a result.
        distance: Distance of its data from the present data; 0 for the same data.
        run_id: Its MLflow run; empty if it does not come from there.
        features: Meta-features of its data; empty if they are not known.
        noise: Standard deviation of its loss from seed to seed; None where no setting was trained twice.
    """

    name: str
    trials: tuple[tuple[Parameters, Outcome], ...]
    distance: float = 0.0
    run_id: str = ""
    features: Mapping[str, float] = field(default_factory=dict)
    noise: float | None = None

    @property
    def with_result(self) -> list[tuple[Parameters, Outcome]]:
        """The trials that came to a result."""
        return [trial for trial in self.trials if trial[1].validation_ne is not None]


@dataclass(frozen=True, kw_only=True)
class SearchContext:
    """What a method may know of the search it serves.

    Attributes:
        space: Space that is searched.
        study: Record of all trials, whichever method or machine proposed them. A method reads it; the search alone
            writes trials to it.
        dataset: The data; a method leaves its validation and test parts alone.
        execution: Device, precision and batch of a trial.
        schedule: Longest training of a trial, and its seed.
        directory: Folder of the method's own state, which lasts as long as the study's; the method creates it.
        cost: Cost that NE is weighed against; None searches for the lowest NE alone.
        seed: Seed of the method.
        trials: Budget in trials at the start of the search; None sets none.
        past: Studies of other data sets, the nearest first.
        limits: The user's limits, for a method that can tell before training that a point breaks one.
        run_id: MLflow run of the search, for a method that logs to it; None logs nothing.
        clock: Clock of the command.
        should_stop: Asked by a method that takes long to find a point; a reason ends the search.
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
