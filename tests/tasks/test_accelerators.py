"""A flow begins on the cores that others leave, where waiting for more would not pay, and keeps what it needs."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shunter.hardware.leases import all_leases
from shunter.planner.decide import Decision
from shunter.requests import TrainRequest
from shunter.tasks.accelerators import keep_chosen, reserve_for_flow
from tests.hardware.profiles import make_profile
from tests.planner.test_redecide import ONE, TWO, decision

# Holds both cores, then one of them for so many minutes, until its input ends.
HOLD_ONE = """
import sys
from datetime import UTC, datetime, timedelta
import shunter.hardware.leases
shunter.hardware.leases.usable_cores = lambda: 2
from shunter.hardware.reservation import reserve
from shunter.hardware.types import Placement
with reserve(["cpu"], holder="train-other") as held:
    placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=8)
    until = datetime.now(UTC) + timedelta(minutes=float(sys.argv[1]))
    held.keep(placement, memory_bytes=1, until=until)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shunter.hardware.leases.usable_cores", lambda: 2)
    monkeypatch.setattr("shunter.hardware.reservation.POLL_SECONDS", 0.05)


@contextmanager
def one_core_used(minutes: float) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_ONE, str(minutes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_an_hour_on_one_core_is_begun_beside_another_that_takes_as_long(capfd: pytest.CaptureFixture[str]) -> None:
    with one_core_used(60) as other, reserve_for_flow([make_profile()], estimate=decision) as held:
        assert held.cores == 1
        assert f"cpu is used by train-other (process {other.pid}" in capfd.readouterr().err


def test_it_waits_for_both_cores_where_the_other_is_soon_through_and_gets_them_once_that_is_killed() -> None:
    with one_core_used(10) as other:

        def estimate() -> Decision:
            other.kill()  # after which the next look finds both
            return decision()

        with reserve_for_flow([make_profile()], estimate=estimate) as held:
            assert held.cores == 2


def test_an_interrupted_run_takes_the_cores_that_it_had_chosen() -> None:
    chosen = decision("energy")
    assert chosen.placement == ONE.placement
    with one_core_used(10), reserve_for_flow([make_profile()], decision=chosen) as held:
        assert held.cores == 1


@pytest.mark.parametrize(
    ("request_", "cores"),
    [
        pytest.param(TrainRequest(), 1, id="one training keeps as many cores as threads"),
        pytest.param(TrainRequest(parallel_trials=2), 2, id="trials at a time keep all"),
        pytest.param(TrainRequest(model="lightgcn"), 2, id="a graph model keeps all"),
    ],
)
def test_what_is_kept_once_the_placement_is_chosen(request_: TrainRequest, cores: int) -> None:
    chosen, profiles = decision("energy"), [make_profile()]
    with reserve_for_flow(profiles) as held:
        assert held.cores == 2
        keep_chosen(held, chosen, request_, profiles)
        ((name, lease),) = all_leases()
        assert (name, held.cores, lease.cores) == ("cpu", cores, cores)
        assert lease.until is not None
        assert bool(lease.memory_bytes) == (cores == 1)


def test_all_cores_are_kept_by_one_training_that_uses_them() -> None:
    chosen, profiles = decision(), [make_profile()]
    assert chosen.placement == TWO.placement
    with reserve_for_flow(profiles) as held:
        keep_chosen(held, chosen, TrainRequest(), profiles)
        assert held.cores == 2
