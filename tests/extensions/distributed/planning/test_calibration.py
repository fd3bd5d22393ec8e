"""Factors are found again where they were planted, held together where little is known, and kept from run to run."""

import json
import random
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest

from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.calibration import (
    MOST_KEPT,
    TERMS,
    UNCALIBRATED,
    Calibration,
    ExecutedPlan,
    SimulatedStep,
    Term,
    _strongest,
    add_executed,
    calibrate,
    read_executed,
    typical_step_seconds,
)
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.options import options_of
from shunter.extensions.distributed.planning.report import search_plan, simulated_step, step_model
from shunter.extensions.distributed.planning.search import Search
from shunter.extensions.distributed.planning.step import SimulatedPlan, StepModel
from tests.extensions.distributed.planning.test_search import demand_of, machine

PLANTED = {"layers": 3.0, "whole_vectors": 2.0, "block_vectors": 0.5, "copies": 4.0}


def planted() -> Calibration:
    return Calibration({term: PLANTED.get(term, 2.0) for term in TERMS})


def executed_plans(count: int, seed: int = 0) -> list[ExecutedPlan]:
    """Random plans of random tables, with the steps that planted factors give."""
    chance, place = random.Random(seed), machine(2, 2)
    made = []
    for number in range(count):
        demand = demand_of(seed + number, 6)
        model = StepModel(TableCosts(place, demand, 4096))
        choices = [chance.choice(options_of(table, place, "exact")) for table in demand.tables]
        step = simulated_step(model, choices).model_copy(update={"machine": "here"})
        made.append(ExecutedPlan(key=str(number), measured_seconds=step.seconds(planted()), step=step))
    return made


def test_planted_factors_predict_plans_that_taught_nothing() -> None:
    found = calibrate(executed_plans(16))
    others = executed_plans(8, seed=100)
    wrong = [abs(one.step.seconds(found) / one.measured_seconds - 1) for one in others]
    before = [abs(one.step.seconds(UNCALIBRATED) / one.measured_seconds - 1) for one in others]
    assert max(wrong) < 0.05 < min(before)
    assert found.plans == 16
    assert found.error is not None
    assert found.error < 0.05


def test_what_plans_of_one_model_have_in_common_is_predicted_for_it_and_for_no_other() -> None:
    slow, usual = executed_plans(16), executed_plans(16, seed=50)
    slow = [one.model_copy(update={"measured_seconds": 1.5 * one.measured_seconds}) for one in slow]
    taught = [_of_model(one, "slow") for one in slow[:12]] + [_of_model(one, "usual") for one in usual[:12]]
    for model, others in {"slow": slow[12:], "usual": usual[12:]}.items():
        as_it, as_any = (
            fmean(abs(one.step.seconds(found) / one.measured_seconds - 1) for one in others)
            for found in (calibrate(taught, model=model), calibrate(taught))
        )
        assert as_it < 0.1 < as_any


def _of_model(plan: ExecutedPlan, model: str) -> ExecutedPlan:
    return plan.model_copy(update={"step": plan.step.model_copy(update={"model": model})})


def test_the_strongest_ridge_that_is_as_good_as_the_best_is_taken() -> None:
    best = [0.02, 0.04, 0.03, 0.05]
    by_chance, surely = [0.04, 0.02, 0.05, 0.05], [one + 0.01 for one in best]
    assert _strongest({0.01: best, 0.1: by_chance, 1.0: surely}) == 0.1
    assert _strongest({0.01: best, 0.1: surely, 1.0: surely}) == 0.01


def test_few_plans_teach_one_factor_for_all() -> None:
    found = calibrate(executed_plans(2))
    assert len(set(found.factors.values())) == 1
    assert calibrate([]) == UNCALIBRATED


def test_a_calibrated_search_is_repaired_to_the_last_bit_and_told() -> None:
    demand, place = demand_of(1, 5), machine(2, 2)
    costs = TableCosts(place, demand, 4096)
    model = StepModel(costs, calibration=planted())
    found = Search(model).run(0.2)
    assert SimulatedPlan(model, found.choices).step_seconds == found.step_seconds
    assert simulated_step(model, found.choices).seconds(planted()) == pytest.approx(found.step_seconds)


def test_plans_of_other_machines_teach_nothing() -> None:
    demand, request = demand_of(1, 3), PlanRequest(search_seconds=0)
    taught = step_model(demand, machine(2, 2), request, executed_plans(4))
    assert taught.calibration is UNCALIBRATED, "a machine of the catalogue executes nothing"
    assert "executed" not in search_plan(demand, machine(2, 2), request, executed_plans(4)).told


def test_executed_plans_are_kept_once_each_and_damaged_lines_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "plans" / "executed.jsonl"
    assert read_executed(path) == []
    one = executed_plans(1)[0]
    add_executed(path, one)
    add_executed(path, one.model_copy(update={"measured_seconds": 2.0}))
    assert [plan.measured_seconds for plan in read_executed(path)] == [2.0]
    line = json.loads(path.read_text())
    line["step"]["resource"][0] = 10**6
    path.write_text(path.read_text() + json.dumps(line) + "\nno json\n" + "[" * 100_000 + "\n")
    assert len(read_executed(path)) == 1
    for number in range(MOST_KEPT + 1):
        add_executed(path, one.model_copy(update={"key": str(number)}))
    assert len(path.read_text().splitlines()) == MOST_KEPT


@pytest.mark.parametrize(
    "change", [{"amounts": []}, {"resource": [99]}, {"waits_for": [[5]]}, {"predicted_seconds": float("nan")}]
)
def test_a_step_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    whole = {
        "machine": "here",
        "predicted_seconds": 1.0,
        "resources": 1,
        "resource": [0],
        "waits_for": [[]],
        "amounts": [{"layers": 1.0}],
    }
    SimulatedStep.model_validate(whole)
    with pytest.raises(ValueError, match="validation error"):
        SimulatedStep.model_validate(whole | change)


def test_a_typical_step_is_that_of_a_later_epoch() -> None:
    def epoch(step: int, seconds: float) -> SimpleNamespace:
        return SimpleNamespace(step=step, wait_seconds=0.25 * seconds, compute_seconds=0.75 * seconds)

    assert typical_step_seconds([epoch(10, 50.0)]) == 5.0
    assert typical_step_seconds([epoch(10, 50.0), epoch(20, 60.0), epoch(30, 90.0), epoch(40, 100.0)]) == 1.0
    assert typical_step_seconds([]) is None


def test_one_plan_scales_what_is_known_beforehand() -> None:
    beforehand: dict[Term, float] = {term: 1.0 + place for place, term in enumerate(TERMS)}
    (plan,) = executed_plans(1)
    taught = plan.model_copy(update={"measured_seconds": 3 * plan.step.seconds(Calibration(beforehand))})
    found = calibrate([taught], beforehand)
    assert found.factors == pytest.approx({term: 3 * factor for term, factor in beforehand.items()})
