"""How long each step of a flow takes, and what is in no step."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from shunter.engine.stopping import RunClock
from shunter.masked_console import Console
from shunter.quiet import is_quiet
from shunter.tasks.progress_line import is_drawn, progress_line

START, OTHER = "start", "other"


class StepClock:
    """Wall-clock seconds of each step of this attempt; prints a line per step where no moving line shows them.

    Args:
        before: Seconds that the process has spent for this run already, on its own start and its imports.
        now: Clock in seconds.

    Attributes:
        command: Clock of the command, which conditions to stop read; it leaves out waits for other trainings.
        seconds: Seconds of each step.
    """

    def __init__(self, before: float = 0.0, now: Callable[[], float] = time.perf_counter) -> None:
        self.seconds: dict[str, float] = {}
        self.command = RunClock(before, now)
        self._now = now
        self._began = now() - before
        self._console = Console(stderr=True, highlight=False, quiet=is_quiet())
        if before:
            self._add(START, before)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time the block under `name`; steps do not overlap."""
        started = self._now()
        with progress_line(name):
            yield
        self._add(name, self._now() - started)

    def account(self) -> dict[str, float]:
        """Seconds of each step, and as `other` what was in none: together the wall clock since the process began."""
        return {**self.seconds, OTHER: self._now() - self._began - sum(self.seconds.values())}

    def _add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds  # a step is taken again after an exploration
        if not is_drawn(self._console):
            self._console.print(f"{name:<10}{seconds:7.1f} s")
