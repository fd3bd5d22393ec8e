"""The stall profiler's runs with a clock that only the link moves, for `test_stalls.py`."""

import os
import pickle
from pathlib import Path

from shunter.extensions.distributed.links.processes import Report, join_group, run_member
from shunter.extensions.stalls.linked import BACKEND, Wire, register_backend
from shunter.extensions.stalls.worker import PLAN, RESULT, measure


class Clock:
    """Time passes only where someone sleeps."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def main(folder: Path, report: Report) -> None:
    clock = Clock()
    wire = Wire(sleep=clock.sleep)
    register_backend(wire)
    join_group(folder, BACKEND)
    result = measure(pickle.loads((folder / PLAN).read_bytes()), wire, report, now=clock.now)
    if os.environ["RANK"] == "0":
        (folder / RESULT).write_bytes(pickle.dumps(result))


if __name__ == "__main__":
    run_member(main)
