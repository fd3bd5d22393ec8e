"""Monitor that ends a running job, with its state saved, if another placement becomes better."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from shunter.engine.job import Hooks
from shunter.engine.stopping import StopReason

LOOK_SECONDS = 5.0  # interval of the checks for free accelerators


class TrainingProgress(NamedTuple):
    """Progress of a training run at its current placement.

    Attributes:
        share: Finished share of the planned steps, if the training does not stop early.
        seconds_left: Estimated seconds until the end, from the measured steps.
        start_seconds: Seconds from the start to the first step; a move to another placement costs them again.
    """

    share: float
    seconds_left: float
    start_seconds: float


class MoveError(KeyboardInterrupt):
    """Exception that ends a training run after a step with its state saved, for the executor that moves the run."""

    def __init__(self, to: Any) -> None:
        super().__init__(str(to))
        self.to = to


class MoveMonitor:
    """Periodic check for a better placement during a training run, after its first steps.

    Args:
        choose: Returns a better placement, or None to stay, given the progress; called in the thread of the hooks.
    """

    def __init__(self, choose: Callable[[TrainingProgress], Any]) -> None:
        self._choose = choose
        self._began = self._looked_at = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._progress: TrainingProgress | None = None

    def begin(self) -> None:
        """Set the start of the training to now, excluding an earlier wait."""
        self._began = time.monotonic()

    def watching(self, hooks: Hooks) -> Hooks:
        """Return a copy of `hooks` with a periodic check, which raises `MoveError` if a placement is better."""

        def on_step(done: int, total: int) -> None:
            now = time.monotonic()
            if self._first is None:
                self._first = now, done
            elif done > self._first[1] and total:
                at, first = self._first
                left = (now - at) / (done - first) * (total - done)
                self._progress = TrainingProgress(done / total, left, at - self._began)
            if hooks.on_step:
                hooks.on_step(done, total)

        def should_stop() -> StopReason | None:
            now = time.monotonic()
            if self._progress is not None and now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                if (better := self._choose(self._progress)) is not None:
                    raise MoveError(better)
            return hooks.should_stop() if hooks.should_stop else None

        return replace(hooks, on_step=on_step, should_stop=should_stop)
