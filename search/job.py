"""Description of a search."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import read_overrides
from shunter.hardware.cost.residual import StepObservation
from shunter.hardware.types import Placement
from shunter.models.spec import ModelSpec
from shunter.requests import SearchCost, TrainRequest
from shunter.search.constraints import FinalTraining
from shunter.search.minutes import Minutes
from shunter.search.protocol import Cost, Space
from shunter.search.study.halving import checks_for
from shunter.search.study.pair import Pairing

COST_OF_OPTION: dict[SearchCost, Cost] = {
    SearchCost.TIME: "step_seconds",
    SearchCost.ENERGY: "joules_per_sample",
    SearchCost.BYTES: "parameter_bytes",
}


@dataclass(frozen=True, kw_only=True)
class SearchJob:
    """Description of one search.

    Attributes:
        dataset: Data set; its test part is not used.
        request: Budget, method, space and limits of the search, longest training, seed, model family.
        placement: Placement of the trials.
        directory: Folder for this search only; the study is stored there unless the request names a storage.
        parent_run_id: MLflow run that is the parent of each trial's run.
        space: Space to search; None builds the space from the request and the size of the data.
        minutes: Time budget of the search, with the clock of the command; None uses a new clock, stored in `directory`.
        used_seconds: Part of the run's time limit used before the search.
        used_joules: Part of the run's energy limit used before the search.
        checks: Numbers of passes, below 1, after which training runs are compared within the first epoch; None chooses
            the numbers by the size of the data.
        keep: Number of trial models to keep for the ensemble; models from a cluster are copied to this machine.
        seeds: Number of training runs of the best setting with other seeds after the search, one after another, within
            the time of the search.
        observe: Function from the architecture, placement, mean seconds of a step and mean watts of a trial to an
            observation for later predictions. The watts are None if not measured. No observation is recorded if
            `observe` is None or returns None.
        pairing: Placement that one extra trial explores; None: no exploration.
    """

    dataset: Dataset
    request: TrainRequest
    placement: Placement
    directory: Path
    parent_run_id: str
    space: Space | None = None
    minutes: Minutes | None = None
    used_seconds: float = 0.0
    used_joules: float = 0.0
    checks: tuple[float, ...] | None = None
    keep: int = 0
    seeds: int = 0
    observe: Callable[[ModelSpec, Placement, float, float | None], StepObservation | None] | None = None
    pairing: Pairing | None = None

    @property
    def cost(self) -> Cost | None:
        """Second objective besides NE; None: NE is the only objective."""
        cost = self.request.search.search_cost
        return COST_OF_OPTION[cost] if cost else None

    @property
    def schedule(self) -> Schedule:
        """Schedule of the longest training of a trial."""
        # A single setting is not compared with others, so it needs no validation within an epoch.
        is_compared = self.request.search.most_trials != 1
        by_size = checks_for(self.dataset.splits["train"].rows) if is_compared else ()
        fixed = read_overrides(self.request.model, self.request.architecture.settings)
        return Schedule(
            max_epochs=self.request.longest_epochs,
            patience=fixed.patience or Schedule.patience,
            seed=self.request.seed,
            checks=by_size if self.checks is None else self.checks,
            select_by=self.request.training.select_by.value,
        )

    @property
    def final_training(self) -> FinalTraining:
        """Remaining time, energy and money for the full training of the best settings."""
        return FinalTraining.of(self.request, self.used_seconds, self.used_joules)
