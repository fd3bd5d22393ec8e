"""Following a training elsewhere: what happens there is passed on to the hooks here, what they want is sent there."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.messages import (
    CheckpointSaved,
    Done,
    EnergyUsed,
    EpochEnded,
    Failed,
    GoOn,
    Message,
    Order,
    Progress,
    Stop,
)
from shunter.engine.job import Hooks
from shunter.hardware.types import EnergyReading

GRACE_SECONDS = 60.0  # to save the state after an interrupt


class LostError(Exception):
    """Whatever trains there is gone.

    Args:
        error: What the one who wanted the training is told.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Line(Protocol):
    """What carries messages from a training and orders to it."""

    def receive(self) -> Sequence[Message]:
        """What it has said since the last call; waits a moment for it to say something.

        Raises:
            LostError: It is gone.
        """
        ...

    def order(self, order: Order) -> None:
        """Tell it something.

        Raises:
            LostError: It is gone.
        """
        ...


class Followed:
    """A training elsewhere while it goes on.

    Args:
        line: To where it trains.
        hooks: Told here what happens there; what one raises ends the training there and reaches the caller.
        on_energy: Called with what it has used so far.
        on_checkpoint: Called with the files of each new checkpoint, where these are sent.

    Attributes:
        has_ended: Whether it has said its last word.
        was_interrupted: Whether it was told to end as by Ctrl-C.
    """

    def __init__(
        self,
        line: Line,
        hooks: Hooks,
        *,
        on_energy: Callable[[EnergyReading], None] = lambda reading: None,
        on_checkpoint: Callable[[Files], None] = lambda files: None,
    ) -> None:
        assert hooks.adapt is None, "threads follow the steps in this process only"
        self._line, self._hooks = line, hooks
        self._on_energy, self._on_checkpoint = on_energy, on_checkpoint
        self._told_to_stop = False
        self.has_ended = self.was_interrupted = False

    def to_the_end(self, *, ends_it: Callable[[BaseException], bool]) -> Done:
        """Follow it to its end.

        Args:
            ends_it: Whether, after an error here, the training there is told to save its state and is waited for.

        Raises:
            Exception: What the training raised, or a hook, or what says how it was lost.
            KeyboardInterrupt: Ctrl-C.
        """
        try:
            last = self._last_word()
        except LostError as lost:
            raise lost.error from lost.__cause__
        except BaseException as error:
            if ends_it(error):
                self._end()
            raise
        if isinstance(last, Failed):
            raise last.error
        return last

    def _last_word(self) -> Done | Failed:
        while True:
            for message in self._line.receive():
                if isinstance(message, Done | Failed):
                    self.has_ended = True
                    return message
                self._pass_on(message)
            self._ask_to_stop()

    def _pass_on(self, message: Message) -> None:
        match message:
            case EnergyUsed(reading):
                self._on_energy(reading)
            case CheckpointSaved(files):
                self._on_checkpoint(files)
            case Progress(done, total):
                if self._hooks.on_step:
                    self._hooks.on_step(done, total)
            case EpochEnded(report):
                if self._hooks.on_epoch:
                    self._hooks.on_epoch(report)
                self._line.order(GoOn())

    def _ask_to_stop(self) -> None:
        should_stop = self._hooks.should_stop
        because = should_stop() if should_stop and not self._told_to_stop else None
        if because:
            self._told_to_stop = True
            self._line.order(Stop(because))

    def _end(self) -> None:
        """Let the training save its state after the current step, and keep what it still says of that."""
        self.was_interrupted = True
        deadline = time.monotonic() + GRACE_SECONDS
        try:
            self._line.order(Stop(None))
            while not self.has_ended and time.monotonic() < deadline:
                for message in self._line.receive():
                    self.has_ended = isinstance(message, Done | Failed)
                    if isinstance(message, EnergyUsed | CheckpointSaved):
                        self._pass_on(message)
        except LostError:
            return
