"""What a search may use, and what it has used, over all its attempts."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from shunter.engine.checkpoint.storage import write_json
from shunter.engine.stopping import ENERGY_INTERVAL_SECONDS, StopKind, StopLimit, StopReason
from shunter.hardware.units import JOULES_PER_KWH
from shunter.requests.search import SearchRequest
from shunter.search.protocol import BudgetLeft
from shunter.search.used import FILE, read_used

MOST_RESERVED = 0.5  # share of the search's time that seeds of the best setting may have


class SearchBudget:
    """Time and energy of a search: those of this attempt, and of the earlier ones of an interrupted search.

    It bounds the search alone; `shunter.engine.stopping.Budget` bounds the whole run by the user's limits.

    Args:
        directory: Folder of the search, where what it used is kept.
        joules: Function that returns the joules of this attempt so far; None where no meter works.
        max_seconds: Longest time of the search; None sets none.
        max_joules: Most energy of the search; None sets none.
    """

    def __init__(
        self,
        directory: Path,
        joules: Callable[[], float | None],
        *,
        max_seconds: float | None = None,
        max_joules: float | None = None,
    ) -> None:
        self._file = directory / FILE
        self._joules = joules
        self.max_seconds, self.max_joules = max_seconds, max_joules
        self.reserved_seconds = 0.0
        self._earlier = read_used(directory)
        self._began = time.monotonic()
        self._asked_at = -ENERGY_INTERVAL_SECONDS
        self._answer: StopReason | None = None
        self._saving = threading.Lock()

    @classmethod
    def of(cls, options: SearchRequest, directory: Path, joules: Callable[[], float | None]) -> Self:
        """The budget that a request gives the search alone.

        Args:
            options: Options of the search.
            directory: Folder of the search.
            joules: Function that returns the joules of this attempt so far; None where no meter works.
        """
        return cls(
            directory,
            joules,
            max_seconds=None if options.search_minutes is None else options.search_minutes * 60,
            max_joules=None if options.search_kwh is None else options.search_kwh * JOULES_PER_KWH,
        )

    @property
    def seconds(self) -> float:
        """Used so far."""
        return self._earlier.seconds + time.monotonic() - self._began

    @property
    def joules(self) -> float | None:
        """Used so far; None where no meter works."""
        joules = self._joules()
        return None if joules is None else self._earlier.joules + joules

    def reserve(self, seconds: float) -> None:
        """Leave the end of the time to trainings that come after the trials: at most half of it."""
        if self.max_seconds is not None:
            self.reserved_seconds = min(seconds, MOST_RESERVED * self._earlier.most_seconds(self.max_seconds))

    @property
    def share(self) -> float:
        """Of the time or the energy that is used, whichever is nearer to its end; 0 without a budget."""
        times = 0.0
        if self.max_seconds is not None:
            times = self.seconds / max(self._seconds_of_trials(self.max_seconds), 1e-9)
        energy = 0.0 if self.max_joules is None else (self.joules or 0.0) / self.max_joules
        return max(times, energy)

    def left(self, trials: int | None) -> BudgetLeft:
        """What a method is told; `trials` are those that are left."""
        joules = self.joules if self.max_joules is not None else None
        return BudgetLeft(
            trials=trials,
            seconds=None if self.max_seconds is None else self._seconds_left(self.max_seconds),
            joules=None if self.max_joules is None else max(0.0, self.max_joules - (joules or 0.0)),
        )

    def time_is_up(self) -> bool:
        """Whether the trials have had their time."""
        return self.max_seconds is not None and self._seconds_left(self.max_seconds) == 0

    def exhausted(self) -> StopReason | None:
        """Return the part that is used up; cheap enough to call after each step."""
        if self.time_is_up() and self.max_seconds is not None:
            details: dict[str, float | str] = {"minutes": self.max_seconds / 60}
            if self.reserved_seconds:
                details["reserved_minutes"] = self.reserved_seconds / 60
            return StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, details)
        now = time.monotonic()
        if self.max_joules is not None and now - self._asked_at >= ENERGY_INTERVAL_SECONDS:
            self._asked_at, self._answer = now, self._judge_energy(self.max_joules)
        return self._answer

    def save(self) -> None:
        """Keep what was used, for an attempt after a kill; any thread may.

        Raises:
            CheckpointError: It cannot be written, for instance because the disk is full.
        """
        with self._saving:
            joules = self.joules
            kept = self._earlier.joules if joules is None else joules
            write_json(self._file, json.dumps({"seconds": self.seconds, "joules": kept}))

    def _seconds_left(self, most: float) -> float:
        return max(0.0, self._seconds_of_trials(most) - self.seconds)

    def _seconds_of_trials(self, most: float) -> float:
        """What is theirs of the time: not what went before them, nor what is left to what follows."""
        return self._earlier.most_seconds(most) - self._earlier.around_seconds - self.reserved_seconds

    def _judge_energy(self, most: float) -> StopReason | None:
        details: dict[str, float | str] = {"kwh": most / JOULES_PER_KWH}
        used = self.joules
        if used is None:  # a budget that nothing can measure ends the search at once
            details["unavailable"] = "no meter of energy works here"
        elif used < most:
            return None
        return StopReason(StopKind.SEARCH_BUDGET, StopLimit.ENERGY, details)
