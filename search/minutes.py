"""The minutes of a command, in which all is done: start and choice, baselines, trials, members and seeds, and the end.

What follows the trainings, the ensemble, its scores, the card and the registry, is foreseen, and its time set aside.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from shunter.engine.checkpoint.storage import write_json
from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.regularly import regularly
from shunter.requests.search import SearchRequest
from shunter.search.used import AROUND, COMMAND, read_used

BASELINES_SHARE = 0.25  # of the minutes that baselines may have
# Of its time that a training may lack and is begun nevertheless: it keeps its best epoch, and the last epochs of most
# only show that nothing better comes.
SLACK = 0.5


class Minutes:
    """How much of the minutes of a command is left for the trainings around its trials, over all attempts.

    Args:
        directory: Folder of the search, where what it used is kept.
        most_seconds: The time of the command; None sets none, and then there is always room.
        elapsed: Seconds of this attempt since its process began; None counts trials and trainings alone.

    Attributes:
        around: Seconds of each step around the trials, those that have ended.
        ending_seconds: What the end of the command is foreseen to take.
        ending_from: What that was foreseen from.
    """

    def __init__(self, directory: Path, most_seconds: float | None, elapsed: Callable[[], float] | None = None) -> None:
        self._directory, self.most_seconds, self._elapsed = directory, most_seconds, elapsed
        self._earlier = read_used(directory)
        self.around, self._searched = self._earlier.around, self._earlier.seconds
        self._counting: tuple[str, float, float] | None = None
        self.ending_seconds, self.ending_from = self._earlier.ending, ""

    @classmethod
    def of(cls, options: SearchRequest, directory: Path, elapsed: Callable[[], float] | None = None) -> Self:
        """Those that a request gives.

        Args:
            options: Options of the search.
            directory: Folder of the search.
            elapsed: Seconds of this attempt since its process began.
        """
        return cls(directory, None if options.search_minutes is None else 60 * options.search_minutes, elapsed)

    def set_aside(self, seconds: float, source: str) -> None:
        """Leave the end of the time to what follows the trainings.

        Args:
            seconds: What that is foreseen to take.
            source: From what.
        """
        self.ending_seconds, self.ending_from = seconds, source

    def keep(self) -> None:
        """Write down what was used, so that the trials know what went before them; nothing without minutes.

        Raises:
            CheckpointError: It cannot be written, for instance because the disk is full.
        """
        if self.most_seconds is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._searched = read_used(self._directory).seconds
            self._save()

    @contextmanager
    def counted(self, step: str) -> Iterator[None]:
        """Count the time of the block, a kill in it included; nothing without minutes.

        Args:
            step: Name under which it is kept.

        Raises:
            CheckpointError: It cannot be written, for instance because the disk is full.
        """
        if self.most_seconds is None:
            yield
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        self._searched = read_used(self._directory).seconds
        self._counting = step, self.around.get(step, 0.0), time.monotonic()
        try:
            with regularly(self._save):
                yield
        finally:
            self.around, self._counting = self._so_far(), None
            self._save()

    @property
    def around_seconds(self) -> float:
        """Used by what is trained around the trials."""
        return sum(self._so_far().values())

    @property
    def command_seconds(self) -> float:
        """Used by what is neither a trial nor trained around them."""
        if self._elapsed is None:
            return self._earlier.command
        here = self._searched + self.around_seconds - self._earlier.seconds - self._earlier.around_seconds
        return self._earlier.command + max(0.0, self._elapsed() - here)

    @property
    def left_seconds(self) -> float:
        """Of the minutes, as asked while it counts; infinite without any."""
        if self.most_seconds is None:
            return math.inf
        return max(0.0, self._most_trained(self.most_seconds) - self._searched - self.around_seconds)

    @property
    def left_of_command_seconds(self) -> float:
        """Until the end is to begin, whatever the rest of the command has taken; infinite without minutes."""
        if self.most_seconds is None:
            return math.inf
        used = self.command_seconds + self._searched + self.around_seconds
        return self.most_seconds - used - self.ending_seconds

    @property
    def used_up(self) -> StopReason:
        """The reason to stop once they are used up."""
        return StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": (self.most_seconds or 0.0) / 60})

    def exhausted(self) -> StopReason | None:
        """Return the reason to stop once the minutes are used up; None before, and without minutes."""
        return None if self.left_seconds > 0 else self.used_up

    def command_exhausted(self) -> StopReason | None:
        """The same, with all of start and end counted, however long they take."""
        return None if self.left_of_command_seconds > 0 else self.used_up

    def baselines_ended(self) -> StopReason | None:
        """Return the reason to stop once baselines have used their share."""
        if self.most_seconds is None:
            return None
        if self.around_seconds < BASELINES_SHARE * self._most_trained(self.most_seconds):
            return None
        details = {"share": BASELINES_SHARE, "minutes": self.most_seconds / 60}
        return StopReason(StopKind.SHARE, StopLimit.TIME, details)

    def room_for(self, seconds: float) -> float:
        """How many trainings of so many seconds are begun, one after the other; infinite where they take none."""
        left = self.left_seconds
        return math.inf if math.isinf(left) or seconds <= 0 else math.floor(left / seconds + SLACK)

    def _most_trained(self, most_seconds: float) -> float:
        whole = replace(self._earlier, command=self.command_seconds, ending=self.ending_seconds)
        return whole.most_seconds(most_seconds)

    def _save(self) -> None:
        write_json(self._directory / AROUND, json.dumps(self._so_far()))
        if self._elapsed is not None:
            rest = {"command": self.command_seconds, "ending": self.ending_seconds}
            write_json(self._directory / COMMAND, json.dumps(rest))

    def _so_far(self) -> dict[str, float]:
        if self._counting is None:
            return self.around
        step, earlier, began = self._counting
        return {**self.around, step: earlier + time.monotonic() - began}


def unlimited() -> Minutes:
    """Those of a search without any."""
    return Minutes(Path(), None)
