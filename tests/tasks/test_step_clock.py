"""What the clock of a flow says adds up to the time that has passed, whatever its steps are."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.flows.command.summary import format_time
from shunter.hardware.meters.meter import cpu_power_model
from shunter.python_processes import WORKER_RUN, process_age_seconds, process_of_one_run, seconds_before_run
from shunter.settings import PROJECT_ROOT
from shunter.tasks.step_clock import OTHER, START, ProcessEnergy, StepClock
from shunter.tracking.convention import WALL_SECONDS, account_metrics, read_account

SECONDS = st.floats(min_value=0, max_value=1e5)
STEPS = st.lists(st.tuples(st.sampled_from(["ingest", "select", "train"]), SECONDS, SECONDS), max_size=6)


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@given(before=SECONDS, steps=STEPS)
def test_steps_start_and_the_rest_add_up_to_the_wall_clock(
    before: float, steps: list[tuple[str, float, float]]
) -> None:
    now = Clock()
    clock = StepClock(before, now)
    for name, between, within in steps:
        now.seconds += between
        with clock.step(name):
            now.seconds += within
    account = clock.account()
    assert sum(account.values()) == pytest.approx(before + now.seconds - 1000.0)
    assert account[OTHER] == pytest.approx(sum(between for _, between, _ in steps), abs=1e-6)
    assert (START in account) == (before > 0)
    assert clock.account() == account


def test_a_wait_for_others_is_in_the_account_and_not_in_what_a_run_used() -> None:
    now = Clock()
    clock = StepClock(before=3.0, now=now)
    with clock.command.paused():
        now.seconds += 45.0
    now.seconds += 5.0
    assert clock.command.seconds == 8.0
    assert sum(clock.account().values()) == 53.0


def test_a_step_that_failed_is_in_the_rest() -> None:
    now = Clock()
    clock = StepClock(now=now)

    def fail() -> None:
        with clock.step("train"):
            now.seconds += 5.0
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert clock.account() == {OTHER: 5.0}


def test_the_run_holds_the_steps_and_their_sum() -> None:
    metrics = account_metrics({START: 2.0, "train": 5.0, OTHER: 1.0})
    assert metrics[WALL_SECONDS] == 8.0
    assert read_account({**metrics, "time.total_seconds": 9.0, "time.compile_seconds": 3.0}) == {
        "train": 5.0,
        START: 2.0,
        OTHER: 1.0,
    }


def test_the_time_of_the_command_holds_that_of_earlier_attempts() -> None:
    steps = {START: 2.0, "train": 5.0, OTHER: 1.0}
    assert format_time(steps, 9.0) == "9.0 s: earlier attempts 1.0, start 2.0, train 5.0, other 1.0"
    assert format_time(steps, 8.0) == "8.0 s: start 2.0, train 5.0, other 1.0"


def test_a_running_step_is_in_the_account() -> None:
    now = Clock()
    clock = StepClock(now=now)
    with clock.step("report"):
        now.seconds += 5.0
        assert clock.account() == {"report": 5.0, OTHER: 0.0}
    assert clock.account() == {"report": 5.0, OTHER: 0.0}


def test_a_later_attempt_adds_the_wall_clock_of_those_before_with_their_waits(tmp_path: Path) -> None:
    now = Clock()
    first = StepClock(before=3.0, now=now)
    with first.command.kept_in(tmp_path), first.command.paused():
        now.seconds += 45.0
    second = StepClock(before=2.0, now=now)
    with second.command.kept_in(tmp_path):
        assert second.command.seconds == 5.0
        assert second.command.earlier_wall_seconds == 48.0
        assert second.command.wall_seconds == 50.0


def test_the_energy_of_a_process_leaves_out_the_work_of_a_meter() -> None:
    now, used = Clock(), [4.0]
    energy = ProcessEnergy(2.0, lambda: used[0], now)
    model = cpu_power_model()
    start = energy.take()
    assert start.seconds == 2.0
    assert start.joules == pytest.approx(2 * model.idle_watts + 4 * model.busy_watts_per_core)
    now.seconds, used[0] = now.seconds + 100, 200.0
    energy.restart()
    now.seconds, used[0] = now.seconds + 1, 201.0
    assert energy.take().joules == pytest.approx(model.watts(1.0))


def test_a_process_knows_how_long_it_has_lived() -> None:
    assert process_age_seconds() <= process_age_seconds()
    module = "shunter.python_processes"
    asked = f"import time; from {module} import process_age_seconds as a; age = a(); print(time.time() - age)"
    before = time.time()
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=PROJECT_ROOT)
    assert before - 0.05 <= float(done.stdout) <= time.time()


def test_only_a_process_of_one_run_counts_what_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKER_RUN, raising=False)
    assert seconds_before_run() == 0.0
    with process_of_one_run():
        assert seconds_before_run() > 0.0
    assert seconds_before_run() == 0.0
    age = process_age_seconds()
    with process_of_one_run():
        assert seconds_before_run() <= process_age_seconds() - age + 1  # not what the run before has taken
    monkeypatch.setitem(os.environ, WORKER_RUN, "0f0f")
    assert seconds_before_run() > 0.0
