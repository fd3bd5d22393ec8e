"""The simulator: shared uplinks, outages, restarts, energy; each by a case computed by hand."""

import pytest

from benchmarks.fleet_loads import uniform_cluster
from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import (
    AcceleratorType,
    Cluster,
    Machine,
    Network,
    Outage,
    PowerCap,
    Slowdown,
)
from shunter.extensions.fleet.job import Iterations, Job, JobState
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.policies.queues import Fifo
from shunter.extensions.fleet.policies.role import run_in_order
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate

FOUR_SMALL = uniform_cluster(1, 4, 1)


def spread_job(name: str, iterations: float = 100.0) -> Job:
    """Two accelerators, which in `FOUR_SMALL` never lie in one machine: a second each of work and of exchange."""
    return Job(name, 0.0, 2, Iterations(iterations, {"": 1.0}, {"": (0.0, 1.0, 1.0)}))


def test_jobs_that_cross_the_same_uplink_divide_it_and_speed_up_when_one_ends() -> None:
    cluster = Cluster(machines=tuple(Machine(name=name, count=1 + (name != "c")) for name in "abc"))
    jobs = [Job("long", 0.0, 3, spread_job("x").work), spread_job("short", 10.0)]
    schedule = simulate(jobs, cluster, make_policy("fifo"))
    # Both cross b: 3 seconds an iteration until the short one ends at 30; 90 iterations of 2 seconds are left.
    assert [outcome.end_seconds for outcome in schedule.outcomes] == [210.0, 30.0]
    alone = cluster.model_copy(update={"network": Network(shared_uplinks=False)})
    assert simulate(jobs, alone, make_policy("fifo")).end_seconds == 200.0


def test_congestion_slows_what_leaves_a_machine() -> None:
    congested = FOUR_SMALL.model_copy(update={"network": Network(congestion=3.0)})
    assert simulate([spread_job("a")], congested, make_policy("fifo")).end_seconds == 400.0


def test_an_outage_costs_what_came_after_the_last_checkpoint_and_the_restart() -> None:
    job = Job("a", 0.0, 1, Iterations(100, {"": 1.0}), start_seconds=5.0, restore_seconds=7.0,
              checkpoint_every_seconds=30.0)  # fmt: skip
    cluster = Cluster(machines=(Machine(name="m"),), outages=(Outage(machine="m", begin_seconds=70, end_seconds=100),))
    schedule = simulate([job], cluster, make_policy("fifo"))
    # 5 seconds of starting, a checkpoint at 60 with 55 iterations; back at 100, 7 seconds of restoring, 45 iterations.
    assert schedule.end_seconds == 100 + 7 + 45
    assert schedule.outcomes[0].queueing_seconds == 30.0


def test_machines_that_never_return_are_said_to_be_needed() -> None:
    cluster = Cluster(machines=(Machine(name="m"),), outages=(Outage(machine="m", begin_seconds=5),))
    with pytest.raises(InfeasibleError, match="'a'"):
        simulate([Job("a", 0.0, 1, Iterations(100, {"": 1.0}))], cluster, make_policy("fifo"))


def test_energy_and_cost_count_rest_and_work_by_type() -> None:
    cluster = Cluster(
        machines=(Machine(name="m", count=2),),
        accelerators={"gpu": AcceleratorType(idle_watts=10, busy_watts=100, price_per_hour=3.6)},
    )
    found = figures(simulate([Job("a", 50.0, 1, Iterations(100, {"": 1.0}))], cluster, make_policy("fifo")))
    assert found["energy_joules"] == 100 * (10 + 100)
    assert found["cost"] == pytest.approx(0.1)
    assert found["utilisation"] == 0.5
    assert found["makespan_seconds"] == found["jct.mean_seconds"] == 100.0
    assert found["fairness.rho"] == 1.0


def test_the_faster_type_is_taken_first_and_the_slower_when_it_is_full() -> None:
    cluster = Cluster(machines=(Machine(name="old", accelerator="old"), Machine(name="new", accelerator="new")))
    jobs = [Job(name, 0.0, 1, Iterations(10, {"old": 2.0, "new": 1.0})) for name in "ab"]
    schedule = simulate(jobs, cluster, make_policy("fifo"))
    assert [outcome.end_seconds for outcome in schedule.outcomes] == [10.0, 20.0]


def test_shortest_remaining_time_stops_a_long_job_and_takes_it_up_again() -> None:
    jobs = [
        Job("long", 0.0, 1, Iterations(100, {"": 1.0}), restore_seconds=5.0),
        Job("short", 10.0, 1, Iterations(20, {"": 1.0})),
    ]
    schedule = simulate(jobs, uniform_cluster(1, 1, 1), make_policy("srtf"))
    assert [outcome.end_seconds for outcome in schedule.outcomes] == [10 + 20 + 5 + 90, 30]
    assert schedule.outcomes[0].preemptions == 1


def test_two_jobs_of_one_name_are_refused() -> None:
    jobs = [Job("a", 0.0, 1, Iterations(1, {"": 1.0}))] * 2
    with pytest.raises(RequestError, match="'a'"):
        simulate(jobs, FOUR_SMALL, make_policy("fifo"))


def test_a_machine_that_slows_down_slows_its_jobs_until_it_is_well_again() -> None:
    slowdown = Slowdown(machine="m", begin_seconds=20, end_seconds=60, speed=0.5)
    cluster = Cluster(machines=(Machine(name="m"),), slowdowns=(slowdown,))
    schedule = simulate([Job("a", 0.0, 1, Iterations(100, {"": 1.0}))], cluster, make_policy("fifo"))
    assert schedule.end_seconds == 120.0  # 20 iterations, 20 in 40 seconds, 60
    assert figures(schedule)["communication.overhead"] == 0.0


class _CapsAt50(Fifo):
    """First come first served, and half the power from second 50 on."""

    def decide(self, board: Board) -> float | None:
        super().decide(board)
        if board.now >= 50:
            board.cap(0, 1)
            return None
        return 50.0


def test_a_cap_on_power_saves_energy_and_takes_time() -> None:
    kind = AcceleratorType(idle_watts=10, busy_watts=100, power_caps=(PowerCap(power_share=0.5, speed=0.8),))
    cluster = Cluster(machines=(Machine(name="m"),), accelerators={"gpu": kind})
    schedule = simulate([Job("a", 0.0, 1, Iterations(90, {"": 1.0}))], cluster, _CapsAt50())
    assert [(span.begin_seconds, span.end_seconds, span.power_share) for span in schedule.spans] == [
        (0.0, 50.0, 1.0),
        (50.0, 100.0, 0.5),
    ]
    assert figures(schedule)["energy_joules"] == 50 * 100 + 50 * 50
    assert schedule.outcomes[0].run_seconds == 100.0


def test_jobs_with_a_deadline_are_counted_when_they_miss_it() -> None:
    jobs = [Job(name, 0.0, 1, Iterations(100, {"": 1.0}), deadline_seconds=150.0) for name in "ab"]
    assert figures(simulate(jobs, uniform_cluster(1, 1, 1), make_policy("fifo")))["deadlines.missed"] == 1.0
    assert "deadlines.missed" not in figures(simulate([spread_job("a")], FOUR_SMALL, make_policy("fifo")))


def test_a_job_that_runs_on_other_numbers_of_accelerators_has_its_speedups() -> None:
    work = Iterations(100, {"": 1.0}, speedups={1: 0.5, 4: 1.6})
    assert work.counts(2) == (1, 2, 4)
    job = Job("a", 0.0, 2, work)
    schedule = simulate([job], uniform_cluster(1, 1, 4), make_policy("pollux"))
    assert schedule.end_seconds == pytest.approx(62.5)


def test_a_machine_that_two_outages_take_is_missing_once() -> None:
    board = Board(uniform_cluster(1, 2, 4))
    board.lose(0)
    board.lose(0)
    assert board.live_counts() == {"gpu": 4}
    board.regain(0)
    board.regain(0)
    assert board.live_counts() == board.free_of == {"gpu": 8}


def test_a_policy_that_stops_jobs_asks_nothing_of_those_that_run_while_all_fit() -> None:
    asked = 0

    def urgency(state: JobState) -> float:
        nonlocal asked
        asked += 1
        return 0.0

    board = Board(uniform_cluster(1, 2, 4))
    jobs = [JobState(Job(f"job{i}", 0.0, 1, Iterations(10.0, {"": 1.0}))) for i in range(4)]
    for state in jobs[:3]:
        board.waiting[state.name] = state
        board.start(state, ((0, 1),))
    board.waiting["job3"] = jobs[3]
    run_in_order(board, urgency)
    assert asked == 1
    assert len(board.running) == 4
