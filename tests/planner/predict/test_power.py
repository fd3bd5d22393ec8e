"""Lower power limits are tried where they can help and are permitted; the device here is a curve, not a GPU."""

import pytest

from shunter.engine.probes.measurement import Measurement
from shunter.errors import HardwareError
from shunter.hardware.types import Placement
from shunter.planner.assessment import Candidate
from shunter.planner.decide import decide
from shunter.planner.predict.power import MOST_STEPS, power_limited, wants_power_limits
from shunter.planner.predict.probes import Probes
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits, Weights
from tests.hardware.profiles import make_workload
from tests.planner.measurements import measurement
from tests.planner.test_decide import TEN_EPOCHS, candidate

LIMITS = [340.0, 280.0, 220.0, 160.0, 100.0]
WORKLOAD = make_workload(train_samples=51_200)
LEADER = candidate(512).model_copy(
    update={"placement": Placement(accelerator="cuda:0", threads=1, precision="fp32", batch_size=512)}
)


def terms(objective: str = "energy", **limits: float) -> Terms:
    return Terms(limits=Limits(**limits), weights=Weights.parse(objective), job=TEN_EPOCHS)


def device(placement: Placement, steps: int) -> Measurement:
    """60 W are drawn at rest, and time grows as the third root of the rest falls: least energy lies in between."""
    assert placement.power_limit_watts is not None
    return measurement(
        0.01 * (300 / (placement.power_limit_watts - 60)) ** (1 / 3),
        steps=steps,
        memory_bytes=2**30,
        mean_watts=placement.power_limit_watts,
        watts_measured=True,
    )


@pytest.mark.parametrize(
    ("allowed", "asked", "leader", "wanted"),
    [
        ("true", terms(), LEADER, True),
        ("true", terms("time", max_kwh=1.0), LEADER, True),
        ("true", terms("time", max_watts=200.0), LEADER, True),
        ("true", terms("time"), LEADER, False),
        ("true", terms(), candidate(512), False),
        ("false", terms(), LEADER, False),
    ],
)
def test_only_where_it_can_help_and_is_permitted(
    monkeypatch: pytest.MonkeyPatch, allowed: str, asked: Terms, leader: Candidate, wanted: bool
) -> None:
    monkeypatch.setenv("SHUNTER_ALLOW_POWER_LIMIT", allowed)
    assert wants_power_limits(leader, asked) is wanted


def test_the_limit_of_least_energy_is_chosen_by_what_was_measured() -> None:
    found = limited({watts: device(at(watts), MOST_STEPS) for watts in LIMITS})
    assert [candidate.placement.power_limit_watts for candidate in found] == LIMITS
    energy = {watts: watts * (300 / (watts - 60)) ** (1 / 3) for watts in LIMITS}
    decision = decide(found, Terms.of(Limits(), "energy", TEN_EPOCHS))
    assert decision.placement.power_limit_watts == min(energy, key=lambda watts: energy[watts])
    assert decision.placement.label.endswith(f" {decision.placement.power_limit_watts:g}W")
    assert decision.prediction.energy_source == "measured"
    assert decide(found, Terms.of(Limits(), "time", TEN_EPOCHS)).placement.power_limit_watts == 340


def test_what_a_limit_does_to_one_batch_size_is_expected_of_the_others() -> None:
    other = LEADER.model_copy(update={"placement": LEADER.placement.model_copy(update={"batch_size": 1024})})
    _, expected = power_limited([LEADER, other], {at(220): device(at(220), MOST_STEPS)}, WORKLOAD)
    assert expected.placement == other.placement.model_copy(update={"power_limit_watts": 220})
    assert (expected.prediction.step_seconds_source, expected.prediction.energy_source) == ("estimated", "estimated")
    slower = device(at(220), MOST_STEPS).step_seconds / LEADER.prediction.step_seconds
    assert expected.prediction.epoch_seconds == pytest.approx(slower * other.prediction.epoch_seconds)


def test_a_limit_whose_power_was_not_measured_tells_nothing() -> None:
    assert limited({220: device(at(220), MOST_STEPS).model_copy(update={"watts_measured": False})}) == []
    assert limited({220: None}) == []


def test_without_the_rights_no_further_limit_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_ALLOW_POWER_LIMIT", "true")
    tried = []

    def refuse(placement: Placement, steps: int) -> Measurement:
        tried.append(placement)
        raise HardwareError("no rights")

    probes = Probes([LEADER], WORKLOAD, terms(), refuse, seconds=600)
    probes.measure_power_limits(lambda _: LIMITS)
    assert [placement.power_limit_watts for placement in tried] == LIMITS[:1]
    assert [candidate.placement for candidate in probes.candidates()] == [LEADER.placement]


def test_a_leader_at_a_power_limit_is_compared_with_other_batch_sizes_without_one() -> None:
    asked: list[Placement] = []

    def measure(placement: Placement, steps: int) -> Measurement:
        asked.append(placement)
        return measurement(0.01, steps=steps, mean_watts=100.0, watts_measured=True)

    leader = candidate(512, seconds=1.0, joules=100.0).model_copy(update={"placement": LEADER.placement})
    smaller = LEADER.placement.model_copy(update={"batch_size": 256})
    slower = candidate(256, seconds=3.0, joules=300.0).model_copy(update={"placement": smaller})
    at_half_the_energy = measurement(0.01, mean_watts=50.0, watts_measured=True)
    known = {LEADER.placement: measurement(0.01, mean_watts=100.0, watts_measured=True), at(160): at_half_the_energy}
    probes = Probes([leader, slower], WORKLOAD, terms(), measure, seconds=600, known=known)
    probes.measure_further(2)
    assert asked == [smaller]


def at(watts: float) -> Placement:
    return LEADER.placement.model_copy(update={"power_limit_watts": watts})


def limited(found: dict[float, Measurement | None]) -> list[Candidate]:
    return power_limited([LEADER], {at(watts): measurement for watts, measurement in found.items()}, WORKLOAD)
