"""Timing small pieces of work, with torch alone."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

FEWEST_REPETITIONS = 3
SECONDS_EACH = 0.25  # of a measurement of a profile; twice as long changes no median beyond what neighbours do


def repeat(work: Callable[[], object], device: torch.device, seconds: float) -> list[float]:
    """Durations of `work` in seconds, after one unmeasured call, repeated for `seconds` but at least three times."""
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


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Run with `number` intra-operator threads, then as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
