"""Trial that explores a placement: it repeats the setting and seed of another trial at another placement.

Both trials differ in the placement only, so their times, passes and NE compare the placements. A search of several
trials runs one additional exploring trial at the end. In a search of one trial, this trial itself explores. It is
repeated at the incumbent placement if its time runs out or its quality misses a limit.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from shunter.engine.config import Hyperparameters
from shunter.engine.executors.role import Executor
from shunter.engine.executors.this_machine import ThisMachine
from shunter.engine.stopping import RunClock, ShouldStop, StopKind, StopLimit, StopReason, time_limit
from shunter.hardware.devices.power_limit import limited
from shunter.hardware.types import Placement
from shunter.search.space.learning import rate_scale
from shunter.search.study.interrupted import PAIR, was_interrupted
from shunter.search.study.storage import finished_trials, has_result, lowest_loss, outcome_of
from shunter.tracking.evidence import PairedTrial

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

OUT_OF_TIME = "out_of_time"  # attribute of an exploring trial that was stopped by its time limit


@dataclass(frozen=True)
class Pairing:
    """Placement that one extra trial of a search explores.

    Attributes:
        placement: Placement of the extra trial.
        stop_multiple: Longest time of the extra trial, as a multiple of the time of the repeated trial.
        first_seconds: Longest time in seconds of the only trial of a search, which explores; `placement` is then the
            incumbent. None if an extra trial explores.
    """

    placement: Placement
    stop_multiple: float
    first_seconds: float | None = None

    def base(self, study: "Study", trials: int | None) -> "FrozenTrial | None":
        """Return the trial to repeat now; None if no trial can be repeated yet, or the extra trial has begun.

        `trials` is the requested number, None if only time or energy ends the search.
        """
        known = [trial for trial in study.get_trials(deepcopy=False) if not was_interrupted(trial)]
        if any(PAIR in trial.user_attrs for trial in known):
            return None
        ended = finished_trials(study)
        if trials is not None and (len(ended) < trials or any(one.state.name == "RUNNING" for one in known)):
            return None
        if self.first_seconds is not None:
            # The exploring trial was stopped by its time limit, failed, or exceeds a limit of the user.
            failed = (one for one in ended if OUT_OF_TIME in one.user_attrs or not outcome_of(one).is_feasible)
            return next(failed, None)
        complete = [trial for trial in ended if trial.state.name == "COMPLETE"]
        if trials is None:
            return complete[0] if complete else None
        return min(complete, key=lowest_loss, default=None)

    def limit(self, clock: RunClock, base: "FrozenTrial | None") -> ShouldStop | None:
        """Return the time limit of a trial as a stop condition; None for a trial that does not explore.

        `base` is the trial that it repeats, None for a trial of the search itself.
        """
        if (base is None) != (self.first_seconds is not None):
            return None
        return self.bound(clock, base.user_attrs["seconds"] if base else 0.0)

    def bound(self, clock: RunClock, base_seconds: float) -> ShouldStop:
        """Return the time limit of the exploring trial as a stop condition.

        Args:
            clock: Clock of the command.
            base_seconds: Time of the repeated trial; not used if the exploring trial is the first.
        """
        seconds = self.first_seconds or self.stop_multiple * base_seconds
        reason = StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": self.stop_multiple})
        return time_limit(clock, StopKind.EXPLORATION, seconds, reason)

    @contextmanager
    def executor(self) -> Iterator[Executor]:
        """Open an executor at the placement of the exploring trial, under its power limit."""
        executor = ThisMachine().executor(self.placement)
        try:
            with limited(self.placement.accelerator, self.placement.power_limit_watts):
                yield executor
        finally:
            executor.close()


@dataclass(frozen=True)
class Repeated:
    """Attributes that connect an exploring trial in the study with the trial that it repeats.

    Attributes:
        number: Number of the repeated trial.
        placement: Placement of the exploring trial.
        beside: Placement of the repeated trial.
    """

    number: int
    placement: Placement
    beside: Placement

    @classmethod
    def of(cls, trial: "Trial | FrozenTrial") -> Self | None:
        """Return the record in the attributes of an exploring trial; None if the trial repeats no other trial."""
        kept = trial.user_attrs.get(PAIR)
        if kept is None:
            return None
        return cls(kept["of"], Placement.model_validate(kept["placement"]), Placement.model_validate(kept["beside"]))

    def attributes(self) -> dict[str, Any]:
        """Return this record as Optuna user attributes of the exploring trial."""
        names = {"placement": self.placement, "beside": self.beside}
        return {PAIR: {"of": self.number, **{name: one.model_dump(mode="json") for name, one in names.items()}}}

    def adapted(self, hyperparameters: Hyperparameters) -> Hyperparameters:
        """Return the hyperparameters with learning rates that are scaled to the batch size of the exploring trial."""
        scale = rate_scale(self.placement.batch_size) / rate_scale(self.beside.batch_size)
        return replace(
            hyperparameters,
            dense_learning_rate=scale * hyperparameters.dense_learning_rate,
            embedding_learning_rate=scale * hyperparameters.embedding_learning_rate,
        )


def pair_of(study: "Study") -> PairedTrial | None:
    """Return the comparison of the exploring trial with the repeated trial; None unless both have results."""
    trials = {trial.number: trial for trial in study.get_trials(deepcopy=False) if has_result(trial)}
    for trial in trials.values():
        repeated = Repeated.of(trial)
        if repeated is None or repeated.number not in trials:
            continue
        first, second = trials[repeated.number], trial
        placements = repeated.beside, repeated.placement
        if OUT_OF_TIME in first.user_attrs:  # the first trial explored
            first, second, placements = second, first, (placements[1], placements[0])
        one, other = outcome_of(first), outcome_of(second)
        if not (one.epochs and other.epochs and one.seconds and other.seconds):
            return None
        assert one.validation_ne is not None
        assert other.validation_ne is not None
        return PairedTrial(
            placement=placements[1],
            beside=placements[0],
            seconds=other.seconds,
            seconds_ratio=other.seconds / one.seconds,
            epochs_ratio=other.epochs / one.epochs,
            ne_ratio=other.validation_ne / one.validation_ne,
            is_stopped=OUT_OF_TIME in second.user_attrs,
        )
    return None
