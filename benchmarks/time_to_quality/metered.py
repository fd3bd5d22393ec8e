"""A process, and what it takes: wall clock, processor time, joules over time, and what others did meanwhile."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.meters.process_time import ProcessTime
from shunter.settings import PROJECT_ROOT

SAMPLE_SECONDS = 1.0
# Of the usable cores' time. Above it a run says more about its neighbours than about itself.
MOST_FOREIGN_SHARE = 0.1


@dataclass(frozen=True)
class Metered:
    """What a process took, its children included.

    Attributes:
        began: `time.time()` at its start.
        seconds: Wall clock.
        processor_seconds: Of it and its children.
        joules: By Shunter's meter, for everyone.
        joules_are: `measured` or `estimated`.
        joules_over_time: Pairs of seconds and joules until then.
        foreign_share: Share of the cores' time that other processes took.
        load_average: Of the last minute, at the end.
        status: Exit status.
        output: The end of what it said.
    """

    began: float
    seconds: float
    processor_seconds: float
    joules: float
    joules_are: str
    joules_over_time: tuple[tuple[float, float], ...]
    foreign_share: float
    load_average: float
    status: int
    output: str

    def joules_until(self, seconds: float) -> float:
        """Joules of the first so many seconds, in a straight line between two samples."""
        times, joules = zip(*self.joules_over_time, strict=True)
        return float(np.interp(seconds, times, joules))

    def to_dict(self) -> dict[str, Any]:
        """What is published of it."""
        left_out = ("began", "status", "output", "joules_over_time")
        return {name: value for name, value in asdict(self).items() if name not in left_out}


def run_metered(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Metered:
    """Run a command to its end, from the project's root.

    Args:
        command: Program and arguments.
        environment: Variables beside our own.
        log: File for all that it says.
    """
    time_used, over_time = ProcessTime(), [(0.0, 0.0)]
    busy_before, own_before = time_used.machine_seconds(), time_used.process_seconds()
    with log.open("w") as said, measure_energy() as meter:
        began, started = time.time(), time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=PROJECT_ROOT,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        while not _ended(process):
            over_time.append((time.monotonic() - started, meter.joules_so_far() or 0.0))
        seconds = time.monotonic() - started
    own = time_used.process_seconds() - own_before
    foreign = max(0.0, time_used.machine_seconds() - busy_before - own)
    reading = meter.reading
    return Metered(
        began=began,
        seconds=seconds,
        processor_seconds=own,
        joules=reading.joules or 0.0,
        joules_are=reading.method,
        joules_over_time=(*over_time, (seconds, reading.joules or 0.0)),
        foreign_share=foreign / (seconds * (os.cpu_count() or 1)),
        load_average=os.getloadavg()[0],
        status=process.returncode,
        output="\n".join(log.read_text(errors="replace").splitlines()[-12:]),
    )


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process ends before the next sample is due."""
    try:
        process.wait(SAMPLE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def foreign_share_now(seconds: float = 3.0) -> float:
    """Share of the machine's cores that is busy while this process waits."""
    time_used = ProcessTime()
    before = time_used.machine_seconds()
    time.sleep(seconds)
    return (time_used.machine_seconds() - before) / (seconds * (os.cpu_count() or 1))
