"""Dally against cases computed by hand: two machines with four accelerators in one rack."""

from math import inf

import pytest

from benchmarks.fleet_loads import uniform_cluster
from shunter.extensions.fleet.board import Board, Policy
from shunter.extensions.fleet.cluster import Cluster, Placement
from shunter.extensions.fleet.job import Iterations, Job, JobState
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.policies.dally import AutoTuner, Delayed, FixedTimers, Timers
from shunter.extensions.fleet.policies.dally_moves import Mover, sensitivity
from shunter.extensions.fleet.schedule import Schedule
from shunter.extensions.fleet.simulator import simulate

TWO_MACHINES = uniform_cluster(1, 2, 4)


def wide_job(communication_seconds: float, iterations: float = 100, move_seconds: float = 0.0) -> Job:
    """Four accelerators, a second of arithmetic in each iteration; `communication_seconds` beyond one machine."""
    levels = {"": (0.0, communication_seconds, communication_seconds)}
    return Job("C", 0.0, 4, Iterations(iterations, {"": 1.0}, levels), restore_seconds=move_seconds)


class HalfFull:
    """A policy that first puts a job of two accelerators on each machine, and then asks another."""

    name = "half-full"
    round_seconds = None

    def __init__(self, then: Policy) -> None:
        self._then = then

    def decide(self, board: Board) -> float | None:
        """See `Policy.decide`."""
        for name, machine in (("A", 0), ("B", 1)):
            if name in board.waiting:
                place: Placement = ((machine, 2),)
                board.start(board.waiting[name], place)
        return self._then.decide(board)


def run(job: Job, policy: Policy, cluster: Cluster = TWO_MACHINES, first_ends: float = 100.0) -> Schedule:
    jobs = [Job("A", 0.0, 2, Iterations(first_ends, {"": 1.0})), Job("B", 0.0, 2, Iterations(1000, {"": 1.0})), job]
    return simulate(jobs, cluster, HalfFull(policy))


def completion(schedule: Schedule, name: str = "C") -> float:
    return next(outcome.completion_seconds for outcome in schedule.outcomes if outcome.job == name)


@pytest.mark.parametrize(
    ("communication", "timers", "expected"),
    [
        (4.0, Timers(0, 0), 500),
        (4.0, Timers(100, inf), 200),
        (4.0, Timers(1e9, inf), 200),
        (4.0, Timers(60, inf), 560),  # waiting too short is worse than not waiting
        (0.1, Timers(0, 0), 110),
        (0.1, Timers(100, 100), 200),  # who does not care should not wait
    ],
)
def test_delay_timers(communication: float, timers: Timers, expected: float) -> None:
    schedule = run(wide_job(communication), Delayed("timers", FixedTimers(timers)))
    assert completion(schedule) == pytest.approx(expected, abs=1e-9)


def test_network_sensitivity_is_the_share_of_the_time_that_would_have_been_enough() -> None:
    board = Board(TWO_MACHINES)
    state = JobState(wide_job(4.0))
    spread, alone = board.conditions(((0, 2), (1, 2))), board.conditions(((0, 4),))
    state.conditions, state.ideal = spread, alone
    state.advance_to(250.0)
    assert state.done == 50
    assert sensitivity(state) == pytest.approx(0.2)
    state.conditions, state.done, state.run_seconds, state.ideal_seconds = alone, 0.0, 0.0, 0.0
    state.advance_to(300.0)
    assert sensitivity(state) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("left", "end"),
    [(100, 100 + 20 + 100), (5, 100 + 25)],  # 380 seconds saved; 20 saved, less than twice what the move takes
)
def test_an_upgrade_must_pay_twice_what_it_takes(left: float, end: float) -> None:
    job = wide_job(4.0, iterations=20 + left, move_seconds=20.0)  # 20 iterations fit into A's 100 seconds
    schedule = run(job, Delayed("upgrade", FixedTimers(Timers(0, 0)), Mover()))
    assert completion(schedule) == pytest.approx(end)


def test_a_swap_gives_the_place_of_one_who_does_not_care_to_one_who_does() -> None:
    """Nothing ever becomes free: only B, which communicates with nobody, can make room."""
    job = wide_job(4.0, iterations=10_000, move_seconds=5.0)
    swapped = run(job, Delayed("swap", FixedTimers(Timers(0, 0)), Mover()), first_ends=2000.0)
    left_alone = run(job, make_policy("dally-nowait"), first_ends=2000.0)
    assert completion(swapped) < 0.5 * completion(left_alone)


def test_tuner_takes_mean_and_two_deviations_of_recent_waits() -> None:
    tuner = AutoTuner()
    assert tuner.timers(4, 0.0) == Timers(3600.0, 7200.0)
    for wait in (80.0, 100.0, 120.0):
        tuner.record(3, 0, wait, now=1000.0)  # three and four accelerators are alike
    assert tuner.timers(4, 1000.0).machine_seconds == pytest.approx(132.66, abs=0.005)
    tuner.record(4, 0, 1e6, now=-1e5)  # long before
    assert tuner.timers(4, 1000.0).machine_seconds == pytest.approx(132.66, abs=0.005)
    assert tuner.timers(4, 1000.0 + 25 * 3600) == Timers(3600.0, 7200.0)


def test_rack_timer_is_never_shorter_than_that_of_the_machine() -> None:
    tuner = AutoTuner(Timers(50.0, 50.0))
    for _ in range(3):
        tuner.record(8, 0, 500.0, now=0.0)
    assert tuner.timers(8, 0.0) == Timers(500.0, 500.0)


def test_places_are_kept_for_the_job_that_would_end_last_and_lent_until_it_gets_them() -> None:
    """Without them a stream of small jobs, of which one ends every 25 seconds, never leaves two machines free."""
    small = [Job(f"s{i}", 25.0 * i, 2, Iterations(100, {"": 1.0})) for i in range(30)]
    large, brief = Job("L", 80.0, 4, Iterations(1000, {"": 1.0})), Job("brief", 230.0, 2, Iterations(10, {"": 1.0}))
    cluster = uniform_cluster(1, 4, 2)
    kept = simulate([*small, large, brief], cluster, make_policy("dally"))
    overtaken = simulate([*small, large, brief], cluster, Delayed("open", AutoTuner(), Mover()))
    starts, others = ({one.job: one.first_start_seconds for one in run.outcomes} for run in (kept, overtaken))
    assert starts["L"] == 250.0
    assert others["L"] > 700.0
    assert starts["brief"] == 230.0
    assert starts["s9"] > 230.0  # which came before it, but would not have been through
    assert kept.end_seconds < overtaken.end_seconds


def test_one_accelerator_never_waits_for_a_tighter_place() -> None:
    jobs = [Job(f"j{i}", 0.0, 1, Iterations(10, {"": 1.0})) for i in range(8)]
    schedule = simulate(jobs, TWO_MACHINES, make_policy("dally-consolidated"))
    assert all(outcome.queueing_seconds == 0 for outcome in schedule.outcomes)
