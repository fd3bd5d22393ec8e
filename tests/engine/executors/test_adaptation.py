"""The watch over a run, on machines whose step times are known: no clock but the seconds that it is told."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.engine.executors.adaptation import QUIET_STEPS, WINDOW_SECONDS, WINDOWS_OUTSIDE, Adaptation, Change
from shunter.hardware.types import Placement

THREADS = [Placement(accelerator="cpu", threads=threads, precision="fp32", batch_size=512) for threads in (1, 2, 4, 8)]
ONE, TWO, FOUR, EIGHT = THREADS
STEP_SECONDS = 0.1
WINDOW = round(WINDOW_SECONDS / STEP_SECONDS) + 10  # 20 steps of 0.1 s are the larger bound


def fastest(present: Placement, times: Mapping[Placement, float]) -> Placement:
    return min(times, key=lambda one: times[one])


class Machine:
    """Runs steps whose time follows from the threads and the number of the step; keeps what was changed."""

    def __init__(self, placement: Placement, choices: list[Placement] = THREADS) -> None:
        self.changes: list[Change] = []
        self.threads = placement.threads
        self.used: list[int] = []
        expected = (0.8 * STEP_SECONDS, 1.25 * STEP_SECONDS)
        self.adaptation = Adaptation(placement, expected, choices, fastest, on_change=self.changes.append)

    def run(self, steps: int, seconds: Callable[[int], float]) -> None:
        for _ in range(steps):
            self.used.append(self.threads)
            self.threads = self.adaptation.after_step(seconds(self.threads))


def test_steps_within_the_interval_change_nothing() -> None:
    machine = Machine(TWO)
    machine.run(5_000, lambda threads: STEP_SECONDS)
    assert machine.changes == []
    assert set(machine.used) == {2}


def test_a_short_disturbance_is_none() -> None:
    machine = Machine(TWO)
    for _ in range(20):
        machine.run(200, lambda threads: STEP_SECONDS)
        machine.run((WINDOWS_OUTSIDE - 1) * 20, lambda threads: 5 * STEP_SECONDS)
    assert machine.changes == []


def test_a_lasting_one_tries_the_neighbours_and_takes_the_better() -> None:
    machine = Machine(TWO)
    machine.run(200, lambda threads: STEP_SECONDS)
    crowded = {1: 0.15, 2: 0.3, 4: 0.6, 8: 1.2}
    machine.run(500, crowded.__getitem__)
    (change,) = machine.changes
    assert (change.before, change.after) == (TWO, ONE)
    assert change.tried == {ONE: 0.15, TWO: 0.3, FOUR: 0.6}
    assert change.observed == 0.3
    assert machine.threads == 1
    assert machine.adaptation.expected == pytest.approx((0.12, 0.1875)), "as wide as predicted, about what was measured"
    assert "outside of the 80 to 125 ms that were predicted" in change.explain()
    assert "1 thread(s) replace 2" in change.explain()


def test_while_more_is_better_it_goes_on() -> None:
    machine = Machine(ONE)
    machine.run(1_000, lambda threads: 1.0 / threads)
    assert machine.changes[0].after == EIGHT
    assert set(machine.changes[0].tried) == set(THREADS)


def test_a_machine_that_became_free_is_tried_too() -> None:
    machine = Machine(ONE)
    machine.run(100, lambda threads: STEP_SECONDS)
    machine.run(400, lambda threads: {1: 0.05, 2: 0.025, 4: 0.03}[threads])
    assert machine.changes[0].after == TWO


def test_where_nothing_is_better_the_placement_stays_and_its_time_is_the_new_expectation() -> None:
    machine = Machine(TWO)
    machine.run(20_000, lambda threads: {1: 0.5, 2: 0.4, 4: 0.6}[threads])
    (change,) = machine.changes
    assert change.after == change.before == TWO
    assert "2 thread(s) stay" in change.explain()


def test_with_one_choice_it_only_says_so() -> None:
    machine = Machine(ONE, [ONE])
    machine.run(500, lambda threads: 0.5)
    assert "no other number of threads" in machine.changes[0].explain()
    assert set(machine.used) == {1}


@given(st.integers(0, 2**32 - 1), st.sampled_from(THREADS))
@settings(max_examples=12)
def test_trials_are_rare_whatever_the_machine_does(seed: int, start: Placement) -> None:
    """Times over four decades, never within any interval for long."""
    seconds = iter(10 ** np.random.default_rng(seed).uniform(-3, 1, 3 * QUIET_STEPS))
    machine = Machine(start)
    machine.run(3 * QUIET_STEPS, lambda threads: float(next(seconds)))
    assert len(machine.changes) <= 2, "the second quiet time is twice as long"
    if len(machine.changes) == 2:
        assert machine.changes[1].step - machine.changes[0].step > QUIET_STEPS
    for change in machine.changes:
        trial = machine.used[change.step : change.step + QUIET_STEPS // 20 * 2]
        assert trial[-1] == change.after.threads, "a trial is over after a tenth of the quiet time"
    assert set(machine.used) <= {one.threads for one in THREADS}
