"""How long each step of a training takes: until it has ended, not until it was launched."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from shunter.engine.loop.recorded_step import STEPS_UNTIL_RECORDED


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """Where the time of one step went.

    Attributes:
        wait: before it, for its batch.
        compute: forward, backward and update.
    """

    wait: float
    compute: float


class StepClock(ABC):
    """Times the steps of one pass over batches, and waits for its first batch from the start.

    Attributes:
        warm_up_steps: How many of a training's first steps take longer than those that follow.
    """

    warm_up_steps = 0

    @abstractmethod
    def step(self) -> AbstractContextManager[None]:
        """Around a step whose batch is there; one that raises an exception does not count."""

    @abstractmethod
    def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
        """Each step that has ended and was not given yet, in order.

        Args:
            wait: until all have ended.
        """

    @abstractmethod
    def go_on(self) -> None:
        """What happened since the last step, such as a validation, is part of none."""


class HostClock(StepClock):
    """Of a processor, on which a step has ended when its call returns.

    Args:
        waited: Seconds that were waited for batches so far.
    """

    def __init__(self, waited: Callable[[], float]) -> None:
        self._waited, self._told = waited, waited()
        self._steps: deque[StepSeconds] = deque()

    @contextmanager
    def step(self) -> Iterator[None]:
        """See `StepClock`."""
        started = time.perf_counter()
        yield
        seconds, waited = time.perf_counter() - started, self._waited()
        self._steps.append(StepSeconds(wait=waited - self._told, compute=seconds))
        self._told = waited

    def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
        """See `StepClock`."""
        while self._steps:
            yield self._steps.popleft()

    def go_on(self) -> None:
        """See `StepClock`; the reader counts only what is waited for."""


class DeviceClock(StepClock):
    """Of a GPU, which takes the time itself when it comes to an event, so that the host never waits for it.

    A step waits as long as the device stands still between the step before and this one, whether the batch was not
    there or the host was late; a reader that is slow while the device computes costs nothing.

    Args:
        event: makes an event with the time, as `torch.cuda.Event`.
    """

    warm_up_steps = STEPS_UNTIL_RECORDED

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._steps: deque[tuple[Any, Any, Any]] = deque()  # end of the step before, start and end
        self.go_on()

    @contextmanager
    def step(self) -> Iterator[None]:
        """See `StepClock`."""
        before, started = self._last, self._mark()
        yield
        self._last = self._mark()
        self._steps.append((before, started, self._last))

    def finished(self, *, wait: bool = False) -> Iterator[StepSeconds]:
        """See `StepClock`; without `wait` the host only asks, and the last steps are told a few steps later."""
        while self._steps and (wait or self._steps[0][2].query()):
            before, started, ended = self._steps.popleft()
            ended.synchronize()
            yield StepSeconds(wait=before.elapsed_time(started) / 1_000, compute=started.elapsed_time(ended) / 1_000)

    def go_on(self) -> None:
        """See `StepClock`."""
        self._last = self._mark()

    def _mark(self) -> Any:
        event = self._event()
        event.record()
        return event


def step_clock(device: torch.device, waited: Callable[[], float]) -> StepClock:
    """The clock of a device, which is the current one where it is a GPU (`shunter.engine.loop.step.applied`).

    Args:
        device: Device of the steps.
        waited: Seconds that were waited for batches so far.
    """
    if device.type == "cuda":
        return DeviceClock(lambda: torch.cuda.Event(enable_timing=True))
    return HostClock(waited)
