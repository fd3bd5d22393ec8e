"""The least mean completion time by trying everything: by hand, and never above what any policy reaches."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from benchmarks.fleet_oracle import least_mean_completion
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate

CLUSTER = Cluster(machines=(Machine(name="a", accelerator="new"), Machine(name="b", accelerator="old")))


def job(name: str, seconds: float, ratio: float, restore: float = 1000.0) -> Job:
    return Job(name, 0.0, 1, Iterations(seconds, {"new": 1.0, "old": ratio}), restore_seconds=restore)


def test_by_hand() -> None:
    jobs = [job("a", 10, 1), job("b", 20, 1), job("c", 30, 1)]
    assert least_mean_completion(jobs, CLUSTER) == pytest.approx((10 + 20 + 40) / 3)
    slow = [job("a", 10, 100), job("b", 20, 100)]  # waiting is better than the slow server
    assert least_mean_completion(slow, CLUSTER) == pytest.approx((10 + 30) / 2)
    moved = [job("a", 10, 1), job("b", 100, 3, restore=5.0)]
    assert least_mean_completion(moved, CLUSTER) == pytest.approx((10 + 100) / 2)  # a goes to the slow server
    both = [job("a", 10, 10), job("b", 100, 3, restore=1.0)]  # b begins on the slow server and moves
    assert least_mean_completion(both, CLUSTER) == pytest.approx((10 + 10 + 1 + 100 - 10 / 3) / 2)


@settings(max_examples=15, deadline=None)
@given(
    lengths=some.lists(some.floats(1, 500), min_size=1, max_size=3),
    ratios=some.lists(some.floats(0.4, 5), min_size=3, max_size=3),
    restore=some.sampled_from((0.0, 30.0)),
)
def test_no_policy_beats_it(lengths: list[float], ratios: list[float], restore: float) -> None:
    jobs = [job(f"j{i}", length, ratios[i], restore) for i, length in enumerate(lengths)]
    least = least_mean_completion(jobs, CLUSTER)
    for name in ("fifo-skip", "srtf", "fifo"):
        assert figures(simulate(jobs, CLUSTER, make_policy(name)))["jct.mean_seconds"] >= least * (1 - 1e-9)
