"""An accelerator is held by one process at a time; who waits says for whom, and a killed holder holds nothing."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shunter.hardware.leases import all_leases
from shunter.hardware.reservation import (
    Reservation,
    cores_reserved_here,
    reserve,
    trainings_together,
    wanted,
    watching,
)
from shunter.hardware.reservation_queue import first_in_queue
from shunter.hardware.types import HardwareProfile, Placement
from shunter.requests import TrainRequest
from tests.hardware.profiles import make_profile

HOLD = """
import sys
import shunter.hardware.leases
from shunter.hardware.reservation import reserve
shunter.hardware.leases._identity = lambda name: name.replace(":", "-")  # there may be no such device here
with reserve(*[[name] for name in sys.argv[1:]], holder="train-elsewhere"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(*names: str) -> "Iterator[subprocess.Popen[str]]":
    """Another process holds the accelerators until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def reserved_here() -> tuple[str, ...]:
    """What this process holds, as a watcher is told at once."""
    told: list[tuple[str, ...]] = []
    with watching(lambda names: told.append(tuple(names))):
        return told[-1]


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of GPUs stand for themselves, since there may be none to ask."""
    monkeypatch.setattr("shunter.hardware.leases._identity", lambda name: name.replace(":", "-"))


def test_who_waits_with_a_higher_priority_goes_first(devices: None) -> None:
    order: list[str] = []
    waits = {name: threading.Event() for name in ("usual", "urgent")}

    def train(name: str, priority: int) -> None:
        def report(sentence: str) -> None:
            if "waiting" in sentence:
                waits[name].set()

        with reserve(["cuda:7"], holder=name, report=report, priority=priority):
            order.append(name)

    with held_elsewhere("cuda:7"):
        threads = [threading.Thread(target=train, args=one) for one in (("usual", 0), ("urgent", 2))]
        for thread, name in zip(threads, waits, strict=True):
            thread.start()
            assert waits[name].wait(30)
        waiter = first_in_queue(1, ["cuda:7", "cpu"])
        assert waiter is not None
        assert (waiter.name, waiter.priority) == ("urgent", 2)
        assert first_in_queue(1, ["cpu"]) is None
        assert first_in_queue(2, ["cuda:7"]) is None
    for thread in threads:
        thread.join(30)
    assert order == ["urgent", "usual"]
    assert first_in_queue(-100, ["cuda:7"]) is None


def test_a_killed_waiter_holds_up_nobody(devices: None) -> None:
    imported = "from shunter.hardware.reservation_queue import in_queue"
    code = f"{imported}\nwith in_queue('x', 9, ['cpu']): print('in', flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        assert first_in_queue(0, ["cpu"]) is not None
        process.kill()
    assert first_in_queue(0, ["cpu"]) is None


def gpu_profiles(*models: str) -> list[HardwareProfile]:
    """A processor and GPUs of these models."""
    profiles = [make_profile()]
    for index, model in enumerate(models):
        profile = make_profile(name=f"cuda:{index}")
        accelerator = profile.accelerator.model_copy(update={"model": model})
        profiles.append(profile.model_copy(update={"accelerator": accelerator}))
    return profiles


def placement(accelerator: str) -> Placement:
    return Placement(accelerator=accelerator, threads=1, precision="fp32", batch_size=8)


def test_a_choice_wants_one_accelerator_of_each_model() -> None:
    assert wanted(gpu_profiles("A100", "A100", "T4")) == [["cpu"], ["cuda:0", "cuda:1"], ["cuda:2"]]


def test_processes_that_train_together_want_every_accelerator() -> None:
    assert wanted(gpu_profiles("A100", "A100"), processes=2) == [["cpu"], ["cuda:0"], ["cuda:1"]]


def test_a_run_that_goes_on_wants_what_it_had_chosen() -> None:
    profiles = gpu_profiles("A100", "A100")
    assert wanted(profiles, chosen=placement("cuda:1")) == [["cuda:1"]]
    assert wanted(profiles, chosen=placement("cuda:0"), processes=2) == [["cuda:0"], ["cuda:1"]]
    assert wanted(profiles, chosen=placement("cpu"), processes=2) == [["cpu"]]


def test_of_a_group_the_free_one_is_taken_and_of_all_groups_every_one_or_none(devices: None) -> None:
    with held_elsewhere("cuda:0"):
        reservation = Reservation()
        assert reservation.take([["cpu"], ["cuda:0", "cuda:1"]], "here") is None
        assert reservation.names == ("cpu", "cuda:1")
        reservation.release()
        assert reservation.take([["cpu"], ["cuda:0"]], "here") == "cuda:0"
        assert reservation.names == ()


def test_what_the_placement_does_not_use_is_free_for_others(devices: None) -> None:
    with reserve(["cpu"], ["cuda:0"], ["cuda:1"], holder="here") as reservation:
        reservation.keep(placement("cuda:0"), processes=2)
        assert reservation.names == ("cuda:0", "cuda:1")
        reservation.keep(placement("cuda:1"))
        assert reservation.names == ("cuda:1",)
        with held_elsewhere("cpu", "cuda:0"):
            assert [profile.accelerator.name for profile in reservation.of(gpu_profiles("T4", "T4"))] == ["cuda:1"]


def test_who_waits_says_for_whom_and_goes_on_when_the_holder_is_killed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shunter.hardware.reservation.POLL_SECONDS", 0.05)
    with held_elsewhere("cpu") as holder:
        threading.Timer(0.5, holder.kill).start()
        with reserve(["cpu"], holder="here") as reservation:
            assert reservation.names == ("cpu",)
        said = capfd.readouterr().err
        assert f"cpu is used by train-elsewhere (process {holder.pid}, since " in said
        assert said.count("waiting until that job ends") == 1
        assert "Continuing with cpu." in said


def test_a_flow_called_by_another_one_gets_what_its_caller_holds() -> None:
    with reserve(["cpu"], holder="nightly"):
        with reserve(["cpu"], holder="train") as inner:
            assert inner.names == ("cpu",)
        with reserve(["cpu"], holder="train again"):
            pass
    with held_elsewhere("cpu"):
        assert Reservation().take([["cpu"]], "here") == "cpu"


def test_who_has_waited_long_enough_goes_on_beside_the_other(capfd: pytest.CaptureFixture[str]) -> None:
    with held_elsewhere("cpu"), reserve(["cpu"], holder="profile", patience_seconds=0) as reservation:
        assert reservation.names == ()
    assert "continuing on the same device" in capfd.readouterr().err


def test_who_is_told_of_the_wait_can_be_chosen(capfd: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []
    with held_elsewhere("cpu"), reserve(["cpu"], holder="profile", patience_seconds=0, report=told.append):
        pass
    assert len(told) == 1
    assert "continuing on the same device" in told[0]
    assert capfd.readouterr().err == ""


def test_trials_at_a_time_take_as_many_gpus_as_there_are() -> None:
    assert trainings_together(TrainRequest(parallel_trials=4), gpu_profiles("H", "H"), 1) == 2
    assert trainings_together(TrainRequest(parallel_trials=4), [], 1) == 1
    assert trainings_together(TrainRequest(), [], 2) == 2


class TestWatching:
    """Whoever measures energy is told what this process holds, and is not told of what it could not get."""

    @pytest.mark.usefixtures("devices")
    def test_each_change_is_told_and_the_first_state_too(self) -> None:
        told: list[tuple[str, ...]] = []
        with watching(lambda names: told.append(tuple(names))), reserve(["cpu"], ["cuda:0"], holder="test") as held:
            held.keep(placement("cuda:0"))
            assert reserved_here() == ("cuda:0",)
        assert told == [(), ("cpu", "cuda:0"), ("cuda:0",), ()]

    @pytest.mark.usefixtures("devices")
    def test_reservations_that_nest_hold_until_the_last_gives_back(self) -> None:
        with reserve(["cuda:0"], holder="outer"):
            with reserve(["cuda:0"], ["cuda:1"], holder="inner"):
                assert set(reserved_here()) == {"cuda:0", "cuda:1"}
            assert reserved_here() == ("cuda:0",)
        assert reserved_here() == ()

    @pytest.mark.usefixtures("devices")
    def test_what_another_flow_holds_is_never_told(self) -> None:
        told: list[tuple[str, ...]] = []
        with held_elsewhere("cuda:1"), watching(lambda names: told.append(tuple(names))):
            assert Reservation().take([["cuda:0"], ["cuda:1"]], "test") == "cuda:1"
        assert told == [()]


SHARE = """
import sys
import shunter.hardware.leases
shunter.hardware.leases.usable_cores = lambda: 4
from shunter.hardware.reservation import reserve
from shunter.hardware.types import Placement
with reserve(["cpu"], holder="train-small") as held:
    placement = Placement(accelerator="cpu", threads=3, precision="fp32", batch_size=8)
    held.keep(placement, memory_bytes=int(sys.argv[1]))
    print("held", flush=True)
    sys.stdin.read()
"""


class TestSharingTheProcessor:
    """A training keeps as many cores as it has threads; the next one gets the others, and all when it is killed."""

    @pytest.fixture(autouse=True)
    def four_cores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shunter.hardware.leases.usable_cores", lambda: 4)

    @contextmanager
    def three_of_four(self, memory_bytes: int = 2**20) -> "Iterator[subprocess.Popen[str]]":
        process = subprocess.Popen(
            [sys.executable, "-c", SHARE, str(memory_bytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def test_the_rest_is_lent_with_what_is_left_of_the_memory_and_all_once_the_holder_is_killed(self) -> None:
        profile = make_profile()
        profile = profile.model_copy(update={"accelerator": profile.accelerator.model_copy(update={"cores": 4})})
        with self.three_of_four() as other:
            ((name, lease),) = all_leases()
            assert (name, lease.pid, lease.cores) == ("cpu", other.pid, 3)
            with reserve(["cpu"], holder="here", accept=lambda held: held.cores >= 1) as held:
                (left,) = held.of([profile])
                assert left.accelerator.cores == held.cores == cores_reserved_here() == 1
                assert left.accelerator.memory_bytes <= profile.accelerator.memory_bytes - 2**20
                assert {lease.pid: lease.cores for _, lease in all_leases()} == {other.pid: 3, os.getpid(): 1}
            other.kill()
            other.wait()
            assert all_leases() == []
            with reserve(["cpu"], holder="here") as held:
                assert held.cores == 4
                assert held.of([profile]) == [profile]

    def test_nobody_shares_with_one_whose_memory_is_unknown(self) -> None:
        with self.three_of_four(memory_bytes=0):  # which then keeps all four
            assert not Reservation().take_what_is_free([["cpu"]], "here")
            assert [lease.cores for _, lease in all_leases()] == [4]

    def test_who_does_not_accept_the_rest_gives_it_back_while_it_waits(self) -> None:
        asked: list[int] = []

        def accept(held: Reservation) -> bool:
            asked.append(held.cores)
            return False

        with self.three_of_four(), reserve(["cpu"], holder="here", patience_seconds=0, accept=accept) as held:
            assert asked == [1]
            assert held.names == ()
            assert len(all_leases()) == 1

    def test_a_lease_within_a_lease_takes_nothing_from_it(self) -> None:
        with reserve(["cpu"], holder="night") as outer:
            with reserve(["cpu"], holder="train") as inner:
                inner.keep(placement("cpu"), memory_bytes=1)
                assert (inner.cores, outer.cores) == (1, 4)
            assert reserved_here() == ("cpu",)
        assert cores_reserved_here() == 0
