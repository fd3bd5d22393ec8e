"""Timing of small pieces of work with torch."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from shunter.statistics import deciles

if TYPE_CHECKING:
    from shunter.hardware.types import Quantity

FEWEST_REPETITIONS = 3
SECONDS_EACH = 0.25  # length of one profile measurement; twice as long changes medians no more than other load does


def repeat(work: Callable[[], object], device: torch.device, seconds: float) -> list[float]:
    """Return the durations of `work` in seconds, after one warm-up call, for `seconds` but at least three times."""
    durations: list[float] = []
    work()
    synchronize(device)
    begin = time.perf_counter()
    while len(durations) < FEWEST_REPETITIONS or time.perf_counter() - begin < seconds:
        started = time.perf_counter()
        work()
        synchronize(device)
        durations.append(time.perf_counter() - started)
    return durations


def measured_rate(amount: float, durations: Sequence[float]) -> "Quantity":
    """Return `amount` per second: the median of the repetitions, and their 10th and 90th percentile."""
    from shunter.hardware.types import Quantity  # pydantic, which the steps of a bare machine do without

    fast, median, slow = deciles(durations)
    return Quantity(value=amount / median, source="measured", low=amount / slow, high=amount / fast)


def measured_seconds(durations: Sequence[float]) -> "Quantity":
    """Return the median duration of the repetitions, and their 10th and 90th percentile."""
    from shunter.hardware.types import Quantity

    low, median, high = deciles(durations)
    return Quantity(value=median, source="measured", low=low, high=high)


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all submitted work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Use `number` intra-operator threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
