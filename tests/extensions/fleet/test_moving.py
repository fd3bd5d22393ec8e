"""Priorities, and what runs moved to a better accelerator that becomes free: on one node with two kinds of them."""

from dataclasses import replace

import pytest

from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.live.driver import Driver, DriverContext
from shunter.extensions.fleet.live.role import LiveMachine
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.simulator import simulate
from tests.extensions.fleet.live.machines import MachinesInMemory

NODE = Cluster(machines=(Machine(name="fast", accelerator="fast"), Machine(name="slow", accelerator="slow")))


def job(name: str, seconds: float, *, slower: float = 4.0, move_seconds: float = 10.0) -> Job:
    """A job that takes so long on the fast one."""
    work = Iterations(seconds, {"fast": 1.0, "slow": slower})
    return Job(name, 0.0, 1, work, checkpoint_seconds=move_seconds / 2, restore_seconds=move_seconds / 2)


@pytest.mark.parametrize(
    ("slower", "move_seconds", "ends", "moves"),
    [
        (4.0, 10.0, 100 + 10 + 75, 1),  # at 100 s a quarter of the second is done
        (4.0, 113.0, 400, 0),  # 300 s are left, 75 there: 225 s saved are less than twice the move
        (1.0, 0.0, 100, 0),
    ],
)
def test_a_job_moves_to_the_better_accelerator_that_becomes_free_if_that_pays(
    slower: float, move_seconds: float, ends: float, moves: int
) -> None:
    jobs = [job("first", 100), job("second", 100, slower=slower, move_seconds=move_seconds)]
    first, second = simulate(jobs, NODE, make_policy("fifo-move")).outcomes
    assert first.end_seconds == 100
    assert (second.end_seconds, second.migrations) == (ends, moves)


def test_what_a_move_leaves_goes_to_who_waits() -> None:
    jobs = [job("first", 100), job("second", 100), replace(job("third", 50), work=Iterations(50, {"slow": 1.0}))]
    *_, third = simulate(jobs, NODE, make_policy("fifo-move")).outcomes
    assert (third.first_start_seconds, third.end_seconds) == (100, 150)


def test_a_live_training_moves_likewise() -> None:
    jobs = [job("first", 100, move_seconds=0.0), job("second", 100, move_seconds=0.0)]
    up = {name: LiveMachine(name, name, 1, 1) for name in ("fast", "slow")}
    there = MachinesInMemory({one.name: one for one in jobs}, up)
    driver = Driver(jobs, make_policy("fifo-move"), there, DriverContext(there.clock))
    driver.run()
    assert there.starts == [("first", "fast"), ("second", "slow"), ("second", "fast")]
    _, second = driver.schedule().outcomes
    assert second.migrations == 1
    assert second.end_seconds == pytest.approx(175, abs=3)


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "fifo-move", "srtf", "las", "tiresias", "gandiva", "dally"])
def test_a_higher_priority_goes_first_whatever_else_the_policy_looks_at(policy: str) -> None:
    one = Cluster(machines=(Machine(name="m", accelerator="fast"),))
    jobs = [job("usual", 50), replace(job("urgent", 60), priority=1), replace(job("idle", 5), priority=-1)]
    outcomes = simulate(jobs, one, make_policy(policy)).outcomes
    starts = {outcome.job: outcome.first_start_seconds for outcome in outcomes}
    assert starts["urgent"] == 0
    assert starts["usual"] < starts["idle"]


def test_an_urgent_job_stops_another_where_the_policy_may() -> None:
    one = Cluster(machines=(Machine(name="m", accelerator="fast"),))
    jobs = [job("usual", 50), replace(job("urgent", 60), priority=1, arrival_seconds=10.0)]
    usual, urgent = simulate(jobs, one, make_policy("srtf")).outcomes
    assert (urgent.end_seconds, usual.preemptions) == (70, 1)
