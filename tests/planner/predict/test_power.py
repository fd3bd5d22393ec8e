"""Lower power limits are tried where they can help and are permitted; the device here is a curve, not a GPU."""

import pytest

from engine.probes.measurement import Measurement
from hardware.types import Placement
from planner.assessment import Candidate
from planner.decide import decide
from planner.predict.power import LIMITS_TRIED, power_limited, wants_power_limits
from planner.rank.totals import Terms
from shunter.errors import HardwareError
from shunter.requests import Limits, Weights
from tests.hardware.profiles import make_workload
from tests.planner.measurements import measurement
from tests.planner.test_decide import TEN_EPOCHS, candidate

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
    found = power_limited(LEADER, (100.0, 400.0), WORKLOAD, device)
    assert [limited.placement.power_limit_watts for limited in found] == [340, 280, 220, 160, 100]
    assert len(found) == LIMITS_TRIED
    energy = {watts: watts * (300 / (watts - 60)) ** (1 / 3) for watts in (340, 280, 220, 160, 100)}
    decision = decide(found, Terms.of(Limits(), "energy", TEN_EPOCHS))
    assert decision.placement.power_limit_watts == min(energy, key=lambda watts: energy[watts])
    assert decision.placement.label.endswith(f" {decision.placement.power_limit_watts:g}W")
    assert decision.prediction.energy_source == "measured"
    assert decide(found, Terms.of(Limits(), "time", TEN_EPOCHS)).placement.power_limit_watts == 340


def test_without_the_rights_or_the_counter_nothing_is_added() -> None:
    tried = []

    def refuse(placement: Placement, steps: int) -> Measurement:
        tried.append(placement)
        raise HardwareError("no rights")

    assert power_limited(LEADER, (100.0, 400.0), WORKLOAD, refuse) == []
    assert len(tried) == 1

    def uncounted(placement: Placement, steps: int) -> Measurement:
        return device(placement, steps).model_copy(update={"watts_measured": False})

    assert power_limited(LEADER, (100.0, 400.0), WORKLOAD, uncounted) == []
    assert power_limited(LEADER, None, WORKLOAD, device) == []
