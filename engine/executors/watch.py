"""Looks, while a training runs, whether it would be better off elsewhere, and ends it with its state saved if so."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from shunter.engine.job import Hooks
from shunter.engine.stopping import StopReason

LOOK_SECONDS = 5.0  # between two looks at what is free


class Going(NamedTuple):
    """How a training goes where it is.

    Attributes:
        share: Share of its longest schedule that is done.
        seconds_left: That the rest takes, by the steps seen here.
        start_seconds: From its start here to its first step, which a move costs once more.
    """

    share: float
    seconds_left: float
    start_seconds: float


class MoveError(KeyboardInterrupt):
    """Ends a training after a step, with its state saved, and goes no further than who moves it.

    Args:
        to: Where it goes on.
    """

    def __init__(self, to: Any) -> None:
        super().__init__(str(to))
        self.to = to


class Watch:
    """Asks while a training runs; in its first steps nothing is known.

    Args:
        choose: Says where it should go on instead, None to stay; called in the thread that follows the training.
    """

    def __init__(self, choose: Callable[[Going], Any]) -> None:
        self._choose = choose
        self._began = self._looked_at = time.monotonic()
        self._first: tuple[float, int] | None = None
        self._going: Going | None = None

    def begin(self) -> None:
        """Its start counts from now on: until now it waited."""
        self._began = time.monotonic()

    def watching(self, hooks: Hooks) -> Hooks:
        """The hooks of the training, with a look now and then; they raise `MoveError`."""

        def on_step(done: int, total: int) -> None:
            self._note(done, total)
            if hooks.on_step:
                hooks.on_step(done, total)

        def should_stop() -> StopReason | None:
            self._look()
            return hooks.should_stop() if hooks.should_stop else None

        return replace(hooks, on_step=on_step, should_stop=should_stop)

    def _note(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now, done
            return
        at, first = self._first
        if done > first and total:
            left = (now - at) / (done - first) * (total - done)
            self._going = Going(done / total, left, at - self._began)

    def _look(self) -> None:
        now = time.monotonic()
        if self._going is None or now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        better = self._choose(self._going)
        if better is not None:
            raise MoveError(better)
