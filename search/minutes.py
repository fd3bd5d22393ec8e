"""The minutes of a search, in which all is trained: baselines before its trials, members and seeds after them."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from engine.checkpoint.storage import write_text
from search.used import AROUND, read_used
from shunter.regularly import regularly
from shunter.requests.search import SearchRequest

BASELINES_SHARE = 0.25  # of the minutes that baselines may have
# Of its time that a training may lack and is begun nevertheless: it keeps its best epoch, and the last epochs of most
# only show that nothing better comes.
SLACK = 0.5


class Minutes:
    """How much of its minutes a search has left for the trainings around its trials, over all attempts.

    Args:
        directory: Folder of the search, where what it used is kept.
        most_seconds: Its time; None sets none, and then there is always room.

    Attributes:
        around: Seconds of each step around the trials, those that have ended.
    """

    def __init__(self, directory: Path, most_seconds: float | None) -> None:
        self._directory, self.most_seconds = directory, most_seconds
        self.around, self._searched = read_used(directory).around, 0.0
        self._counting: tuple[str, float, float] | None = None

    @classmethod
    def of(cls, options: SearchRequest, directory: Path) -> Self:
        """Those that a request gives.

        Args:
            options: Options of the search.
            directory: Folder of the search.
        """
        return cls(directory, None if options.search_minutes is None else 60 * options.search_minutes)

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
    def left_seconds(self) -> float:
        """Of the minutes, as asked while it counts; infinite without any."""
        if self.most_seconds is None:
            return math.inf
        return max(0.0, self.most_seconds - self._searched - self.around_seconds)

    def exhausted(self) -> str | None:
        """That they are used up, in one sentence; None while there are some, or none were given."""
        return (
            None
            if self.left_seconds > 0
            else f"The {(self.most_seconds or 0.0) / 60:.4g} minutes of the search are used up."
        )

    def baselines_ended(self) -> str | None:
        """The same of the share that baselines may have."""
        if self.most_seconds is None or self.around_seconds < BASELINES_SHARE * self.most_seconds:
            return None
        return f"Baselines have had {BASELINES_SHARE:.0%} of the {self.most_seconds / 60:.4g} minutes."

    def room_for(self, seconds: float) -> float:
        """How many trainings of so many seconds are begun, one after the other; infinite where they take none."""
        left = self.left_seconds
        return math.inf if math.isinf(left) or seconds <= 0 else math.floor(left / seconds + SLACK)

    def _save(self) -> None:
        write_text(self._directory / AROUND, json.dumps(self._so_far()))

    def _so_far(self) -> dict[str, float]:
        if self._counting is None:
            return self.around
        step, earlier, began = self._counting
        return {**self.around, step: earlier + time.monotonic() - began}


def unlimited() -> Minutes:
    """Those of a search without any."""
    return Minutes(Path(), None)
