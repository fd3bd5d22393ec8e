"""The time of a search: that of its trials, or of a whole command with what comes before, around and after them.

What follows the trainings, the ensemble, its scores, the card and the registry, is predicted, and its time set aside.
"""

import math
from typing import Self

from shunter.engine.stopping import RunClock, StopKind, StopLimit, StopReason
from shunter.requests.search import SearchRequest

TRIALS, BASELINES, MEMBERS = "trials", "baselines", "members"  # spans of the clock; the last is a folder of a run, too
BASELINES_SHARE = 0.25  # of the minutes that baselines may have
# Of the minutes that the rest of the command can take from trials and trainings: without it a long measurement of the
# machine, or an exploration that came to nothing, would leave no time for a first trial.
MOST_OVERHEAD = 0.5
MOST_RESERVED = 0.5  # share of the search's time that seeds of the best setting may have
# Of its time that a training may lack and is begun nevertheless: it keeps its best epoch, and the last epochs of most
# only show that nothing better comes.
SLACK = 0.5


class Minutes:
    """How much of the time of a search is left, over all attempts.

    Args:
        clock: Clock of the command.
        most_seconds: The time; None sets none, and then there is always room.
        of_command: Whether all of the command counts, or trials and trainings alone.

    Attributes:
        ending_seconds: Predicted time of the end of the command.
        ending_from: What that was predicted from.
        reserved_seconds: Time of trainings that follow the trials.
    """

    def __init__(self, clock: RunClock, most_seconds: float | None, *, of_command: bool = False) -> None:
        self.clock, self.most_seconds, self._of_command = clock, most_seconds, of_command
        self.ending_seconds, self.ending_from, self.reserved_seconds = 0.0, "", 0.0

    @classmethod
    def of(cls, options: SearchRequest, clock: RunClock, *, of_command: bool = False) -> Self:
        """Return the time that a request gives.

        Args:
            options: Options of the search.
            clock: Clock of the command.
            of_command: Whether all of the command counts, or trials and trainings alone.
        """
        most_seconds = None if options.search_minutes is None else 60 * options.search_minutes
        return cls(clock, most_seconds, of_command=of_command)

    def set_aside(self, seconds: float, source: str) -> None:
        """Leave the end of the time to what follows the trainings.

        Args:
            seconds: Predicted time of that.
            source: What it was predicted from.
        """
        self.ending_seconds, self.ending_from = seconds, source

    def reserve(self, seconds: float) -> None:
        """Leave the end of the trials' time to trainings that come after them: at most half of it."""
        if self.most_seconds is not None:
            self.reserved_seconds = min(seconds, MOST_RESERVED * self._most_trained(self.most_seconds))

    @property
    def trials_seconds(self) -> float:
        """Seconds used by the trials."""
        return self.clock.seconds_of(TRIALS)

    @property
    def around(self) -> dict[str, float]:
        """Seconds of each step that trains around the trials."""
        return {step: self.clock.seconds_of(step) for step in (BASELINES, MEMBERS)}

    @property
    def around_seconds(self) -> float:
        """Seconds used by what is trained around the trials."""
        return sum(self.around.values())

    @property
    def command_seconds(self) -> float:
        """Seconds used by what is neither a trial nor trained around them."""
        if not self._of_command:
            return 0.0
        return max(0.0, self.clock.seconds - self.trials_seconds - self.around_seconds)

    @property
    def left_seconds(self) -> float:
        """Seconds that are left for trainings; infinite without minutes."""
        if self.most_seconds is None:
            return math.inf
        return max(0.0, self._most_trained(self.most_seconds) - self.trials_seconds - self.around_seconds)

    @property
    def left_for_trials_seconds(self) -> float:
        """Seconds that are left for trials; infinite without minutes."""
        return max(0.0, self._most_for_trials - self.trials_seconds)

    @property
    def left_of_command_seconds(self) -> float:
        """Seconds until the end begins, whatever the rest of the command has taken; infinite without minutes."""
        if self.most_seconds is None:
            return math.inf
        used = self.command_seconds + self.trials_seconds + self.around_seconds
        return self.most_seconds - used - self.ending_seconds

    @property
    def used_share_of_trials(self) -> float:
        """Share of the trials' time that is used; 0 without minutes."""
        return self.trials_seconds / max(self._most_for_trials, 1e-9)

    @property
    def used_up(self) -> StopReason:
        """The reason to stop once the minutes are used up."""
        return StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": (self.most_seconds or 0.0) / 60})

    def exhausted(self) -> StopReason | None:
        """Return the reason to stop once the minutes are used up; None before, and without minutes."""
        return None if self.left_seconds > 0 else self.used_up

    def trials_exhausted(self) -> StopReason | None:
        """Return the reason to stop once the trials have had their time."""
        if self.left_for_trials_seconds > 0:
            return None
        if not self.reserved_seconds:
            return self.used_up
        details = {**self.used_up.details, "reserved_minutes": self.reserved_seconds / 60}
        return StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, details)

    def command_exhausted(self) -> StopReason | None:
        """Return the reason to stop once the whole command has used up its minutes; None before.

        All time outside the trainings counts here, even if it exceeds `MOST_OVERHEAD` of the minutes.
        """
        return None if self.left_of_command_seconds > 0 else self.used_up

    def baselines_ended(self) -> StopReason | None:
        """Return the reason to stop once baselines have used their share."""
        if self.most_seconds is None or self.around_seconds < BASELINES_SHARE * self._most_trained(self.most_seconds):
            return None
        return StopReason(StopKind.SHARE, StopLimit.TIME, {"share": BASELINES_SHARE, "minutes": self.most_seconds / 60})

    def room_for(self, seconds: float) -> float:
        """Return how many trainings of so many seconds are begun in turn; infinite where they take none."""
        left = self.left_seconds
        return math.inf if math.isinf(left) or seconds <= 0 else math.floor(left / seconds + SLACK)

    @property
    def _most_for_trials(self) -> float:
        if self.most_seconds is None:
            return math.inf
        return self._most_trained(self.most_seconds) - self.around_seconds - self.reserved_seconds

    def _most_trained(self, most_seconds: float) -> float:
        """What trials and the steps around them may use of the time that the whole command has."""
        return most_seconds - min(self.command_seconds + self.ending_seconds, MOST_OVERHEAD * most_seconds)


def unlimited() -> Minutes:
    """Return those of a search without any."""
    return Minutes(RunClock(), None)
