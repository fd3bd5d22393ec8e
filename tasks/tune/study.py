"""The study: Optuna's record of the trials in the run's own folder, which outlives the process."""

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from shunter.errors import TrainingError
from tasks.tune.space import SearchSpace

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

FILE = "study.db"
REDUCTION_FACTOR = 3  # as `tasks.select` counts when it sizes the job
FAILURE = "failure"  # attribute of a trial that failed by itself, in contrast to one that was interrupted
RETRY_OF = "retry_of"


def open_study(directory: Path, space: SearchSpace, max_epochs: int) -> "Study":
    """Create the study in `directory`, or go on with it.

    A study of another space is left alone. Trials that a kill or Ctrl-C left open are closed and tried once more; the
    default setting of each family comes first.

    Args:
        directory: of this run alone.
        space: what is searched.
        max_epochs: longest trial, which is Hyperband's largest resource.
    """
    from optuna import create_study
    from optuna.pruners import HyperbandPruner

    directory.mkdir(parents=True, exist_ok=True)
    logging.getLogger("optuna").setLevel(logging.WARNING)  # it would tell on the terminal that it creates a study
    digest = hashlib.sha256(space.model_dump_json().encode()).hexdigest()[:8]
    study = create_study(
        storage=f"sqlite:///{directory.resolve() / FILE}",
        study_name=f"tune-{digest}",
        direction="minimize",
        pruner=HyperbandPruner(min_resource=1, max_resource=max_epochs, reduction_factor=REDUCTION_FACTOR),
        load_if_exists=True,
    )
    if not study.trials:
        for point in space.defaults():
            study.enqueue_trial(point)
    _close_interrupted(study)
    return study


def seeded_sampler(seed: int, finished: int, trials: int) -> "BaseSampler":
    """The tree-structured Parzen estimator that draws the next trial.

    It is seeded for each trial anew, so that a study which was interrupted goes on as it would have. A third of
    the trials is drawn at random first, since Optuna's own ten may be all there are.
    """
    from optuna.samplers import TPESampler

    return TPESampler(seed=(seed * 1_000_003 + finished) % 2**32, n_startup_trials=min(10, max(3, trials // 3)))


def finished_trials(study: "Study") -> "list[FrozenTrial]":
    """Trials that count: complete, pruned, or failed by themselves; an interrupted one is tried again, once."""
    return [trial for trial in study.trials if _has_result(trial) or _failure(trial)]


def trials_with_result(study: "Study") -> "list[FrozenTrial]":
    """Trials that came to at least one validation."""
    return [trial for trial in study.trials if _has_result(trial)]


def lowest_ne(trial: "FrozenTrial") -> float:
    """Lowest validation NE of a trial with a result, in any epoch."""
    return min(trial.intermediate_values.values())


def _close_interrupted(study: "Study") -> None:
    """Mark the trials that a killed process left open as failed, and queue their settings once more."""
    from optuna.trial import TrialState

    for trial in study.get_trials(states=[TrialState.RUNNING]):
        if trial.params and RETRY_OF not in trial.user_attrs:
            study.enqueue_trial(trial.params, user_attrs={RETRY_OF: trial.number})
        study.tell(trial.number, state=TrialState.FAIL)


def failures(study: "Study") -> list[str]:
    """Why trials failed, oldest first."""
    return [reason for trial in study.trials if (reason := _failure(trial))]


def _has_result(trial: "FrozenTrial") -> bool:
    return trial.state.name in {"COMPLETE", "PRUNED"}


def _failure(trial: "FrozenTrial") -> str | None:
    """Why the trial failed; None where it did not, or was interrupted for the first time."""
    if trial.state.name != "FAIL":
        return None
    # Twice ended at the same setting: more likely its fault than chance, so it is not tried a third time.
    twice = "The process ended in it twice." if RETRY_OF in trial.user_attrs else None
    return trial.user_attrs.get(FAILURE, twice)


def check_has_result(study: "Study", stopped_because: str | None) -> None:
    """Raise when there is no setting to go on with.

    Raises:
        TrainingError: every trial failed, or the budget ended before the first one.
    """
    if trials_with_result(study):
        return
    reasons = failures(study)
    if reasons:
        raise TrainingError(f"All {len(reasons)} trials failed, the last one so: {reasons[-1]}")
    raise TrainingError(f"The budget ended before the first trial ({stopped_because}): raise the limits.")
