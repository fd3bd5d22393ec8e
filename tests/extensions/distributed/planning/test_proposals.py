"""What changes a model is told beside its plan, and taken only where it is allowed; towers keep to their hosts."""

from pathlib import Path

import pytest

from shunter.errors import InfeasibleError
from shunter.extensions.distributed.plan_flow import draw_plan
from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import ModelDemand
from shunter.extensions.distributed.planning.machine import Machine
from shunter.extensions.distributed.planning.plan import differences, plan_text, read_plan
from shunter.extensions.distributed.planning.proposals import explored_plan
from shunter.extensions.distributed.planning.report import PlanReport
from shunter.extensions.distributed.planning.step import StepModel, step_of
from shunter.extensions.distributed.planning.tower_step import TowerStep, search_towers, tower_demand, tower_options
from shunter.hardware.types import Workload
from tests.extensions.distributed.planning.test_search import WORKLOAD, demand_of, machine

BATCH = 8192


def explored(demand: ModelDemand, place: Machine, towers: Workload | None = None, **asked: object) -> PlanReport:
    return explored_plan(demand, place, PlanRequest(batch_size=BATCH, search_seconds=0.2, **asked), (), towers)


def test_nothing_that_changes_the_model_is_taken_unless_it_is_allowed(tmp_path: Path) -> None:
    demand, place = demand_of(2, 6), machine(4, 2)
    told = explored(demand, place)
    assert (told.plan.batch_size, told.plan.precision, told.plan.towers) == (BATCH, "fp32", 0)
    names = [one.name for one in told.proposals]
    assert "messages in fp16" in names
    assert [f"batches of {times * BATCH:,}" in names for times in (2, 4, 8)] == [True] * 3
    assert all("is not measured" in one.quality for one in told.proposals)
    assert all(one.speedup > 1 for one in told.proposals)
    assert draw_plan(told, tmp_path / "plan.png").stat().st_size > 10_000
    taken = explored(demand, place, communication="any", most_batch_size=3 * BATCH)
    assert (taken.plan.batch_size, taken.plan.precision) == (2 * BATCH, "fp16")
    assert "Taken: messages in fp16 (rounds sent rows; the time of rounding is not counted;" in taken.told
    assert taken.plan.batch_size / taken.step_seconds > told.plan.batch_size / told.step_seconds
    assert all(one.batch_size <= 3 * BATCH for one in taken.proposals)


def test_towers_lie_on_their_hosts_and_send_less_across() -> None:
    demand, place = demand_of(2, 6), machine(4, 2)
    other = tower_demand(demand, WORKLOAD)
    flat = StepModel(TableCosts(place, other, BATCH))
    steps = []
    for compression in (1.0, 4.0):
        model = TowerStep(TableCosts(place, other, BATCH), compression)
        found = search_towers(model, 1.0)
        assert found is not None
        choices, seconds = found
        assert all(choice in options for choice, options in zip(choices, tower_options(flat), strict=True))
        assert [choice.devices[0] // 2 for choice in choices] == [0, 0, 0, 1, 1, 1]
        assert seconds == step_of(model, choices)[0]
        steps.append(seconds)
    assert steps[1] < steps[0]


def test_a_plan_of_towers_says_how_they_are_trained_and_is_read_again(tmp_path: Path) -> None:
    demand, place = demand_of(2, 6), machine(4, 2)
    flat = explored(demand, place, WORKLOAD)
    gain = next(one for one in flat.proposals if one.option == "--allow-towers")
    assert flat.plan.towers == 0
    report = explored(demand, place, WORKLOAD, allow_towers=True)
    plan = report.plan
    assert gain.speedup > 1
    assert (plan.model, plan.towers) == ("dmt", 2)
    assert report.rivals["without towers"] > report.step_seconds
    assert plan.only_simulated is not None
    assert "--model dmt --towers 2" in plan.only_simulated
    assert len(plan.choices(table.name for table in demand.tables)) == 6
    path = tmp_path / "plan.yaml"
    path.write_text(plan_text(plan))
    assert read_plan(path) == plan
    assert ("towers", "0", "2") in list(differences(flat.plan, plan))


def test_limits_hold_for_what_is_taken() -> None:
    demand, place = demand_of(2, 3), machine(2, 2)
    with pytest.raises(InfeasibleError, match="--max-hours"):
        explored(demand, place, most_batch_size=2 * BATCH, max_hours=1e-9)


def test_a_largest_batch_below_the_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="--most-batch-size"):
        PlanRequest(batch_size=100, most_batch_size=10)
