"""Clocks that measure the time of each training step until its end, not until its launch."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from shunter.engine.loop.cuda_graph_step import STEPS_UNTIL_RECORDED


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """Time of one step, in seconds.

    Attributes:
        wait: Wait for the batch, before the step.
        compute: Forward, backward and update.
    """

    wait: float
    compute: float


class StepClock(ABC):
    """Clock that times the steps of one pass over batches; the wait for the first batch counts.

    Attributes:
        warm_up_steps: Number of steps at the start of a training run that take longer than later steps.
    """

    warm_up_steps = 0

    @abstractmethod
    def step(self) -> AbstractContextManager[None]:
        """Return a context that times one step, entered when its batch is ready; a step that raises is not counted."""

    @abstractmethod
    def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
        """Yield each step that has ended and was not yielded yet, in order.

        Args:
            wait: Whether to wait until all steps have ended.
        """

    @abstractmethod
    def resume_after_pause(self) -> None:
        """Exclude the time since the last step, such as that of a validation, from the wait of the next step."""


class HostClock(StepClock):
    """Clock of a CPU, on which a step has ended when its call returns."""

    def __init__(self, waited: Callable[[], float]) -> None:
        self._waited, self._told = waited, waited()
        self._steps: deque[StepSeconds] = deque()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Return a context that times one step, entered when its batch is ready; a step that raises is not counted."""
        started = time.perf_counter()
        yield
        seconds, waited = time.perf_counter() - started, self._waited()
        self._steps.append(StepSeconds(wait=waited - self._told, compute=seconds))
        self._told = waited

    def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
        """Yield each step that has ended and was not yielded yet, in order."""
        while self._steps:
            yield self._steps.popleft()

    def resume_after_pause(self) -> None:
        """Do nothing: a step's wait is the reader's wait for batches, so a pause between steps is never counted."""


class DeviceClock(StepClock):
    """Clock of a GPU, which records the time of events itself, so that the host never waits for the device.

    The wait of a step is the idle time of the device between the previous step and this step, whether the batch or the
    host was late. The time of a slow reader does not count while the device computes.

    Args:
        event: Makes an event with timing, such as `torch.cuda.Event`.
    """

    warm_up_steps = STEPS_UNTIL_RECORDED

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._steps: deque[tuple[Any, Any, Any]] = deque()  # events: end of the previous step, start, end
        self.resume_after_pause()

    @contextmanager
    def step(self) -> Iterator[None]:
        """Return a context that times one step, entered when its batch is ready; a step that raises is not counted."""
        before, started = self._last, self._mark()
        yield
        self._last = self._mark()
        self._steps.append((before, started, self._last))

    def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
        """Yield the times of finished steps, see `StepClock`; without `wait` the last steps come a few steps later."""
        while self._steps and (wait or self._steps[0][2].query()):
            before, started, ended = self._steps.popleft()
            ended.synchronize()
            yield StepSeconds(wait=before.elapsed_time(started) / 1_000, compute=started.elapsed_time(ended) / 1_000)

    def resume_after_pause(self) -> None:
        """Exclude the time since the last step, such as that of a validation, from the wait of the next step."""
        self._last = self._mark()

    def _mark(self) -> Any:
        event = self._event()
        event.record()
        return event


def step_clock(device: torch.device, waited: Callable[[], float]) -> StepClock:
    """Return the clock of a device; a GPU must be the current device (`shunter.engine.loop.step.applied`)."""
    if device.type == "cuda":
        return DeviceClock(lambda: torch.cuda.Event(enable_timing=True))
    return HostClock(waited)
