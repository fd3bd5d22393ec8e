"""Figures that others computed: Pollux' simulator with Tiresias' policy on its workloads."""

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.fleet_loads import uniform_cluster
from shunter.extensions.fleet.policies.queues import Tiresias
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.traces.pollux import read_pollux
from tests.extensions.fleet.checks import check_schedule

# Mean completion times, and some single ones, of petuum/adaptdl's branch osdi21-artifact: 16 machines with 4 GPUs.
MEANS = {1: 2473.65, 2: 5144.9625, 3: 3876.25625, 4: 3280.2625}
SINGLE = {
    2: {"cifar10-0": 982, "imagenet-10": 69234, "yolov3-28": 14262, "bert-87": 6109, "yolov3-144": 20852,
        "deepspeech2-157": 9994, "ncf-159": 126},
    4: {"bert-0": 3163, "imagenet-106": 79517, "ncf-132": 1356, "yolov3-154": 18163, "cifar10-159": 1097},
}  # fmt: skip


@pytest.mark.parametrize("number", MEANS)
def test_tiresias_completes_every_job_at_the_second_that_pollux_simulator_has(shared_data: Path, number: int) -> None:
    jobs = read_pollux(shared_data / f"clusters/pollux_osdi21/workloads/workload-{number}.csv")
    schedule = simulate(jobs, uniform_cluster(1, 16, 4), Tiresias())
    check_schedule(schedule, jobs)
    completion = {outcome.job: outcome.completion_seconds for outcome in schedule.outcomes}
    assert all(seconds == int(seconds) for seconds in completion.values())
    assert fmean(completion.values()) == pytest.approx(MEANS[number], abs=1e-6)
    assert {name: completion[name] for name in SINGLE.get(number, {})} == SINGLE.get(number, {})
