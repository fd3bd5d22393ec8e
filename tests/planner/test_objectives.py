"""The energy-delay product and carbon decide as time, energy and cost do, and are told of as they are."""

import pytest
from pydantic import ValidationError

from shunter.hardware.cost.grid import Grid
from shunter.planner.decide import NoFeasiblePlacementError, decide
from shunter.planner.rank.totals import Terms
from shunter.requests import Limits, TrainRequest, Weights
from tests.planner.test_decide import FAST_HUNGRY, MIDDLE, SLOW_FRUGAL, TEN_EPOCHS, candidate

CANDIDATES = [SLOW_FRUGAL, FAST_HUNGRY, MIDDLE]
BY_DAY = tuple(50.0 if 6 <= hour < 18 else 800.0 for hour in range(24))


def test_the_energy_delay_product_is_the_least_of_time_times_energy() -> None:
    decision = decide(CANDIDATES, Terms.of(Limits(), "edp", TEN_EPOCHS))
    assert decision.chosen.hours * (decision.kwh or 0) == min(row.hours * (row.kwh or 0) for row in decision.table)
    assert decision.terms.weights == Weights.parse("edp") == Weights.parse("time=1,energy=1")
    assert "energy-delay product" in decision.reason
    assert TrainRequest(objective="edp").weights == Weights(time=1, energy=1)


def test_at_an_even_intensity_carbon_is_energy_in_other_units() -> None:
    terms = Terms.of(Limits(), "carbon", TEN_EPOCHS, grid=Grid(grams_per_kwh=(400.0,)))
    decision = decide(CANDIDATES, terms)
    assert decision.placement == decide(CANDIDATES, Terms.of(Limits(), "energy", TEN_EPOCHS)).placement
    assert decision.kwh is not None
    assert decision.chosen.carbon_grams == pytest.approx(400 * decision.kwh)
    assert "CO2e" in decision.reason
    assert decision.table_rows()[0]["carbon_grams"] is not None
    assert decision.terms.grid == terms.grid, "what is decided again while it trains is decided alike"


def test_where_the_night_is_dirty_the_one_that_ends_before_it_emits_less() -> None:
    quick = candidate(threads=2, seconds=360.0, joules=1.1e6)  # 1 h for ten epochs
    frugal = candidate(threads=4, seconds=3600.0, joules=1.0e6)  # 10 h
    morning, evening = (Grid(grams_per_kwh=BY_DAY, start_hour=hour) for hour in (7.0, 17.0))
    by_energy = decide([quick, frugal], Terms.of(Limits(), "energy", TEN_EPOCHS)).placement
    assert by_energy == frugal.placement
    assert decide([quick, frugal], Terms.of(Limits(), "carbon", TEN_EPOCHS, grid=morning)).placement == by_energy
    assert decide([quick, frugal], Terms.of(Limits(), "carbon", TEN_EPOCHS, grid=evening)).placement == quick.placement


def test_without_an_intensity_carbon_is_unknown_and_cannot_be_the_objective() -> None:
    assert decide(CANDIDATES, Terms.of(Limits(), "time", TEN_EPOCHS)).chosen.carbon_grams is None
    with pytest.raises(NoFeasiblePlacementError, match="carbon unknown"):
        decide(CANDIDATES, Terms.of(Limits(), "carbon", TEN_EPOCHS))
    with pytest.raises(ValidationError, match="--grid"):
        TrainRequest(objective="carbon")
    assert TrainRequest(objective="carbon", grid="300").pricing.grid == "300"


def test_no_order_is_called_sure_where_a_counters_joules_meet_a_models() -> None:
    ours = candidate(threads=2, interval=(0.9, 1.1), joules=30_000.0)
    measured = ours.model_copy(update={"prediction": ours.prediction.model_copy(update={"energy_source": "measured"})})
    there = candidate(interval=(0.9, 1.1))
    placement = there.placement.model_copy(update={"accelerator": "cuda:0"})
    there = there.model_copy(update={"placement": placement})
    terms = Terms.of(Limits(), "energy", TEN_EPOCHS)
    assert "the variation of their step times" in decide([ours, there], terms).explanation
    mixed = decide([measured, there], terms).explanation
    assert "power is measured for one and estimated for the other" in mixed
    assert "the variation of their step times" not in mixed
    by_time = decide([measured, there], Terms.of(Limits(), "time", TEN_EPOCHS)).explanation
    assert "is measured for one and estimated for the other" not in by_time
