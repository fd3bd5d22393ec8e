"""When a training or a search ends: limits on time, energy and money, and the clock of a command."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shunter import parallel
from shunter.engine.stopping import (
    CLOCK_FILE,
    WORK,
    Budget,
    StopConditions,
    StopKind,
    StopLimit,
    StopReason,
    time_limit,
)
from shunter.hardware.meters.component import Component
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.meters.source import EnergySource
from tests.engine.reasons import ENOUGH, HandClock


class Watts(EnergySource):
    """Counts ten joules a second of the given clock."""

    method = "measured"
    description = "test counter"

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.readings = 0

    def joules(self) -> float:
        self.readings += 1
        return 10.0 * self._clock.now


@pytest.mark.parametrize(
    ("limits", "enough", "too_long", "limit", "details"),
    [
        ({"max_seconds": 3600}, 3599, 3600, "time", {"hours": 1}),
        ({"max_joules": 3.6e6}, 359_998, 360_000, "energy", {"kwh": 1}),
        ({"max_joules": 3.6e6, "used_joules": 3.5e6}, 9_998, 10_000, "energy", {"kwh": 1}),
        ({"max_cost": 2, "price_per_hour": 4}, 1799, 1800, "cost", {"cost": 2}),
    ],
)
def test_exhausted(
    limits: dict[str, float], enough: float, too_long: float, limit: str, details: dict[str, float]
) -> None:
    clock = HandClock()
    with metered(clock) as meter:
        budget = Budget(clock=clock, meter=meter, **limits)
        clock.now = enough
        assert budget.exhausted() is None
        clock.now = too_long
        assert budget.exhausted() == StopReason(StopKind.LIMIT, StopLimit(limit), details)


@contextmanager
def metered(clock: HandClock) -> Iterator[EnergyMeter]:
    """The work of a request, with a meter."""
    meter = EnergyMeter([Component("processor", [Watts(clock)])], lambda: clock.now, sample=False)
    with clock.counting(WORK), meter:
        yield meter


def test_without_a_limit_nothing_ends_the_work() -> None:
    clock = HandClock()
    with metered(clock) as meter:
        clock.now = 1e9
        assert Budget(clock=clock, meter=meter).exhausted() is None


@pytest.mark.parametrize(
    ("limits", "limit"),
    [
        ({"max_seconds": 30}, StopLimit.TIME),
        ({"max_cost": 30, "price_per_hour": 3600}, StopLimit.COST),
        ({"max_joules": 300, "used_joules": 100}, StopLimit.ENERGY),
    ],
)
def test_each_limit_counts_the_command_from_its_start_and_reserves_its_end(
    limits: dict[str, float], limit: StopLimit
) -> None:
    clock = HandClock(before=10.0)
    with metered(clock) as meter:
        budget = Budget(clock=clock, meter=meter, **limits)
        budget.ending_seconds = 5.0
        assert budget.is_limited
        assert budget.left_seconds == pytest.approx(15.0)
        assert budget.first_limit.limit is limit
        clock.now += 14.0
        assert budget.exhausted() is None
        clock.now += 2.0
        reason = budget.exhausted()
        assert reason is not None
        assert reason.limit is limit


def test_what_was_used_before_is_carried_in() -> None:
    clock = HandClock(work=5.0)
    with metered(clock) as meter:
        budget = Budget(clock=clock, meter=meter, price_per_hour=3600, used_joules=7)
        clock.now += 2.0
        assert (budget.seconds, budget.joules, budget.cost) == (7.0, 27.0, 7.0)


def test_an_energy_limit_that_nobody_can_watch_stops_the_work() -> None:
    clock = HandClock()
    with EnergyMeter([Component("processor", [], ["no counter"])], sample=False) as meter:
        budget = Budget(clock=clock, meter=meter, max_joules=1.0)
        assert budget.joules is None
        assert budget.exhausted() is None, "a counter needs a moment before its first difference means something"
        clock.now = 2.0
        reason = budget.exhausted()
    assert reason is not None
    assert (reason.kind, reason.limit) == (StopKind.LIMIT, StopLimit.ENERGY)
    assert "no counter" in str(reason.details["unavailable"])


def test_asking_after_every_step_does_not_read_the_counter_every_time() -> None:
    clock = HandClock()
    source = Watts(clock)
    with EnergyMeter([Component("processor", [source])], lambda: clock.now, sample=False) as meter:
        budget = Budget(clock=clock, meter=meter, max_joules=1e6)
        for step in range(1000):
            clock.now = step / 1000
            assert budget.exhausted() is None
        assert source.readings <= 4


def test_a_limit_on_cost_needs_the_price() -> None:
    with pytest.raises(AssertionError, match="needs the price"):
        Budget(clock=HandClock(), meter=EnergyMeter([]), max_cost=1.0)


def test_the_clock_of_a_command_goes_on_after_an_interruption(tmp_path: Path) -> None:
    first = HandClock(before=3.0)

    def work() -> None:
        with first.kept_in(tmp_path), first.counting("trials"):
            first.start("exploration")
            first.now += 10.0
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    first.now += 100.0  # nothing runs between the attempts
    second = HandClock(before=2.0)
    with second.kept_in(tmp_path):
        assert (second.seconds, second.attempt_seconds) == (15.0, 2.0)
        assert (second.seconds_of("trials"), second.seconds_of("exploration")) == (10.0, 10.0)
        with second.counting("trials"):
            second.now += 5.0
    third = HandClock()
    with third.kept_in(tmp_path):
        assert (third.seconds, third.seconds_of("trials"), third.seconds_of("members")) == (20.0, 15.0, 0.0)


def test_a_killed_attempt_has_kept_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "INTERVAL_SECONDS", 0.01)
    killed, again = HandClock(), HandClock()
    with killed.kept_in(tmp_path), killed.counting("trials"):
        killed.now += 7.0
        for _ in range(2):  # the first file may hold what was read before the seven seconds
            (tmp_path / CLOCK_FILE).unlink(missing_ok=True)
            while not (tmp_path / CLOCK_FILE).exists():
                time.sleep(0.01)
        kept = shutil.copytree(tmp_path, tmp_path.with_name("killed"), ignore=shutil.ignore_patterns("*.tmp"))
    with again.kept_in(kept):
        assert (again.seconds, again.seconds_of("trials")) == (7.0, 7.0)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"seconds": "x"}', '{"seconds": 3, "spans": {"a": null}}'])
def test_a_damaged_clock_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / CLOCK_FILE).write_text(text)
    clock = HandClock()
    with clock.kept_in(tmp_path):
        assert clock.seconds == 0.0


def test_waits_are_left_out() -> None:
    clock = HandClock()
    with clock.counting("trials"), clock.paused():
        clock.now += 45.0
    clock.now += 8.0
    assert (clock.seconds, clock.seconds_of("trials")) == (8.0, 0.0)


def test_the_first_condition_that_is_met_counts() -> None:
    clock, other = HandClock(), StopReason(StopKind.SEARCH_BUDGET, StopLimit.TIME, {"minutes": 1.0})
    explored = time_limit(clock, "exploration", 60.0, ENOUGH)
    stop = StopConditions(clock, (lambda: None,)).also(explored).also(lambda: other).also(None)
    assert stop.check() == other
    clock.now += 59.0
    assert stop.check() == other
    clock.now += 1.0
    assert stop.check() == ENOUGH
    assert stop.without(explored).check() == other


def test_the_time_of_a_condition_counts_from_its_first_check_over_all_attempts(tmp_path: Path) -> None:
    first, second = HandClock(), HandClock()
    with first.kept_in(tmp_path):
        ended = time_limit(first, "exploration", 60.0, ENOUGH)
        first.now += 500.0
        assert ended() is None
        first.now += 40.0
        assert ended() is None
    with second.kept_in(tmp_path):
        ended = time_limit(second, "exploration", 60.0, lambda: ENOUGH)
        second.now += 500.0
        assert ended() is None
        second.now += 20.0
        assert ended() == ENOUGH
