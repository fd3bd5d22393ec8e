"""Time budget of a search: for the trials only, or for a whole command with the steps before and after the trials.

The time of the steps after the training runs (ensemble, scores, model card, registry) is predicted and reserved.
"""

import json
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self

from shunter.checked_json import json_object, read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.stopping import (
    Budget,
    EnergyLimit,
    RunClock,
    ShouldStop,
    StopConditions,
    StopKind,
    StopLimit,
    StopReason,
)
from shunter.hardware.units import JOULES_PER_KWH
from shunter.requests.search import SearchRequest
from shunter.search.protocol import BudgetLeft

TRIALS, BASELINES, MEMBERS = "trials", "baselines", "members"  # spans of the clock; "members" is also a folder of a run
BASELINES_SHARE = 0.25  # largest share of the minutes for baselines
# Largest share of the minutes that the rest of the command can take from trials and training runs. Without this limit a
# long measurement of the machine, or a long exploration, would leave no time for a first trial.
MOST_OVERHEAD = 0.5
MOST_RESERVED = 0.5  # largest share of the search's time for training runs of the best setting with other seeds
# A training run is started even if this share of its expected time is missing. The run keeps its best epoch, and the
# last epochs of most runs bring no improvement.
SLACK = 0.5


class Minutes:
    """Remaining time of a search, over all attempts.

    Args:
        clock: Clock of the command.
        most_seconds: Time limit in seconds; None: no limit.
        of_command: Whether the limit covers the whole command, or only trials and training runs.
        budget: Limits of the request, which also end trials and training runs; None if there are none.

    Attributes:
        ending_seconds: Predicted seconds of the steps after the training runs.
        ending_from: Source of the prediction `ending_seconds`.
        reserved_seconds: Seconds reserved for training runs that follow the trials.
    """

    def __init__(
        self, clock: RunClock, most_seconds: float | None, *, of_command: bool = False, budget: Budget | None = None
    ) -> None:
        self.clock, self.most_seconds, self._of_command, self.budget = clock, most_seconds, of_command, budget
        self.ending_seconds, self.ending_from, self.reserved_seconds = 0.0, "", 0.0

    @classmethod
    def of(
        cls, options: SearchRequest, clock: RunClock, *, of_command: bool = False, budget: Budget | None = None
    ) -> Self:
        """Return the time limit of a request.

        Args:
            options: Options of the search.
            clock: Clock of the command.
            of_command: Whether the whole command counts, or only trials and training runs.
            budget: Limits of the request, which also end trials and training runs; None if there are none.
        """
        most_seconds = None if options.search_minutes is None else 60 * options.search_minutes
        return cls(clock, most_seconds, of_command=of_command, budget=budget)

    @property
    def is_limited(self) -> bool:
        """Return True if minutes or a limit of the request end the training runs."""
        return self.most_seconds is not None or (self.budget is not None and self.budget.is_limited)

    def reserve_seconds(self, seconds: float, source: str) -> None:
        """Reserve predicted seconds for the steps after the training runs; `source` is the source of the prediction."""
        self.ending_seconds, self.ending_from = seconds, source
        if self.budget is not None:
            self.budget.ending_seconds = seconds

    def reserve(self, seconds: float) -> None:
        """Reserve time after the trials for further training runs: at most half of the trials' time."""
        if self.is_limited:
            self.reserved_seconds = min(seconds, MOST_RESERVED * self._most_trained)

    @property
    def trials_seconds(self) -> float:
        """Seconds used by the trials."""
        return self.clock.seconds_of(TRIALS)

    @property
    def around(self) -> dict[str, float]:
        """Seconds of each step that trains models before or after the trials, by the name of the step."""
        return {step: self.clock.seconds_of(step) for step in (BASELINES, MEMBERS)}

    @property
    def around_seconds(self) -> float:
        """Seconds used by training runs before or after the trials."""
        return sum(self.around.values())

    @property
    def command_seconds(self) -> float:
        """Seconds used by everything except trials and the training runs before or after them."""
        if not self._of_command:
            return 0.0
        return max(0.0, self.clock.seconds - self.trials_seconds - self.around_seconds)

    @property
    def left_seconds(self) -> float:
        """Remaining seconds for training runs; infinite without a limit."""
        of_limits = math.inf if self.budget is None else self.budget.left_seconds
        if self.most_seconds is None:
            return of_limits
        beside = min(self.command_seconds + self.ending_seconds, MOST_OVERHEAD * self.most_seconds)
        return max(0.0, min(of_limits, self.most_seconds - beside - self.trials_seconds - self.around_seconds))

    @property
    def left_for_trials_seconds(self) -> float:
        """Remaining seconds for trials; infinite without a limit."""
        return max(0.0, self.left_seconds - self.reserved_seconds)

    @property
    def left_of_command_seconds(self) -> float:
        """Seconds until the steps after the training runs must begin, within the limit of the whole command.

        Infinite without a limit.
        """
        of_limits = math.inf if self.budget is None else self.budget.left_seconds
        if self.most_seconds is None:
            return of_limits
        used = self.command_seconds + self.trials_seconds + self.around_seconds
        return min(of_limits, self.most_seconds - used - self.ending_seconds)

    @property
    def used_share_of_trials(self) -> float:
        """Share of the time for trials that is used, from 0 to 1; 0 without a limit."""
        return self.trials_seconds / max(self.trials_seconds + self.left_for_trials_seconds, 1e-9)

    @property
    def used_up(self) -> StopReason:
        """Reason to stop once the minutes, or the limit of the request that is reached first, are used up."""
        if self.budget is not None and self.budget.is_limited and self.budget.left_seconds <= self.left_seconds:
            return self.budget.first_limit
        return StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": (self.most_seconds or 0.0) / 60})

    def exhausted(self) -> StopReason | None:
        """Return the reason to stop once the minutes are used up; None before, and without a limit."""
        return None if self.left_seconds > 0 else self.used_up

    def trials_exhausted(self) -> StopReason | None:
        """Return the reason to stop once the time of the trials is used up; None before."""
        if self.left_for_trials_seconds > 0:
            return None
        reason = self.used_up
        if not self.reserved_seconds or reason.kind is StopKind.LIMIT:
            return reason
        return replace(reason, details={**reason.details, "reserved_minutes": self.reserved_seconds / 60})

    def command_exhausted(self) -> StopReason | None:
        """Return the reason to stop once the whole command has used up its minutes; None before.

        All time outside the training runs counts; `left_seconds` counts at most `MOST_OVERHEAD` of the minutes.
        """
        return None if self.left_of_command_seconds > 0 else self.used_up

    def baselines_ended(self) -> StopReason | None:
        """Return the reason to stop once baselines have used `BASELINES_SHARE` of the training time; None before."""
        if not self.is_limited or self.around_seconds < BASELINES_SHARE * self._most_trained:
            return None
        minutes = (self.most_seconds or self._most_trained) / 60
        return StopReason(StopKind.SHARE, StopLimit.TIME, {"share": BASELINES_SHARE, "minutes": minutes})

    def room_for(self, seconds: float) -> float:
        """Return how many consecutive training runs of this duration fit into the time; infinite for duration 0."""
        left = self.left_seconds
        return math.inf if math.isinf(left) or seconds <= 0 else math.floor(left / seconds + SLACK)

    @property
    def _most_trained(self) -> float:
        """Seconds that trials, and training runs before or after them, have used and may still use."""
        return self.left_seconds + self.trials_seconds + self.around_seconds


def unlimited() -> Minutes:
    """Return `Minutes` without a limit."""
    return Minutes(RunClock(), None)


FILE = "used.json"  # in the folder of a search: joules used by its trials


class BudgetMeter:
    """Time and energy of the trials of a search, in this attempt and in earlier, interrupted attempts.

    This budget limits the search only; `shunter.engine.stopping.Budget` applies the user's limits to the whole run.

    Args:
        directory: Folder of the search, where the used joules are stored.
        minutes: Time of the search.
        joules: Function that returns the joules of this attempt so far; None if no meter works.
        max_kwh: Largest energy of the search, in kilowatt hours; None: no limit.
    """

    def __init__(
        self, directory: Path, minutes: Minutes, joules: Callable[[], float | None], *, max_kwh: float | None = None
    ) -> None:
        self._file, self._joules, self.minutes = directory / FILE, joules, minutes
        # Joules stored by an earlier attempt; 0 if the file is missing or damaged.
        self._earlier_joules = read_or_quarantine(self._file, lambda text: float(json_object(text)["joules"])) or 0.0
        self._saving = threading.Lock()
        self.max_joules = None if max_kwh is None else max_kwh * JOULES_PER_KWH
        stop = StopConditions(minutes.clock, (minutes.trials_exhausted,))
        if self.max_joules is not None:
            kind, used = StopKind.SEARCH_BUDGET, lambda: self.joules
            stop = stop.also(EnergyLimit(minutes.clock, kind, used, self.max_joules, settle_seconds=0.0))
        self.exhausted: ShouldStop = stop.check

    @property
    def seconds(self) -> float:
        """Seconds that the search has used so far."""
        return self.minutes.trials_seconds

    @property
    def joules(self) -> float | None:
        """Joules used so far; None if no meter works."""
        joules = self._joules()
        return None if joules is None else self._earlier_joules + joules

    @property
    def share(self) -> float:
        """Used share of the time or of the energy budget, whichever is larger; 0 without a budget."""
        energy = 0.0 if self.max_joules is None else (self.joules or 0.0) / self.max_joules
        return max(self.minutes.used_share_of_trials, energy)

    def left(self, trials: int | None) -> BudgetLeft:
        """Return the remaining budget of the search; `trials` is the number of trials that may still begin."""
        joules = self.joules if self.max_joules is not None else None
        return BudgetLeft(
            trials=trials,
            seconds=self.minutes.left_for_trials_seconds if self.minutes.is_limited else None,
            joules=None if self.max_joules is None else max(0.0, self.max_joules - (joules or 0.0)),
        )

    def time_is_up(self) -> bool:
        """Return True if the time of the trials is used up."""
        return self.minutes.trials_exhausted() is not None

    def save(self) -> None:
        """Store the energy used so far, so that a resumed search counts it; may be called from any thread.

        Raises:
            CheckpointError: The file cannot be written, for instance because the disk is full.
        """
        with self._saving:
            joules = self.joules
            write_json(self._file, json.dumps({"joules": self._earlier_joules if joules is None else joules}))
