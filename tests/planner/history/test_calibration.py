"""Which past runs say how far predictions of whole jobs are off."""

import math
from typing import Any

from shunter.planner.history import History, PastRun
from shunter.tracking.evidence import Figures
from tests.planner.measurements import at, past_run, step_observation

PLACEMENT = at(512, threads=2)
DATA, FAMILY = "clicks 13 26", "dlrm"


def run(ratio: float, **changes: Any) -> PastRun:
    """A run that took so many times what was predicted of it."""
    times = {"seconds": 10.0 * ratio, "joules": 100.0 * ratio, "memory_bytes": round(1000 * ratio)}
    values: dict[str, Any] = {
        "run_id": "a" * 32,
        "data": DATA,
        "auc": 0.7,
        "seconds": 20.0,
        "work_share": 0.5,
        "known": True,
        "predicted": Figures(seconds=10.0, joules=100.0, joules_source="measured", memory_bytes=1000),
        "measured": Figures(joules_source="measured", **times),
    }
    return past_run(PLACEMENT, **{**values, **changes})


def seen(*runs: PastRun, data: str = DATA, machines: tuple[str, ...] = ("here",), **changes: Any) -> list[float]:
    """Ratios of time that a history tells of a job."""
    found = History(runs=runs, **changes).calibration(data=data, family=FAMILY, machines=machines)
    return [round(math.exp(log), 9) for log in found.seconds.logs]


def test_known_jobs_tell_of_known_ones_and_new_of_new() -> None:
    runs = (run(2.0), run(0.5), run(3.0, known=False, data="other"), run(4.0, known=None))
    assert seen(*runs) == [0.5, 2.0]
    assert seen(*runs, data="never seen") == [3.0]
    assert History(runs=runs).calibration(data=DATA, family=FAMILY, machines=()).known


def test_what_did_not_run_to_its_own_end_tells_nothing() -> None:
    stopped = run(1.0, outcome="stopped", limit="time")
    failed = run(1.0, outcome="failed", out_of_memory=True)
    cut, tried = run(1.0, was_cut=True), run(1.0, was_exploration=True)
    missed = run(1.5, outcome="missed")
    night = run(1.0, kind="nightly")
    assert seen(stopped, failed, cut, tried, missed, night) == [1.5]
    assert seen(missed, night, job_kind="nightly") == [1.0]


def test_only_joules_of_counters_tell_of_energy() -> None:
    estimated = run(2.0, predicted=Figures(seconds=10.0, joules=100.0, joules_source="estimated"))
    found = History(runs=(estimated, run(1.5))).calibration(data=DATA, family=FAMILY, machines=())
    assert (found.seconds.runs, found.joules.runs, found.memory.runs) == (2, 1, 1)


def test_a_machine_that_never_ran_a_job_has_no_record() -> None:
    there = run(2.0, steps=(step_observation(machine="there"),))
    assert seen(there, machines=("here",)) == []
    assert seen(there, machines=("there", "here")) == [2.0]
