"""Remote training, whose messages go to the hooks of this process and which receives orders."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from shunter.engine.executors.checkpoint_files import Files
from shunter.engine.executors.messages import (
    CheckpointSaved,
    ContinueOrder,
    Done,
    EnergyUsed,
    EpochEnded,
    Failed,
    Message,
    Order,
    Progress,
    Stop,
)
from shunter.engine.job import Hooks
from shunter.hardware.types import EnergyReading

GRACE_SECONDS = 60.0  # to save the state after an interrupt


class LostError(Exception):
    """Error raised if the remote training process has ended or cannot be reached, with the `error` for the caller."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Channel(Protocol):
    """Channel that carries messages from a remote training, and orders to it."""

    def receive(self) -> Sequence[Message]:
        """Return the messages since the last call; wait a moment for a message.

        Raises:
            LostError: The remote process is gone.
        """
        ...

    def order(self, order: Order) -> None:
        """Send an order to the remote training process.

        Raises:
            LostError: The remote process is gone.
        """


class RemoteTraining:
    """Remote training in progress.

    Args:
        channel: Channel to the remote training.
        hooks: Functions called in this process; an exception of a hook ends the training and reaches the caller.
        on_energy: Called with the energy used so far.
        on_checkpoint: Called with the files of each new checkpoint, if the training sends them.

    Attributes:
        has_ended: Whether the last message has arrived.
        was_interrupted: Whether the training was ordered to end as by Ctrl-C.
    """

    def __init__(
        self,
        channel: Channel,
        hooks: Hooks,
        *,
        on_energy: Callable[[EnergyReading], None] = lambda reading: None,
        on_checkpoint: Callable[[Files], None] = lambda files: None,
    ) -> None:
        assert hooks.adapt is None, "threads follow the steps in this process only"
        self._line, self._hooks = channel, hooks
        self._on_energy, self._on_checkpoint = on_energy, on_checkpoint
        self._told_to_stop = False
        self.has_ended = self.was_interrupted = False

    def run(self, *, must_save: Callable[[BaseException], bool]) -> Done:
        """Forward messages of the remote training process until its training ends, and return the result.

        Args:
            must_save: Whether the remote training ends with its state saved before an error of this process is raised.

        Raises:
            Exception: Error of the training or of a hook, or the error that describes how the process was lost.
            KeyboardInterrupt: Ctrl-C.
        """
        try:
            last = self._last_message()
        except LostError as lost:
            raise lost.error from lost.__cause__
        except BaseException as error:
            if must_save(error):
                self._end()
            raise
        if isinstance(last, Failed):
            raise last.error
        return last

    def _last_message(self) -> Done | Failed:
        should_stop = self._hooks.should_stop
        while True:
            for message in self._line.receive():
                if isinstance(message, Done | Failed):
                    self.has_ended = True
                    return message
                self._pass_on(message)
            because = should_stop() if should_stop and not self._told_to_stop else None
            if because:
                self._told_to_stop = True
                self._line.order(Stop(because))

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
                self._line.order(ContinueOrder())

    def _end(self) -> None:
        """Order the training to save its state after the current step, and forward its last energy and checkpoint."""
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
