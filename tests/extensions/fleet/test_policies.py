"""Single policies: programs with known answers, and figures of others' simulators."""

from collections.abc import Sequence
from itertools import product
from math import inf
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fleet_loads import draw_gavel_jobs, uniform_cluster
from shunter.errors import DataError
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.policies.elastic import choose_options
from shunter.extensions.fleet.policies.gavel import max_min_heterogeneous, min_makespan
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.traces.gavel import read_trace
from shunter.extensions.fleet.traces.pollux import read_pollux
from tests.extensions.fleet.checks import check_schedule

TABLE = "clusters/gavel/simulation_throughputs.json"


def test_sia_decides_its_published_example() -> None:
    demands = [[("A", 1), ("A", 2), ("B", 1), ("B", 2), ("B", 4)]] * 2
    gains = [[1, 1.5, 1.5, 2.5, 3.5], [1.2, 2.1, 1, 1.9, 3.6]]
    assert choose_options(gains, demands, {"A": 2, "B": 4}) == [4, 1]


def test_sia_lets_a_job_wait_only_where_nothing_is_left() -> None:
    assert sorted(choose_options([[1.0], [1.0]], [[("A", 1)], [("A", 1)]], {"A": 1}), key=str) == [0, None]
    assert choose_options([], [], {"A": 1}) == []


# So few that all choices of five jobs can be counted.
OFFER = st.tuples(st.sampled_from([0.5, 1.0, 1.5, 3.0]), st.sampled_from(["A", "B"]), st.integers(1, 3))
OFFERS = st.lists(OFFER, max_size=4)


@given(st.lists(OFFERS, max_size=2), st.lists(st.integers(0, 1), max_size=5), st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=30, deadline=None)
def test_sia_gains_as_much_as_any_choice_of_jobs_of_which_several_are_alike(
    kinds: list[list[tuple[float, str, int]]], drawn: list[int], a: int, b: int
) -> None:
    jobs = [kinds[kind] for kind in drawn if kind < len(kinds)]
    gains = [[gain for gain, *_ in offers] for offers in jobs]
    demands = [[(name, count) for _, name, count in offers] for offers in jobs]

    def cost(choice: Sequence[int | None]) -> float:
        taken = {"A": a, "B": b}
        total = 0.0
        for own, asked, option in zip(gains, demands, choice, strict=True):
            if option is not None:
                taken[asked[option][0]] -= asked[option][1]
                total += (own[option] / min(own)) ** -0.5 - 1.1
        return total if min(taken.values()) >= 0 else inf

    best = min(map(cost, product(*([None, *range(len(offers))] for offers in jobs))))
    assert cost(choose_options(gains, demands, {"A": a, "B": b})) == pytest.approx(best, abs=1e-3)


def test_shares_follow_relative_speed() -> None:
    """Each of two jobs is twice as fast on its own type: blind sharing would give both half of each."""
    rates = np.array([[2.0, 1.0], [1.0, 2.0]])
    shares = max_min_heterogeneous(rates, np.ones((2, 2)), np.ones(2), np.ones(2))
    assert shares == pytest.approx(np.eye(2), abs=1e-6)


def test_makespan_shares_end_all_jobs_together() -> None:
    shares = min_makespan(np.array([[1 / 3], [1.0]]), np.ones((2, 1)), np.ones(2), np.ones(1))
    assert shares[:, 0] == pytest.approx([0.75, 0.25], abs=1e-5)


# Mean completion seconds of jobs 50 to 150 that Gavel's own simulator has: seed 0, 0.2 jobs an hour, one GPU a job.
@pytest.mark.parametrize(
    ("policy", "published"),
    [
        ("gavel-fifo-perf", 47544.334),
        pytest.param("gavel-max-min", 71244.680, marks=pytest.mark.long),
        pytest.param("gavel-max-min-perf", 53184.824, marks=pytest.mark.slow),
    ],
)
def test_gavel_small_cases_within_two_percent(shared_data: Path, policy: str, published: float) -> None:
    jobs = draw_gavel_jobs(shared_data / TABLE, 220, seed=0, jobs_per_hour=0.2)
    types = ("v100", "p100", "k80")
    cluster = Cluster(machines=tuple(Machine(name=f"{name}{i}", accelerator=name) for name in types for i in range(4)))
    schedule = simulate(jobs, cluster, make_policy(policy))
    measured = schedule.outcomes[50:150]
    assert fmean(outcome.completion_seconds for outcome in measured) == pytest.approx(published, rel=0.02)
    assert all(outcome.completion_seconds >= outcome.isolated_seconds - 1e-6 for outcome in measured)


def test_gavel_generator_draws_the_jobs_whose_bound_is_published(shared_data: Path) -> None:
    """Mean time alone on the best type of jobs 4000 to 5000."""
    jobs = draw_gavel_jobs(shared_data / TABLE, 5000, seed=0, jobs_per_hour=1.0)[4000:]
    works = [job.work for job in jobs]
    assert all(isinstance(work, Iterations) for work in works)
    best = [work.count * min(work.compute_seconds.values()) for work in works if isinstance(work, Iterations)]
    assert fmean(best) == pytest.approx(55229.5, rel=1e-3)


def test_gavel_traces_are_read_as_they_are_and_refused_where_broken(shared_data: Path, tmp_path: Path) -> None:
    source = shared_data / "clusters/gavel/physical_cluster/small_test.trace"
    assert len(read_trace(source)) == 20
    (tmp_path / "simulation_throughputs.json").write_text((shared_data / TABLE).read_text())
    lines = source.read_text().splitlines()
    for broken, complaint in (
        (lines[1].replace("\t36\t", "\tmany\t"), "line 2 of .*: steps is 'many'"),
        (lines[1].replace("Recommendation", "Chess"), "line 2 of .*: job_type is 'Chess"),
        ("one\ttwo", "line 2 of .*: 2 fields"),
    ):
        path = tmp_path / "broken.trace"
        path.write_text("\n".join([lines[0], broken]) + "\n")
        with pytest.raises(DataError, match=complaint):
            read_trace(path)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "published"), [("pollux", 2721.0)])
def test_elastic_policies_come_near_what_pollux_published(shared_data: Path, policy: str, published: float) -> None:
    """Within 10 % of its genetic search, on its fourth workload."""
    path = shared_data / "clusters/pollux_osdi21/workloads/workload-4.csv"
    schedule = simulate(read_pollux(path, adaptive=True), uniform_cluster(1, 16, 4), make_policy(policy))
    assert figures(schedule)["jct.mean_seconds"] == pytest.approx(published, rel=0.1)


def test_time_slices_let_a_short_job_end_before_a_long_one_that_came_first() -> None:
    jobs = [Job("long", 0.0, 1, Iterations(5000, {"": 1.0})), Job("short", 1.0, 1, Iterations(300, {"": 1.0}))]
    schedule = simulate(jobs, uniform_cluster(1, 1, 1), make_policy("gandiva"))
    check_schedule(schedule, jobs)
    ends = {outcome.job: outcome.end_seconds for outcome in schedule.outcomes}
    assert ends == {"short": 660.0, "long": 5360.0}  # it waited for one slice
