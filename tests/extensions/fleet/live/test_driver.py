"""The driver of a live fleet, on machines in memory: the simulator's schedule, and whatever can go wrong."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.fleet.board import Board
from shunter.extensions.fleet.cluster import Cluster, Machine
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.learned.policy import Learned
from shunter.extensions.fleet.live.driver import MOST_LOSSES, Driver, DriverContext
from shunter.extensions.fleet.live.record import JobRecord, Status
from shunter.extensions.fleet.live.role import LiveMachine
from shunter.extensions.fleet.policies import POLICIES, make_policy
from shunter.extensions.fleet.simulator import simulate
from tests.extensions.fleet.checks import check_schedule
from tests.extensions.fleet.learned.test_policy import random_policy
from tests.extensions.fleet.live.machines import MachinesInMemory

ONE, TWO = LiveMachine("one", "cpu", 1, 1), LiveMachine("two", "cpu", 2, 2)
ONE_MORE = LiveMachine("one more", "cpu", 1, 1)
FAST = LiveMachine("fast", "V100", 1, 1)
GPU_OF_BOX, CORES_OF_BOX = (
    LiveMachine("box", "V100", 1, 1, "box", 8.0, 8.0),
    LiveMachine("cpu@box", "cpu", 2, 2, "box", 8.0, 8.0),
)


def job(name: str, seconds: float, *, at: float = 0.0, accelerators: int = 1, **options: float | bool) -> Job:
    """A training that takes so long on a processor, and a third of it on a GPU."""
    work = Iterations(seconds, {"cpu": 1.0} if accelerators > 1 else {"cpu": 1.0, "V100": 1 / 3})
    return Job(name=name, arrival_seconds=at, accelerators=accelerators, work=work, **options)  # type: ignore[arg-type]


def machines(jobs: Iterable[Job], *up: LiveMachine, **options: object) -> MachinesInMemory:
    return MachinesInMemory({one.name: one for one in jobs}, {one.name: one for one in up}, **options)  # type: ignore[arg-type]


def driver(
    jobs: Iterable[Job], there: MachinesInMemory, policy: str = "fifo", kept: Iterable[JobRecord] = (), **around: object
) -> Driver:
    return Driver(jobs, make_policy(policy), there, DriverContext(there.clock, **around), kept)  # type: ignore[arg-type]


def statuses(found: Driver) -> dict[str, Status]:
    return {name: one.status for name, one in found.jobs.items()}


JOBS = st.lists(
    st.builds(
        lambda seconds, at, accelerators, memory: (seconds, at, accelerators, memory),
        st.floats(5, 300),
        st.floats(0, 400),
        st.integers(1, 2),
        st.sampled_from((0.0, 3.0, 5.0)),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=12)
@given(asked=JOBS)
def test_under_every_policy_all_are_trained_within_what_there_is(policy: str, asked: list[tuple]) -> None:
    jobs = [
        job(f"j{i}", s, at=at, accelerators=count, server_memory_gib=memory)
        for i, (s, at, count, memory) in enumerate(asked)
    ]
    there = machines(jobs, ONE, GPU_OF_BOX, CORES_OF_BOX)
    found = driver(jobs, there, policy)
    found.run()
    assert set(statuses(found).values()) == {Status.FINISHED}
    check_schedule(found.schedule(), jobs)


@settings(max_examples=12)
@given(asked=JOBS, seed=st.integers(0, 1000))
def test_under_a_learned_policy_too_though_others_take_some_of_it(asked: list[tuple], seed: int) -> None:
    """Whatever its networks say; a machine of which others take and give back a part has other counts meanwhile."""
    jobs = [job(f"j{i}", s, at=at, accelerators=count) for i, (s, at, count, _) in enumerate(asked)]
    others = {moment: partial(_taken, "two", count) for moment, count in ((50.0, 1), (90.0, 0))}
    there = machines(jobs, ONE, TWO, FAST, happen=others)
    found = Driver(jobs, random_policy(seed), there, DriverContext(there.clock))
    found.run()
    assert set(statuses(found).values()) == {Status.FINISHED}
    check_schedule(found.schedule(), jobs)


def test_cores_and_gpu_of_one_server_train_side_by_side_within_its_memory() -> None:
    """The third would fit on the cores that are left, and its memory does not."""
    jobs = [
        replace(job("gpu", 300, server_memory_gib=4.0), work=Iterations(300, {"V100": 1 / 3})),
        replace(job("cpu", 100, server_memory_gib=3.0), work=Iterations(100, {"cpu": 1.0})),
        replace(job("no room", 50, server_memory_gib=3.0), work=Iterations(50, {"cpu": 1.0})),
    ]
    there = machines(jobs, GPU_OF_BOX, CORES_OF_BOX)
    found = driver(jobs, there, "fifo-skip")
    found.run()
    outcomes = {one.job: one for one in found.schedule().outcomes}
    assert there.starts == [("gpu", "box"), ("cpu", "cpu@box"), ("no room", "cpu@box")]
    assert outcomes["cpu"].first_start_seconds == outcomes["gpu"].first_start_seconds == 0
    assert outcomes["no room"].first_start_seconds == pytest.approx(100, abs=0.5)
    check_schedule(found.schedule(), jobs)


def test_what_needs_more_memory_than_any_server_gives_out_is_refused() -> None:
    there = machines([one := job("big", 10, server_memory_gib=9.0)], GPU_OF_BOX, CORES_OF_BOX)
    with pytest.raises(RequestError, match="'big'"):
        driver([one], there).run()


def _taken(name: str, count: int, there: MachinesInMemory) -> None:
    there.others[name] = count


def test_a_policy_that_learned_on_another_cluster_is_refused_before_anything_starts() -> None:
    def refuse(cluster: Cluster) -> None:
        raise RequestError(f"trained elsewhere than on {cluster.count}")

    there = machines([one := job("one", 10)], ONE, TWO)
    policy = Learned(random_policy(1)._chooser, "jct", refuse)
    with pytest.raises(RequestError, match="trained elsewhere than on 3"):
        Driver([one], policy, there, DriverContext(there.clock)).run()
    assert not there.starts


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "srtf", "las", "tiresias", "dally-consolidated"])
def test_where_all_is_as_foretold_the_schedule_is_that_of_the_simulator(policy: str) -> None:
    jobs = [job("a", 100), job("b", 60, accelerators=2), job("c", 30), job("d", 45, at=20), job("e", 80, at=25)]
    found = driver(jobs, machines(jobs, ONE, TWO), policy)
    found.run()
    cluster = Cluster(
        machines=(Machine(name="one", accelerator="cpu"), Machine(name="two", accelerator="cpu", count=2))
    )
    foreseen = simulate(jobs, cluster, make_policy(policy))
    ends = {one.job: one.end_seconds for one in found.schedule().outcomes}
    assert ends == pytest.approx({one.job: one.end_seconds for one in foreseen.outcomes}, abs=0.5)


def test_a_stopped_job_goes_on_from_what_it_had_done() -> None:
    jobs = [job("long", 100), job("short", 10, at=50)]
    there = machines(jobs, ONE)
    found = driver(jobs, there, "srtf")
    found.run()
    long, short = found.schedule().outcomes
    assert (short.end_seconds, long.end_seconds) == pytest.approx((60, 110), abs=0.5)
    assert long.preemptions == 1
    assert [name for name, _ in there.starts] == ["long", "short", "long"]


class UpgradeAt:
    """Begins on the slow machine, and moves what runs to the fast one at a moment."""

    name = "upgrade"
    round_seconds = None

    def decide(self, board: Board) -> float | None:
        for state in list(board.waiting.values()):
            board.start(state, ((0, 1),))
        for state in list(board.running.values()):
            if board.now >= 40 and board.free[1]:
                board.stop(state)
                board.start(state, ((1, 1),))
        return 40.0 if board.now < 40 else None


def test_a_moved_job_goes_on_where_it_was_moved_to() -> None:
    jobs = [job("a", 100)]
    there = machines(jobs, ONE, FAST)
    found = Driver(jobs, UpgradeAt(), there, DriverContext(there.clock))
    found.run()
    (a,) = found.schedule().outcomes
    assert there.starts == [("a", "one"), ("a", "fast")]
    assert (a.migrations, a.preemptions) == (1, 0)
    assert a.end_seconds == pytest.approx(60, abs=0.5)  # 60 of 100 s were left, on a machine three times as fast
    check_schedule(found.schedule(), jobs)


def test_the_processes_of_a_job_lie_on_several_machines_and_are_lost_together() -> None:
    jobs = [job("wide", 100, accelerators=3, part=1), job("whole", 10, at=1, accelerators=2)]
    there = machines(jobs, ONE, TWO, happen={45.0: lambda all_: all_.up.update(one=all_.lose("one"))})
    found = driver(jobs, there)
    found.run()
    assert there.starts == [("wide", "two and one"), ("whole", "two"), ("wide", "two and one")]
    wide = found.jobs["wide"]
    assert [stretch.places for stretch in wide.stretches] == [(("two", 2), ("one", 1))] * 2
    assert wide.stretches[0].accelerators == 3
    assert found.schedule().spans[0].placement == ((1, 2), (0, 1))
    check_schedule(found.schedule(), jobs)


def test_a_part_is_never_divided() -> None:
    there = machines([wide := job("wide", 10, accelerators=4, part=2)], ONE, ONE_MORE, TWO)
    with pytest.raises(RequestError, match="'wide'"):
        driver([wide], there).run()


def test_the_pace_that_is_measured_replaces_the_one_that_was_foretold() -> None:
    jobs = [job("slow", 50), job("middle", 70, at=60)]
    there = machines([replace(jobs[0], work=Iterations(500, {"cpu": 1.0})), jobs[1]], ONE)
    found = driver(jobs, there, "srtf")
    found.run()
    slow, middle = found.schedule().outcomes
    assert middle.end_seconds == pytest.approx(130, abs=2)  # slow has 440 s left, not the few that were foretold
    assert slow.end_seconds == pytest.approx(570, abs=2)


def test_what_ran_on_a_dead_machine_goes_on_elsewhere_from_its_last_checkpoint() -> None:
    jobs = [job("a", 100), job("b", 100)]
    there = machines(jobs, ONE, TWO, happen={45.0: lambda all_: all_.lose("one")})
    found = driver(jobs, there)
    found.run()
    a, b = found.schedule().outcomes
    assert sorted([a.end_seconds, b.end_seconds]) == pytest.approx([100, 105], abs=0.5)  # 40 of the 45 s were saved


def test_a_machine_that_returns_is_used_again() -> None:
    jobs = [job("a", 100), job("b", 100)]
    gone: list[LiveMachine] = []
    there = machines(jobs, ONE, happen={10.0: lambda all_: gone.append(all_.lose("one"))})
    there.happen[30.0] = lambda all_: all_.up.update(one=gone[0])
    found = driver(jobs, there)
    found.run()
    assert found.schedule().end_seconds == pytest.approx(220, abs=1.5)


def test_when_nothing_is_left_that_could_take_a_job_the_fleet_ends_and_goes_on_later() -> None:
    jobs = [job("a", 100, accelerators=2), job("b", 20)]
    kept: list[tuple[JobRecord, ...]] = []
    there = machines(jobs, ONE, TWO, happen={45.0: lambda all_: all_.lose("two")})
    with pytest.raises(InfeasibleError, match="'a'"):
        driver(jobs, there, keep=kept.append).run()
    there.up["two"] = TWO
    found = driver(jobs, there, kept=kept[-1])
    found.run()
    assert set(statuses(found).values()) == {Status.FINISHED}
    assert [name for name, _ in there.starts].count("b") == 1


def test_a_job_that_fails_for_its_own_reason_is_not_tried_again_and_others_go_on() -> None:
    jobs = [job("bad", 10), job("good", 10)]
    said: list[str] = []
    there = machines(jobs, ONE, broken=("bad",))
    found = driver(jobs, there, say=said.append)
    found.run()
    assert statuses(found) == {"bad": Status.FAILED, "good": Status.FINISHED}
    assert [name for name, _ in there.starts] == ["bad", "good"]
    assert "bad failed and is not retried: its loss is not a number any more" in said
    assert [one.job for one in found.schedule().outcomes] == ["good"]


def test_a_job_that_kills_every_process_is_given_up() -> None:
    jobs = [job("deadly", 10), job("good", 10)]
    there = machines(jobs, ONE, deadly=("deadly",))
    found = driver(jobs, there)
    found.run()
    assert statuses(found) == {"deadly": Status.FAILED, "good": Status.FINISHED}
    assert [name for name, _ in there.starts].count("deadly") == MOST_LOSSES + 1


@pytest.mark.parametrize("moment", [0.0, 7.0, 33.0, 61.0, 99.0])
def test_a_killed_driver_is_followed_by_one_that_goes_on_and_starts_nothing_twice(moment: float) -> None:
    jobs = [job("a", 50), job("b", 40), job("c", 30, at=5)]
    kept: list[tuple[JobRecord, ...]] = [()]

    class Killed(BaseException):
        pass

    def kill(all_: MachinesInMemory) -> None:
        raise Killed

    there = machines(jobs, ONE, happen={moment: kill})
    with pytest.raises(Killed):
        _run_killed(driver(jobs, there, keep=kept.append))
    there.kill_all()
    found = driver(jobs, there, kept=kept[-1], keep=kept.append)
    found.run()
    assert set(statuses(found).values()) == {Status.FINISHED}
    assert found.schedule().end_seconds == pytest.approx(120, abs=8)  # at most what came after a checkpoint is lost
    check_schedule(found.schedule(), jobs)


def _run_killed(found: Driver) -> None:
    """A kill runs nothing of what an exception would."""
    found._stop_all = lambda: None  # type: ignore[method-assign]
    found.run()


def test_ctrl_c_lets_what_runs_save_its_state() -> None:
    jobs = [job("a", 100), job("b", 100)]
    kept: list[tuple[JobRecord, ...]] = []
    there = machines(jobs, TWO, checkpoint_every=1.0, interrupt_at=55.0)
    with pytest.raises(KeyboardInterrupt):
        driver(jobs, there, keep=kept.append).run()
    assert not there.runs
    assert [record.share for record in kept[-1]] == pytest.approx([0.55, 0.55], abs=0.01)
    found = driver(jobs, there, kept=kept[-1])
    found.run()
    assert found.schedule().end_seconds == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (job("wide", 10, accelerators=3), "job 'wide' needs 3 accelerators, but the largest suitable machine .* has 2"),
        (Job("odd", 0.0, 1, Iterations(1, {"TPU": 1.0})), "job 'odd' runs on TPU, but the cluster has cpu"),
    ],
)
def test_what_no_machine_could_take_is_refused_at_once(asked: Job, sentence: str) -> None:
    there = machines([asked], ONE, TWO)
    with pytest.raises(RequestError, match=sentence):
        driver([asked], there).run()
    assert not there.starts


def test_what_others_hold_is_left_to_them() -> None:
    jobs = [job("wide", 10, accelerators=2), job("small", 10)]
    there = machines(jobs, TWO)
    there.machines = partial(_with_another, there, until=50.0)  # type: ignore[method-assign]
    found = driver(jobs, there)
    found.run()
    wide, small = found.schedule().outcomes
    assert small.first_start_seconds < 5
    assert wide.first_start_seconds >= 50


def _with_another(there: MachinesInMemory, until: float) -> list[LiveMachine]:
    """Somebody else holds one accelerator of each machine for a while."""
    return [replace(one, free=one.free - (there.now < until)) for one in MachinesInMemory.machines(there)]
