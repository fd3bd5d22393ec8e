"""Stalls from measured steps: differences of runs, and their statistical significance.

T1, T1g, T2 to T7 are the step times of the runs S1, S1g, S2 to S7 (`shunter.extensions.stalls.plan.RUNS`).


    interconnect  I = T2 - T1      of it: contention T1g - T1, all-reduce T6 - T1g, embedding exchange A = T2 - T6
    prep          P = T4 - T2      reading and assembling batches, as far as prefetching does not hide it
    fetch         F = T3 - T4      additional time of reading from disk
    network       N = T5 - T2      between machines, simulated
    slow memory   M = T7 - T1      embedding tables in a file, with a cache of rows in memory

The differences satisfy T1 + I + P + F = T3. With one device P is T4 - T1. A run's time T is the median over rounds of
the mean of its steps: stalls occur in few long steps, which a median over the steps would hide.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from shunter.extensions.stalls.plan import StallMeasurements
from shunter.frozen import Frozen
from shunter.statistics import central_interval

StallName = Literal[
    "interconnect", "contention", "all_reduce", "embedding_exchange", "prep", "fetch", "network", "slow_memory"
]
State = Literal["measured", "simulated", "not detectable", "not measurable"]
# Name of the stall: the run with the stall, the run without it.
DIFFERENCES: dict[StallName, tuple[str, str]] = {
    "interconnect": ("S2", "S1"),
    "contention": ("S1g", "S1"),
    "all_reduce": ("S6", "S1g"),
    "embedding_exchange": ("S2", "S6"),
    "prep": ("S4", "S2"),
    "fetch": ("S3", "S4"),
    "network": ("S5", "S2"),
    "slow_memory": ("S7", "S1"),
}
SIMULATED = ("network",)
RESAMPLES = 2000


class RunTime(Frozen):
    """Seconds per step, with their 95 % bootstrap interval."""

    seconds: float
    low: float
    high: float
    rounds: int
    steps: int


class Stall(Frozen):
    """Time that each training step loses to one cause, such as reading or communication."""

    name: StallName
    state: State
    slow_run: str
    fast_run: str
    reason: str = ""
    difference_seconds: float | None = None  # signed; a difference that is not significant is not reported as a stall
    low_seconds: float | None = None
    high_seconds: float | None = None
    share_of_slow_run: float | None = None
    slow_down: float | None = None
    total_seconds: float | None = None  # exposed and hidden stall together, from the reader alone

    @property
    def seconds(self) -> float | None:
        """Exposed seconds per step; None if no stall was detected or measured."""
        return self.difference_seconds if self.state in ("measured", "simulated") else None


def run_times(measurements: StallMeasurements, seed: int = 0) -> tuple[dict[str, RunTime], dict[str, np.ndarray]]:
    """Return the time of each run, and its bootstrap replicates.

    Rounds are drawn with replacement, the same rounds for all runs because the runs of a round belong together; then
    the steps within them. The interval is given by percentiles of the replicates (Efron and Tibshirani, "An
    Introduction to the Bootstrap", 1993, section 13.3).

    Args:
        measurements: Measurements of the stall profiler.
        seed: Seed of the bootstrap draws.
    """
    generator = np.random.default_rng(seed)
    rounds = max(len(some) for some in measurements.seconds.values())
    drawn = generator.integers(0, rounds, (RESAMPLES, rounds))
    times, replicates = {}, {}
    for name, kept in measurements.seconds.items():
        seconds = np.array(kept)
        own = drawn if len(seconds) == rounds else generator.integers(0, len(seconds), (RESAMPLES, len(seconds)))
        steps = generator.integers(0, seconds.shape[1], (*own.shape, seconds.shape[1]))
        replicates[name] = np.median(seconds[own[..., np.newaxis], steps].mean(axis=2), axis=1)
        low, high = central_interval(replicates[name])
        times[name] = RunTime(
            seconds=float(np.median(seconds.mean(axis=1))), low=low, high=high, rounds=len(seconds), steps=seconds.size
        )
    return times, replicates


def find_stalls(
    measurements: StallMeasurements, times: Mapping[str, RunTime], replicates: Mapping[str, np.ndarray]
) -> tuple[Stall, ...]:
    """Return every stall of `DIFFERENCES`, with its seconds if detected, or the reason why it is not measurable.

    Args:
        measurements: Measurements of the stall profiler.
        times: Times of the runs.
        replicates: Bootstrap replicates of the runs.
    """
    return tuple(_find(name, measurements, times, replicates) for name in DIFFERENCES)


def _find(
    name: StallName,
    measurements: StallMeasurements,
    times: Mapping[str, RunTime],
    replicates: Mapping[str, np.ndarray],
) -> Stall:
    slow, fast = DIFFERENCES[name]
    if name == "prep" and "S2" in measurements.not_measurable:
        fast = "S1"
    for run in (slow, fast):
        if run not in times:
            reason = measurements.not_measurable[run]
            return Stall(name=name, state="not measurable", slow_run=slow, fast_run=fast, reason=reason)
    difference = times[slow].seconds - times[fast].seconds
    low, high = central_interval(replicates[slow] - replicates[fast])
    found = low > 0
    state: State = "not detectable"
    if found:
        state = "simulated" if name in SIMULATED else "measured"
    return Stall(
        name=name,
        state=state,
        slow_run=slow,
        fast_run=fast,
        difference_seconds=difference,
        low_seconds=low,
        high_seconds=high,
        reason="" if found else f"the interval of 95 % reaches from {1e3 * low:.3g} to {1e3 * high:.3g} ms a step",
        share_of_slow_run=difference / times[slow].seconds if found else None,
        slow_down=times[slow].seconds / times[fast].seconds if found else None,
        total_seconds=_total(name, times),
    )


def _total(name: StallName, times: Mapping[str, RunTime]) -> float | None:
    """Return the seconds per batch of the reader alone: warm reads for prep, cold minus warm reads for fetch."""
    if name == "prep" and "L4" in times:
        return times["L4"].seconds
    if name == "fetch" and {"L3", "L4"} <= times.keys():
        return max(0.0, times["L3"].seconds - times["L4"].seconds)
    return None


def cache_what_if(
    *, warm_step_seconds: float, warm_read_seconds: float, batch_bytes: float, disk_bytes_per_second: float
) -> list[tuple[float, float]]:
    """Estimate the seconds per step by the share of the data in memory, from 0 to 1 in steps of 0.05.

    After DS-Analyzer's what-if analysis (Mohan et al., VLDB 2021, section 3.3): all other data is read from disk.
    Reading runs in parallel with the step, so the slower of the two sets the time.

    Args:
        warm_step_seconds: Seconds per step on batches from memory.
        warm_read_seconds: Seconds per batch of the reader alone, from memory.
        batch_bytes: Bytes of a batch in the files.
        disk_bytes_per_second: Sequential read rate of the disk in bytes per second.
    """
    shares = [round(0.05 * position, 2) for position in range(21)]
    return [
        (share, max(warm_step_seconds, warm_read_seconds + (1 - share) * batch_bytes / disk_bytes_per_second))
        for share in shares
    ]


def median_difference(slow: Sequence[Sequence[float]], fast: Sequence[Sequence[float]]) -> float:
    """Return the difference of two runs' median steps, at least zero.

    This suits communication, which is the same in each step. The median ignores disturbances by other jobs, but would
    also ignore reading stalls, which occur in few long steps.
    """
    medians = [float(np.median(np.concatenate([np.asarray(seconds) for seconds in rounds]))) for rounds in (slow, fast)]
    return max(0.0, medians[0] - medians[1])
