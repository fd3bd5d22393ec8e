"""Time and energy budget of a search, and its use over all attempts."""

import json
import threading
from collections.abc import Callable
from pathlib import Path

from shunter.checked_json import json_object, read_or_quarantine
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.stopping import EnergyLimit, ShouldStop, StopConditions, StopKind
from shunter.hardware.units import JOULES_PER_KWH
from shunter.search.minutes import Minutes
from shunter.search.protocol import BudgetLeft

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
        self._earlier_joules = _read_joules(self._file)
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


def _read_joules(file: Path) -> float:
    """Return the joules stored by an earlier attempt; 0 if the file is missing or damaged."""
    return read_or_quarantine(file, lambda text: float(json_object(text)["joules"])) or 0.0
