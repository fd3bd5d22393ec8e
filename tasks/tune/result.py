"""What the step hands on."""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from engine.config import Hyperparameters
from models.spec import ModelSpec
from tasks.tune.space import SearchSpace
from tasks.tune.study import failures, lowest_ne, trials_with_result

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial


class Setting(BaseModel):
    """One setting that was tried, with what it reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: ModelSpec
    hyperparameters: Hyperparameters
    validation_ne: float = Field(description="Lowest NE on the validation part in any epoch.")
    trial_number: int
    is_pruned: bool = Field(description="Whether Hyperband stopped it early, so that it might have come further.")


class TuneResult(BaseModel):
    """The settings that were tried, the best first, and how the search went."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: tuple[Setting, ...] = Field(description="At least one, ranked by validation NE.")
    complete_trials: int
    pruned_trials: int
    failed_trials: int
    resumed_trials: int = Field(description="Trials that an earlier, interrupted attempt had already finished.")
    stopped_because: str | None = Field(description="What ended the search before all trials were made; None if none.")

    @property
    def best(self) -> Setting:
        """The setting with the lowest validation NE."""
        return self.settings[0]


def summarise(study: "Study", space: SearchSpace, *, resumed_trials: int, stopped_because: str | None) -> TuneResult:
    """Rank the trials of a study that has at least one with a result.

    Pruned trials are ranked with the others: training keeps the best epoch's weights, so what a setting reached before
    it was stopped it would have reached in any case.
    """
    settings = sorted(
        (_setting(trial, space) for trial in trials_with_result(study)), key=lambda setting: setting.validation_ne
    )
    pruned = sum(setting.is_pruned for setting in settings)
    return TuneResult(
        settings=tuple(settings),
        complete_trials=len(settings) - pruned,
        pruned_trials=pruned,
        failed_trials=len(failures(study)),
        resumed_trials=resumed_trials,
        stopped_because=stopped_because,
    )


def _setting(trial: "FrozenTrial", space: SearchSpace) -> Setting:
    spec, hyperparameters = space.build(trial.params)
    return Setting(
        spec=spec,
        hyperparameters=hyperparameters,
        validation_ne=lowest_ne(trial),
        trial_number=trial.number,
        is_pruned=trial.state.name == "PRUNED",
    )
