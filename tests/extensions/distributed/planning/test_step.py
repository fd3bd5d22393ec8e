"""A step in processes of this machine: what goes through memory, what travels ahead, and what nobody waits for."""

from dataclasses import replace

import pytest

from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.machine import (
    Channel,
    Machine,
    OnNodes,
    local_processes,
    processes_on_nodes,
)
from shunter.extensions.distributed.planning.options import all_row_wise, data_parallel
from shunter.extensions.distributed.planning.step import SimulatedPlan, StepModel, step_of
from tests.extensions.distributed.planning.test_search import demand_of
from tests.hardware.profiles import make_profile

DEMAND = demand_of(1, 4)
SLOW = Channel(latency_seconds=1.0, bytes_per_second=1e3)


def here(**changes: object) -> Machine:
    return replace(local_processes([make_profile()], 2), **changes)  # type: ignore[arg-type]


def step(place: Machine, precision: str = "fp32") -> float:
    model = StepModel(TableCosts(place, DEMAND, 4096, precision))  # type: ignore[arg-type]
    return step_of(model, all_row_wise(DEMAND, place))[0]


def test_vectors_go_through_memory_in_fp32_alone() -> None:
    slow = dict.fromkeys(here().within, SLOW)
    through_memory, over_sockets = here(shared=slow), here(shared=None)
    assert step(through_memory) > 2.0, "they meet there and back"
    assert step(over_sockets) < 1.0
    assert step(through_memory, "fp16") == step(over_sockets, "fp16")


def test_all_groups_meet_once_each_way() -> None:
    channel = Channel(latency_seconds=1.0, bytes_per_second=1e12)
    place = here(shared=dict.fromkeys(here().within, channel))
    both = all_row_wise(DEMAND, place)[:2] + data_parallel(DEMAND)[2:]
    model = StepModel(TableCosts(place, DEMAND, 4096))
    for plan in (all_row_wise(DEMAND, place), both):
        assert step_of(model, plan)[0] == pytest.approx(2.0, abs=0.5)


def test_no_look_up_waits_for_ids_that_travel_ahead() -> None:
    model = StepModel(TableCosts(here(), DEMAND, 4096))
    plan = SimulatedPlan(model, all_row_wise(DEMAND, here()))
    ids = {number for number, task in enumerate(model.graph.tasks) if task.phase.startswith("ids")}
    assert any(plan.simulator.seconds[one] for one in ids), "they take time of the cores all the same"
    lookups = [number for number, task in enumerate(model.graph.tasks) if task.phase == "lookup"]
    assert lookups
    assert all(ids.isdisjoint(model.graph.waits_for[one]) for one in lookups)


def test_memory_is_shared_by_processes_of_one_machine_of_processors_alone() -> None:
    assert here().shared is not None
    assert local_processes([make_profile(shared_vectors=())], 2).shared is None, "it was found that they cannot"
    assert local_processes([make_profile()], 4, per_host=2).shared is None
    gpus = [make_profile(name=f"cuda:{number}") for number in range(2)]
    assert local_processes(gpus, 2).shared is None
    assert processes_on_nodes(make_profile(), 2, 2, OnNodes(("a", "b"), 1)).shared is None
