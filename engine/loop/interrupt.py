"""Handling of Ctrl-C, SIGTERM and time limits between two training steps instead of within a step."""

import contextvars
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec, TypeVar

from shunter.hardware.devices.openmp import end_waiting_threads

P = ParamSpec("P")
R = TypeVar("R")
PATIENCE_SECONDS = 600.0  # longest wait for the current step; a step that hangs longer is abandoned

ENDING = {signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

_told_to_stop: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar("told_to_stop", default=None)


class SignalRecord:
    """Record of the signals that request the end of this process; without `begin` it is empty.

    An exception that a handler raises can be lost. If Python runs the handler within a finalizer, a callback of a weak
    reference or a callback of a C library, it reports the exception and continues.

    Attributes:
        is_ended: Whether a signal requested the end of the process, as of the last call of `is_end_requested`.
    """

    def __init__(self) -> None:
        self.is_ended = False
        self._reader: int | None = None  # pipe of the numbers of all signals that have a handler

    def begin(self) -> None:
        """Begin the record of this process; forked processes have no record."""
        self._reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._end)

    def _end(self) -> None:
        signal.set_wakeup_fd(-1)
        self._reader = None  # a child would read the signals of its parent

    def is_end_requested(self) -> bool:
        """Return True if a recorded signal requested the end of the process."""
        if self._reader is not None and not self.is_ended:
            try:
                self.is_ended = not ENDING.isdisjoint(os.read(self._reader, 4_096))
            except BlockingIOError:  # no signal since the last call
                return False
        return self.is_ended


RECEIVED = SignalRecord()


def stopped_between_steps(training: Callable[P, R]) -> Callable[P, R]:
    """Decorate a training function so that a signal stops the training after the current step, with its state saved.

    An orchestrator cancels a run by a signal. The orchestrator's signal handler cannot be replaced, and raises an
    exception at any point of the main thread. Within a training step the exception would leave half-updated weights,
    which must not be saved. The training therefore runs in a second thread. The main thread waits for this thread,
    receives the signals, and turns an exception into a request to stop. A second signal does not wait for the step.
    The OpenMP threads of the main thread are ended first, so that the training's OpenMP threads have the cores.

    Called outside the main thread, where Python delivers no signals, the decorated function trains in its caller's
    thread.

    Args:
        training: Function that uses `deferred_interrupt`.
    """

    @functools.wraps(training)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if threading.current_thread() is not threading.main_thread():
            return training(*args, **kwargs)
        result: Future[R] = Future()
        stop, ended = threading.Event(), threading.Event()
        context = contextvars.copy_context()
        context.run(_told_to_stop.set, stop)

        def work() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(context.run(training, *args, **kwargs))
            except BaseException as error:
                result.set_exception(error)
            finally:
                ended.set()

        end_waiting_threads()
        if RECEIVED.is_end_requested():  # by a signal whose exception was lost
            raise KeyboardInterrupt
        try:
            threading.Thread(target=work, name="training", daemon=True).start()
            ended.wait()
        except BaseException as signalled:
            if result.cancel():  # the training had not begun
                raise
            stop.set()
            if not ended.wait(PATIENCE_SECONDS):
                raise
            failure = result.exception()
            raise signalled from failure if isinstance(failure, Exception) else None
        return result.result()

    return run


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Defer the first Ctrl-C until the code checks for it; a second Ctrl-C acts at once.

    Yields:
        A function that raises KeyboardInterrupt after Ctrl-C, or after a stop request from `stopped_between_steps`.

    Outside the main thread Python delivers no Ctrl-C, so the function raises only for `stopped_between_steps`.
    """
    told = _told_to_stop.get()
    pressed = threading.Event() if told is None else told

    def check() -> None:
        if pressed.is_set():
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        check()
        return

    def note(number: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    former = signal.signal(signal.SIGINT, note)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, former)
