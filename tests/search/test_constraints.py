"""Limits as constraints: what is broken, by how much, and what is left of a limit for the training to the end."""

from typing import Any

import pytest

from shunter.requests import Limits, TrainRequest
from shunter.search.constraints import (
    FinalTraining,
    Measured,
    breaks_a_measured_limit,
    format_violations,
    violations_of,
)

MEASURED = Measured(auc=0.75, memory_bytes=3 * 2**30, watts=80.0, epochs=4.0, pass_seconds=90.0, pass_joules=9_000.0)


def violations(measured: Measured = MEASURED, used_seconds: float = 0.0, **asked: Any) -> dict[str, float]:
    request = TrainRequest(price_per_hour=2.0, ensemble_size=2, **asked)
    return violations_of(measured, request.limits, FinalTraining.of(request, used_seconds))


def test_without_limits_nothing_is_broken() -> None:
    assert violations() == {}


def test_what_was_measured_is_compared_in_the_limits_own_unit() -> None:
    broken = violations(limits=Limits(min_auc=0.8, max_memory_gib=2, max_watts=100))
    assert broken == {
        "min_auc": pytest.approx(0.05),
        "max_memory_gib": pytest.approx(1.0),
        "max_watts": pytest.approx(-20.0),
    }
    assert breaks_a_measured_limit(broken)
    assert format_violations(broken) == "--min-auc by 0.05, --max-memory-gib by 1"


def test_an_auc_that_an_ensemble_may_still_reach_is_no_reason_to_give_up() -> None:
    assert not breaks_a_measured_limit({"min_auc": 0.005})
    assert breaks_a_measured_limit({"min_auc": 0.02})
    assert breaks_a_measured_limit({"min_auc": 0.005, "max_memory_gib": 0.001})


def test_hours_energy_and_cost_are_those_of_all_members_to_the_end() -> None:
    """Two members of four passes: 720 s, 72 kJ and, at 2 an hour, 0.4."""
    estimated = violations(limits=Limits(max_hours=0.1, max_kwh=0.03, max_cost=0.3))
    assert estimated == {
        "max_hours": pytest.approx(0.1),
        "max_kwh": pytest.approx(-0.01),
        "max_cost": pytest.approx(0.1),
    }
    assert not breaks_a_measured_limit(estimated)


def test_what_was_used_and_what_the_search_may_use_is_not_left() -> None:
    limits = Limits(max_hours=1, max_kwh=1, max_cost=2)
    plain = violations(limits=limits)
    later = violations(limits=limits, used_seconds=600, search_minutes=10, search_kwh=0.5)
    assert later["max_hours"] == pytest.approx(plain["max_hours"] + 1 / 3)
    assert later["max_kwh"] == pytest.approx(plain["max_kwh"] + 0.5)
    assert later["max_cost"] == pytest.approx(plain["max_cost"] + 2 / 3)


def test_what_was_not_measured_breaks_nothing() -> None:
    unknown = Measured(auc=None, memory_bytes=None, watts=None, epochs=1.0, pass_seconds=1.0, pass_joules=None)
    assert violations(unknown, limits=Limits(min_auc=0.9, max_memory_gib=1, max_watts=1, max_kwh=1e-9)) == {}
