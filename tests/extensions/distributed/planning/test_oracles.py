"""Integer and dynamic program against all plans, on equal and unequal devices; parts of a batch by their rates."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.extensions.distributed.plan_request import PlanRequest
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.device_costs import samples_by_rate
from shunter.extensions.distributed.planning.dynamic_program import ROUNDING, Relaxation, best_by_states
from shunter.extensions.distributed.planning.integer_program import solve
from shunter.extensions.distributed.planning.machine import Machine, local_processes, read_machine
from shunter.extensions.distributed.planning.options import earliest_end, options_of
from shunter.extensions.distributed.planning.plan import Plan, differences, plan_text, read_plan
from shunter.extensions.distributed.planning.report import search_plan
from shunter.extensions.distributed.planning.search import Search
from shunter.extensions.distributed.planning.step import StepModel, step_of
from shunter.extensions.distributed.tables.sharding_types import Choice
from tests.extensions.distributed.planning.test_search import demand_of, machine
from tests.hardware.profiles import make_profile

UNEQUAL = """
hosts:
  - {name: fast, accelerator: NVIDIA A100 SXM4 40GB, memory_gib: MEMORY}
  - {name: slow, accelerator: NVIDIA T4, memory_gib: MEMORY}
links: [{between: [fast, slow], bytes_per_second: 1.0e+10}]
"""


def unequal(folder: Path, memory_gib: float = 15) -> Machine:
    path = folder / "machine.yaml"
    path.write_text(UNEQUAL.replace("MEMORY", str(memory_gib)))
    return read_machine(path, ())


def best_of_all(model: StepModel, options: list[list[Choice]]) -> float:
    """By brute force, of what fits."""
    room = [device.memory_bytes for device in model.machine.devices]
    return min(
        step_of(model, list(plan))[0]
        for plan in itertools.product(*options)
        if all(used <= has for used, has in zip(model.memory_bytes(model.costs.sums(list(plan))), room, strict=True))
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("memory_gib", [None, 15, 0.7])
def test_the_linear_program_comes_near_the_best_of_all_plans_and_states_find_it(
    seed: int, memory_gib: float | None, tmp_path: Path
) -> None:
    demand = demand_of(seed, 3)
    place = machine(2, 2) if memory_gib is None else unequal(tmp_path, memory_gib)
    samples = None if memory_gib is None else samples_by_rate(place, demand, 8192)
    model = StepModel(TableCosts(place, demand, 8192, samples=samples))
    options = [options_of(table, place, "executable") for table in demand.tables]
    best = best_of_all(model, options)
    programmed, bound = solve(model, options, 30.0)
    assert programmed is not None
    assert best <= step_of(model, list(programmed))[0] <= 1.2 * best
    assert 0.8 * best <= bound <= best * (1 + 1e-6)
    found = best_by_states(model, options, programmed)
    assert found is not None
    assert (found.step_seconds, found.bound_seconds, found.is_best) == (best, best, True)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(2, 2), (2, 1)]), st.sampled_from([256, 8192, 65_536]))
def test_the_dynamic_program_finds_the_best_of_all_plans_to_the_last_bit(
    seed: int, devices: tuple[int, int], batch: int
) -> None:
    demand, place = demand_of(seed, 3), machine(*devices)
    model = StepModel(TableCosts(place, demand, batch))
    options = [options_of(table, place, "exact") for table in demand.tables]
    best, poor = best_of_all(model, options), [one[0] for one in options]
    found = best_by_states(model, options, poor)
    assert found is not None
    assert (found.step_seconds, found.is_best) == (best, True)
    few = best_by_states(model, options, poor, most_states=24)  # too few to keep all, so that some are dropped
    assert few is None or few.bound_seconds <= best <= few.step_seconds


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_no_step_is_below_its_bound(seed: int, is_here: bool) -> None:
    chance, demand = random.Random(seed), demand_of(seed, 4)
    place = local_processes([make_profile()], 2) if is_here else machine(4, 2)
    model = StepModel(TableCosts(place, demand, 4096))
    plans = [[chance.choice(options_of(table, place, "executable")) for table in demand.tables] for _ in range(8)]
    bounds = Relaxation(model).bounds(np.array([model.costs.sums(plan) for plan in plans]))
    for plan, bound in zip(plans, bounds, strict=True):
        assert 0 < bound <= step_of(model, plan)[0] * (1 + ROUNDING)


def test_a_small_model_is_proven_by_the_search() -> None:
    demand, place = demand_of(6, 8), machine(2, 2)
    found = Search(StepModel(TableCosts(place, demand, 8192))).run(60.0)
    assert found.is_optimal
    assert "dynamic program" in found.proof
    assert found.bound_seconds == found.step_seconds


def test_seconds_of_tasks_follow_from_their_parts() -> None:
    demand, place = demand_of(5, 4), machine(4, 2)
    model = StepModel(TableCosts(place, demand, 4096))
    choices = [options_of(table, place, "executable")[-1 - number] for number, table in enumerate(demand.tables)]
    sums = model.costs.sums(choices)
    for seconds, parts in zip(model.seconds(sums), model.parts_of_tasks(), strict=True):
        tables = sums[model.layout.tables(parts.group)] if parts.group >= 0 else 1
        largest = max((slope * sums[where] for where, slope in parts.slopes), default=0.0)
        expected = parts.start + parts.a_table * tables + largest if tables else 0.0
        assert seconds == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_a_faster_device_gets_more_of_the_batch_and_of_the_tables(tmp_path: Path) -> None:
    demand, place = demand_of(1, 8), unequal(tmp_path)
    parts = samples_by_rate(place, demand, 4096)
    assert parts is not None
    assert sum(parts) == 4096
    assert parts[0] > parts[1] > 0
    assert samples_by_rate(machine(2, 2), demand, 4096) is None
    assert samples_by_rate(place, demand, 1) is None
    assert earliest_end([[1.0, 3.0]] * 4, [1.0] * 4, [9.0, 9.0]) == [0, 0, 0, 1]
    assert earliest_end([[1.0, 3.0]] * 4, [1.0] * 4, [1.0, 9.0]) == [0, 1, 1, 1]
    assert earliest_end([[1.0, 3.0]], [10.0], [1.0, 9.0]) is None


def test_a_plan_of_unequal_parts_says_so_and_is_read_again(tmp_path: Path) -> None:
    demand, place = demand_of(1, 6), unequal(tmp_path)
    report = search_plan(demand, place, PlanRequest(batch_size=65_536, search_seconds=0.2))
    plan = report.plan
    assert "in proportion to the devices' rates are planned" in report.told
    assert plan.samples[0] > plan.samples[1]
    assert plan.only_simulated is not None
    path = tmp_path / "plan.yaml"
    path.write_text(plan_text(plan))
    assert read_plan(path) == plan
    equal = plan.model_copy(update={"samples": ()})
    assert ("samples", "equal", f"{plan.samples[0]}, {plan.samples[1]}") in list(differences(equal, plan))
    with pytest.raises(ValueError, match="must give a part of the batch to each"):
        Plan.model_validate(plan.model_dump() | {"samples": (1, 2)})
