"""Limits on time, energy and money: when they are used up, and the reason then."""

import pytest

from shunter.engine.stopping import Budget, StopKind, StopLimit, StopReason
from shunter.hardware.meters.component import Component
from shunter.hardware.meters.meter import EnergyMeter
from shunter.hardware.meters.source import EnergySource


class Watts(EnergySource):
    """Counts ten joules a second of the given clock."""

    method = "measured"
    description = "test counter"

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self.readings = 0

    def joules(self) -> float:
        self.readings += 1
        return 10.0 * self._clock.now


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("limits", "enough", "too_long", "limit", "details"),
    [
        ({"max_seconds": 3600}, 3599, 3600, "time", {"hours": 1}),
        ({"max_seconds": 3600, "used_seconds": 3000}, 599, 600, "time", {"hours": 1}),
        ({"max_joules": 3.6e6}, 359_998, 360_000, "energy", {"kwh": 1}),
        ({"max_joules": 3.6e6, "used_joules": 3.5e6}, 9_998, 10_000, "energy", {"kwh": 1}),
        ({"max_cost": 2, "price_per_hour": 4}, 1799, 1800, "cost", {"cost": 2}),
    ],
)
def test_exhausted(
    limits: dict[str, float], enough: float, too_long: float, limit: str, details: dict[str, float]
) -> None:
    clock = Clock()
    with EnergyMeter([Component("processor", [Watts(clock)])], clock, sample=False) as meter:
        budget = Budget(meter=meter, **limits)
        clock.now = enough
        assert budget.exhausted() is None
        clock.now = too_long
        assert budget.exhausted() == StopReason(StopKind.LIMIT, StopLimit(limit), details)


def test_without_a_limit_nothing_ends_the_work() -> None:
    clock = Clock()
    with EnergyMeter([], clock, sample=False) as meter:
        clock.now = 1e9
        assert Budget(meter=meter).exhausted() is None


def test_what_was_used_before_is_carried_in() -> None:
    clock = Clock()
    with EnergyMeter([Component("processor", [Watts(clock)])], clock, sample=False) as meter:
        budget = Budget(meter=meter, price_per_hour=3600, used_seconds=5, used_joules=7)
        clock.now = 2.0
        assert (budget.seconds, budget.joules, budget.cost) == (7.0, 27.0, 7.0)


def test_an_energy_limit_that_nobody_can_watch_stops_the_work() -> None:
    clock = Clock()
    with EnergyMeter([Component("processor", [], ["no counter"])], clock, sample=False) as meter:
        clock.now = 2.0
        reason = Budget(meter=meter, max_joules=1.0).exhausted()
        assert Budget(meter=meter).joules is None
    assert reason is not None
    assert (reason.kind, reason.limit) == (StopKind.LIMIT, StopLimit.ENERGY)
    assert "no counter" in str(reason.details["unavailable"])


def test_asking_after_every_step_does_not_read_the_counter_every_time() -> None:
    clock = Clock()
    source = Watts(clock)
    with EnergyMeter([Component("processor", [source])], clock, sample=False) as meter:
        budget = Budget(meter=meter, max_joules=1e6)
        for step in range(1000):
            clock.now = step / 1000
            assert budget.exhausted() is None
        assert source.readings <= 4


def test_a_limit_on_cost_needs_the_price() -> None:
    with pytest.raises(AssertionError, match="needs the price"):
        Budget(meter=EnergyMeter([]), max_cost=1.0)
