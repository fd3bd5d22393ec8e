"""Time budget of a search: for the trials only, or for a whole command with the steps before and after the trials.

The time of the steps after the training runs (ensemble, scores, model card, registry) is predicted and reserved.
"""

import math
from dataclasses import replace
from typing import Self

from shunter.engine.stopping import Budget, RunClock, StopKind, StopLimit, StopReason
from shunter.requests.search import SearchRequest

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
        """Reserve a number of seconds for the steps after the training runs.

        Args:
            seconds: Predicted seconds of the steps after the training runs.
            source: Source of the prediction.
        """
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
