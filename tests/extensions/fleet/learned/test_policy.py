"""The learned policy among all policies, whatever its networks say: its contract, and the limits that it keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import AcceleratorType, Cluster, Machine, PowerCap, Slowdown
from shunter.extensions.fleet.drawing import power_steps
from shunter.extensions.fleet.job import Iterations, Job, JobState
from shunter.extensions.fleet.learned.networks import Voters, draw_weights
from shunter.extensions.fleet.learned.objectives import watts
from shunter.extensions.fleet.learned.planner import AGENTS
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.schedule import Schedule
from shunter.extensions.fleet.simulator import simulate
from tests.extensions.fleet.checks import check_schedule
from tests.extensions.fleet.test_contract import cases

NEW = AcceleratorType(
    idle_watts=20,
    busy_watts=300,
    memory_gib=40,
    power_caps=(PowerCap(power_share=0.7, speed=0.9), PowerCap(power_share=0.5, speed=0.6)),
)
OLD = AcceleratorType(idle_watts=10, busy_watts=100, memory_gib=16)


def random_policy(seed: int, objective: str = "jct") -> Learned:
    """Networks that have learned nothing: what they choose is arbitrary, and may break no limit all the same."""
    weights = {name: value * 30 for name, value in draw_weights(AGENTS, 8, seed).items()}
    return Learned(Voters([weights], "majority"), objective)  # pyright: ignore[reportArgumentType]


@settings(max_examples=15, deadline=None)
@given(case=cases(), seed=some.integers(0, 1000))
def test_it_keeps_the_contract_of_all_policies(case: tuple[Cluster, list[Job]], seed: int) -> None:
    cluster, jobs = case
    schedule = simulate(jobs, cluster, random_policy(seed))
    check_schedule(schedule, jobs)
    assert simulate(jobs, cluster, random_policy(seed)) == schedule


class First:
    """Takes the first candidate, whatever it is."""

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        return 0


def test_of_more_jobs_than_one_look_takes_in_none_waits_for_a_free_accelerator() -> None:
    machines = tuple(Machine(name=f"m{i}", accelerator=f"kind{i % 2}", count=10) for i in range(20))
    board = Board(Cluster(machines=machines))
    jobs = [Job(f"job{i}", 0.0, 1, Iterations(10.0 + i, {"": 1.0})) for i in range(220)]
    board.waiting = {job.name: JobState(job) for job in jobs}
    Learned(First(), "jct").decide(board)
    assert (len(board.running), sum(board.free)) == (200, 0)


@some.composite
def limited(draw: some.DrawFn) -> tuple[Cluster, list[Job]]:
    machines = tuple(
        Machine(name=f"m{i}", accelerator=draw(some.sampled_from(("new", "old"))), count=draw(some.integers(1, 3)))
        for i in range(draw(some.integers(1, 3)))
    )
    kinds = {"new": NEW, "old": OLD}
    rest = sum(kinds[one.accelerator].idle_watts * one.count for one in machines)
    cluster = Cluster(machines=machines, accelerators=kinds)
    jobs = []
    for i in range(draw(some.integers(1, 7))):
        most = max(cluster.count_of.values())
        asked = draw(some.integers(1, most))
        compute = {name: draw(some.sampled_from((0.5, 1.0, 2.0))) for name in cluster.types}
        speedups = draw(some.sampled_from(({}, {1: 0.6}, {1: 0.4, most: 1.5})))
        jobs.append(
            Job(
                name=f"job{i}",
                arrival_seconds=draw(some.sampled_from((0.0, 10.0, 120.0))),
                accelerators=asked,
                work=Iterations(draw(some.sampled_from((20.0, 100.0, 400.0))), compute, speedups=speedups),
                start_seconds=draw(some.sampled_from((0.0, 3.0))),
                checkpoint_seconds=1.0,
                restore_seconds=draw(some.sampled_from((0.0, 7.0))),
                preemptible=draw(some.booleans()),
                deadline_seconds=draw(some.sampled_from((None, 60.0, 300.0, 1000.0))),
                memory_gib=draw(some.sampled_from((0.0, 10.0, 30.0))) if "new" in cluster.types else 0.0,
            )
        )
    jobs = [
        job for job in jobs if max((cluster.count_of[one] for one in job.types(cluster)), default=0) >= job.accelerators
    ]
    needed = max((kinds[one].busy_watts * job.accelerators for job in jobs for one in job.types(cluster)), default=0)
    spare = draw(some.sampled_from((0.0, 150.0, 600.0)))
    return cluster.model_copy(update={"power_limit_watts": rest + needed + spare}), jobs


@settings(max_examples=15, deadline=None)
@given(case=limited(), seed=some.integers(0, 1000), objective=some.sampled_from(("jct", "energy")))
def test_power_memory_and_promised_deadlines_are_never_broken(
    case: tuple[Cluster, list[Job]], seed: int, objective: str
) -> None:
    cluster, jobs = case
    policy = random_policy(seed, objective)
    watched = Watching(policy)
    schedule = simulate(jobs, cluster, watched)
    assert {outcome.job for outcome in schedule.outcomes} == {job.name for job in jobs}
    assert cluster.power_limit_watts is not None
    assert watched.most_watts <= cluster.power_limit_watts * (1 + 1e-9)
    assert _most_drawn(schedule) <= cluster.power_limit_watts * (1 + 1e-9)
    needs = {job.name: job.memory_gib for job in jobs}
    for span in schedule.spans:
        kind = cluster.type_of(cluster.machines[span.placement[0][0]].accelerator)
        assert kind.memory_gib >= needs[span.job]
    late = {outcome.job for outcome in schedule.outcomes if outcome.is_late}
    assert late <= policy.refused


class Watching:
    """Keeps the most that the board ever drew, as the policy left it."""

    def __init__(self, policy: Learned) -> None:
        self._policy, self.most_watts = policy, 0.0
        self.name, self.round_seconds = policy.name, policy.round_seconds

    def decide(self, board: Board) -> float | None:
        again = self._policy.decide(board)
        self.most_watts = max(self.most_watts, watts(board))
        return again


def _most_drawn(schedule: Schedule) -> float:
    return max((value for _, value in power_steps(schedule)), default=0.0)


def test_a_deadline_that_can_be_met_is_promised_and_kept_whatever_the_networks_want() -> None:
    cluster = Cluster(machines=(Machine(name="m"),))
    jobs = [Job(f"long{i}", 0.0, 1, Iterations(500, {"": 1.0})) for i in range(3)]
    jobs.append(Job("urgent", 5.0, 1, Iterations(100, {"": 1.0}), deadline_seconds=120.0, restore_seconds=4.0))
    for seed in range(8):
        policy = random_policy(seed)
        schedule = simulate(jobs, cluster, policy)
        assert not policy.refused
        assert not any(outcome.is_late for outcome in schedule.outcomes)


def test_of_two_deadlines_that_exclude_each_other_one_is_refused_and_the_other_kept() -> None:
    cluster = Cluster(machines=(Machine(name="m"),))
    jobs = [Job(name, 0.0, 1, Iterations(100, {"": 1.0}), deadline_seconds=150.0) for name in "ab"]
    policy = random_policy(1)
    schedule = simulate(jobs, cluster, policy)
    assert len(policy.refused) == 1
    assert {outcome.job for outcome in schedule.outcomes if outcome.is_late} <= policy.refused


class Fastest:
    """Takes the candidate that is done first, by the feature that says so."""

    def choose(self, agent: str, candidates: np.ndarray) -> int:
        return int(np.argmin(candidates[:, 7]))


def test_a_job_is_moved_when_its_machine_slows_down_by_half() -> None:
    machines = (Machine(name="a"), Machine(name="b"))
    slowdown = Slowdown(machine="a", begin_seconds=10.0, speed=0.5)
    cluster = Cluster(machines=machines, slowdowns=(slowdown,))
    job = Job("only", 0.0, 1, Iterations(100, {"": 1.0}), restore_seconds=5.0)
    schedule = simulate([job], cluster, Learned(Fastest(), "jct"))
    assert [span.placement for span in schedule.spans] == [((0, 1),), ((1, 1),)]
    assert schedule.end_seconds == pytest.approx(10 + 5 + 90)
