"""Whether a machine is quiet enough for its times to be published."""

import os
import time
from pathlib import Path

LARGEST_SHARE = 0.05  # of all processors, taken by others: the spread of a step's time on a quiet machine


class Others:
    """What other processes, and other guests of the host, take of the processors from now on."""

    def __init__(self) -> None:
        """Begin."""
        self._begin = time.perf_counter(), own_seconds(), busy_seconds()

    def share(self) -> float:
        """Share of all processors that they have taken; processes that were started here and have ended are ours."""
        wall, own, busy = (
            now - then
            for now, then in zip((time.perf_counter(), own_seconds(), busy_seconds()), self._begin, strict=True)
        )
        return max(0.0, busy - own) / (wall * (os.cpu_count() or 1))


def own_seconds() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def busy_seconds() -> float:
    """Seconds that all processors together were not idle since the machine was started, other guests included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def refuse_if_loaded(share: float) -> None:
    """End the benchmark without a result where others took too much of the machine.

    Raises:
        SystemExit: They did; one sentence says so.
    """
    if share > LARGEST_SHARE:
        raise SystemExit(
            f"Other work took {share:.0%} of the processors while this benchmark ran, and with more than "
            f"{LARGEST_SHARE:.0%} its times say nothing, so no result was written: run it again on a quiet machine."
        )
