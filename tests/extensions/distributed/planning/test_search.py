"""Searches against all plans, their limits, and machines from files; the catalogue's figures, no measurement."""

import itertools
import random
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.errors import InfeasibleError, RequestError
from shunter.extensions.distributed.plan_request import DevicesRequest, PlanRequest
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import LayerDemand, ModelDemand
from shunter.extensions.distributed.planning.dense_split import SplitLayer, kinds_of, traffic_of
from shunter.extensions.distributed.planning.machine import Machine, machine_of, read_machine
from shunter.extensions.distributed.planning.options import best_of_both, differencing, greedy, options_of
from shunter.extensions.distributed.planning.plan import Plan, SplitKind, plan_text
from shunter.extensions.distributed.planning.report import TORCHREC, check_devices, choose_cautiously, search_plan
from shunter.extensions.distributed.planning.search import Found, Search, split_layers
from shunter.extensions.distributed.planning.step import SimulatedPlan, StepModel, step_of
from shunter.extensions.distributed.planning.totals import check_limits, totals_of
from shunter.extensions.distributed.tables.sharding_types import Choice
from shunter.hardware.types import Workload
from tests.extensions.distributed.planning.zipf import zipf_table

ACCELERATOR = "NVIDIA A100 SXM4 40GB"
WORKLOAD = Workload(
    matmul_flops_per_sample=1e6,
    lookups_per_sample=8,
    lookup_bytes_per_sample=8 * 128,
    input_bytes_per_sample=100,
    parameter_bytes=10**6,
    optimizer_bytes=0,
    activation_bytes_per_sample=1e3,
    operators_per_step=50,
    train_samples=10**6,
    dense_parameter_bytes=10**5,
)


def demand_of(seed: int, tables: int) -> ModelDemand:
    chance = random.Random(seed)
    made = tuple(
        zipf_table(
            f"t{place}",
            int(10 ** chance.uniform(1, 7)),
            32,
            ids_per_sample=chance.choice((1.0, 4.0, 20.0)),
            skew=chance.choice((0.6, 1.05, 1.3)),
        )
        for place in range(tables)
    )
    return ModelDemand("dlrm", "made", made, WORKLOAD)


def machine(devices: int, per_host: int) -> Machine:
    return machine_of(DevicesRequest(devices=devices, accelerator=ACCELERATOR, devices_per_host=per_host), ())


@pytest.mark.parametrize("seed", range(4))
def test_a_search_ends_at_the_best_of_all_plans_and_a_descent_near_it(seed: int) -> None:
    demand, place = demand_of(seed, 3), machine(2, 2)
    model = StepModel(TableCosts(place, demand, 8192))
    options = [options_of(table, place, "executable") for table in demand.tables]
    best = min(step_of(model, list(choices))[0] for choices in itertools.product(*options))
    search = Search(model, "executable", seed)
    plan = SimulatedPlan(model, [Choice("table_wise", (0,))] * 3)
    search._descend(plan, lambda: 0.0, 1.0)
    assert best <= plan.step_seconds <= 1.25 * best, "a single descent may end in a local optimum"
    found = Search(model, "executable", seed).run(60.0)
    assert found.is_optimal
    assert found.step_seconds == best
    assert found.bound_seconds <= best


@given(st.integers(0, 2**32))
def test_edits_of_a_plan_are_simulated_as_the_plan_itself_to_the_last_bit(seed: int) -> None:
    chance = random.Random(seed)
    demand, place = demand_of(seed, 5), machine(4, chance.choice((2, 4)))
    model = StepModel(TableCosts(place, demand, 4096))
    options = [options_of(table, place, "executable") for table in demand.tables]
    plan = SimulatedPlan(model, [chance.choice(one) for one in options])
    for _ in range(8):
        table = chance.randrange(5)
        seconds = plan.place({table: chance.choice(options[table])})
        again, schedule = step_of(model, plan.choices)
        assert (seconds, plan.simulator.schedule.end) == (again, schedule.end)


def test_more_bytes_and_fewer_links_never_make_a_step_faster() -> None:
    demand, choices = demand_of(1, 6), [Choice("row_wise")] * 6
    seconds = []
    for per_host in (8, 4, 2):
        model = StepModel(TableCosts(machine(8, per_host), demand, 8192))
        seconds.append(step_of(model, choices)[0])
        half = StepModel(TableCosts(machine(8, per_host), demand, 8192, "fp16"))
        assert step_of(half, choices)[0] <= seconds[-1]
    assert seconds[0] < min(seconds[1:])


def test_tables_that_fit_nowhere_are_refused_with_the_least_memory_that_would_do() -> None:
    demand = demand_of(3, 8)
    least = sum(table.rows * 33 * 4 for table in demand.tables) / 2
    small = machine(2, 2).with_memory(int(least / 2))
    with pytest.raises(InfeasibleError, match=r"at least [\d.]+ GiB on each are needed"):
        Search(StepModel(TableCosts(small, demand, 512))).run(1.0)


def test_a_plan_keeps_to_the_memory_of_each_device() -> None:
    demand = demand_of(5, 6)
    total = sum(table.rows * 33 * 4 for table in demand.tables)
    tight = machine(4, 4).with_memory(int(total * 0.45))
    model = StepModel(TableCosts(tight, demand, 512))
    found = Search(model).run(1.0)
    assert SimulatedPlan(model, found.choices).missing_bytes() == 0


def test_more_devices_than_rows_are_refused() -> None:
    tiny = ModelDemand("dlrm", "made", (zipf_table("t", 3, 32),), WORKLOAD)
    with pytest.raises(RequestError, match="8 devices are more than the 3 rows of the largest table"):
        check_devices(tiny, machine(8, 8))


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=7), st.integers(1, 3))
def test_partitions_are_within_graham_s_bound_of_the_best(loads: list[float], devices: int) -> None:
    def worst(found: list[int]) -> float:
        return max(sum(load for load, at in zip(loads, found, strict=True) if at == one) for one in range(devices))

    best = min(worst(list(one)) for one in itertools.product(range(devices), repeat=len(loads)))
    for found in (greedy(loads, [0.0] * len(loads), [0.0] * devices), differencing(loads, devices)):
        assert found is not None
        assert sorted({*found} | set(range(devices))) == list(range(devices))
        assert best <= worst(found) * (1 + 1e-9)
    both = best_of_both(loads, [0.0] * len(loads), [0.0] * devices)
    assert both is not None
    assert worst(both) <= (4 / 3) * best * (1 + 1e-9)


def test_a_layer_is_divided_where_its_gradient_is_larger_than_what_its_samples_send() -> None:
    layers = (LayerDemand("wide", 4096, 8192), LayerDemand("narrow", 16, 64))
    large = WORKLOAD.model_copy(update={"dense_parameter_bytes": sum(one.parameter_bytes for one in layers)})
    demand = ModelDemand("dlrm", "made", demand_of(0, 3).tables, large, layers)
    model = StepModel(TableCosts(machine(4, 4), demand, 64))
    choices = [Choice("table_wise", (0,))] * 3
    split = split_layers(model, choices)
    assert [(one.layer.name, one.kind) for one in split] == [("wide", "output_split")]
    assert step_of(model.with_layers(split), choices)[0] < step_of(model, choices)[0]
    several = StepModel(TableCosts(machine(4, 4), demand, 2**20))
    assert split_layers(several, choices) == ()


def test_layers_that_fit_on_no_device_are_divided_and_gradients_of_hosts_are_added_up() -> None:
    layers = tuple(LayerDemand(f"l{place}", 1024, 1000) for place in range(3))
    size = sum(one.parameter_bytes for one in layers)
    large = WORKLOAD.model_copy(update={"dense_parameter_bytes": size})
    demand = ModelDemand("dlrm", "made", (zipf_table("t", 100, 32),), large, layers)
    tight = machine(4, 2).with_memory(3 * size)  # of the four times that a copy with its optimiser takes
    request = PlanRequest(devices=4, batch_size=64, search_seconds=0.2, space="all")
    report = search_plan(demand, tight, request)
    assert max(report.memory_bytes) <= 3 * size
    assert "data parallel" in report.not_fitting
    assert report.plan.layers
    model = StepModel(TableCosts(machine(4, 2), demand, 64))
    sums = [0.0] * model.layout.size
    held = {
        kind: model.with_layers([SplitLayer(layers[0], kind)]).memory_bytes(sums)[0] for kind in get_args(SplitKind)
    }
    whole, own = model.memory_bytes(sums)[0], 4 * layers[0].parameter_bytes
    assert held["sharded"] == held["output_split"] == pytest.approx(whole - own * 3 / 4, abs=1)
    assert held["hybrid_sharded"] == held["host_input_split"] == pytest.approx(whole - own / 2, abs=1)
    assert sorted(kinds_of(layers[0], 2, 2)) == sorted(get_args(SplitKind))
    assert kinds_of(LayerDemand("odd", 7, 5), 2, 1) == ["sharded"]


def test_bytes_of_divided_layers_by_hand() -> None:
    layer = LayerDemand("l", 6, 4)
    over_all = traffic_of([SplitLayer(layer, "output_split")], 10, 2, 2)
    assert over_all == (4, 40 * (2 * 6 * 2 + 2 * 1), 40 * (2 * 6 + 2 * 1 * 2) * 2)
    in_host = traffic_of([SplitLayer(layer, "host_input_split")], 10, 2, 2)
    assert in_host == (4, 10 * 4 * (2 * 4 + 2 * 3), 0)
    gathered = traffic_of([SplitLayer(layer, "sharded")], 10, 2, 2)
    assert gathered == (3, 3 * 112 / 2, 3 * 112 / 2)
    assert traffic_of([SplitLayer(layer, "hybrid_sharded")], 10, 2, 2).across_bytes == 0


LINKED = """\
hosts:
  - {name: a, accelerator: NVIDIA A100 SXM4 40GB, count: 2}
  - {name: b, accelerator: NVIDIA H100 SXM5 80GB, count: 2, memory_gib: 10}
links:
  - {between: [a, b], bytes_per_second: 1.0e10}
"""


def test_a_machine_is_read_from_a_file_and_a_missing_link_is_named(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(LINKED)
    read = read_machine(path, ())
    assert (read.hosts, read.per_host, read.devices[3].memory_bytes) == (2, 2, 10 * 2**30)
    assert read.across is not None
    assert read.across.bytes_per_second == 1e10
    path.write_text(LINKED.partition("links")[0])
    with pytest.raises(RequestError, match="'a'"):
        read_machine(path, ())
    path.write_text(LINKED.replace("count: 2, ", "count: 3, "))
    with pytest.raises(RequestError, match="different numbers of devices"):
        read_machine(path, ())


@pytest.mark.slow  # TorchRec's planner takes seconds
def test_a_report_explains_a_plan_that_is_at_least_as_fast_as_torchrec_s() -> None:
    demand = demand_of(7, 6)
    request = PlanRequest(devices=4, accelerator=ACCELERATOR, batch_size=8192, search_seconds=1.0)
    report = search_plan(demand, machine_of(request.place, ()), request)
    assert report.step_seconds <= report.rivals["TorchRec's planner"]
    assert [one.name for one in report.tables] == [table.name for table in demand.tables]
    assert sum(seconds for _, seconds in report.critical_path) == pytest.approx(report.step_seconds)
    assert isinstance(report.plan, Plan)
    assert "tables:" in plan_text(report.plan)


def test_tables_with_one_option_each_are_no_depth() -> None:
    tables = tuple(zipf_table(f"t{place}", 10, 4) for place in range(1_200))
    demand = ModelDemand("dlrm", "made", tables, WORKLOAD)
    found = Search(StepModel(TableCosts(machine(1, 1), demand, 64))).run(0.1)
    assert found.is_optimal
    assert len(found.choices) == 1_200


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ({"max_hours": 1e-9}, "--max-hours 1e-09"),
        ({"max_kwh": 1e-9}, "--max-kwh 1e-09"),
        ({"max_cost": 1e-9, "price_per_hour": 2.0}, "--max-cost 1e-09"),
    ],
)
def test_a_training_beyond_its_limits_is_refused_and_one_within_them_reckoned(limit: dict, told: str) -> None:
    place, demand = machine(2, 2), demand_of(1, 2)
    given = PlanRequest(batch_size=1000, epochs=3, price_per_hour=2.0)
    found = totals_of(demand, place, given, 0.01)
    assert found.hours == pytest.approx(3 * 1000 * 0.01 / 3600)
    assert found.cost == pytest.approx(2 * 2.0 * found.hours)
    assert found.kwh is not None
    assert found.kwh > 0
    check_limits(found, given.model_copy(update=dict.fromkeys(limit, 1000000000.0)))
    with pytest.raises(InfeasibleError, match=told):
        check_limits(found, given.model_copy(update=limit))


@pytest.mark.parametrize(("error", "is_kept"), [(None, False), (0.06, False), (0.04, True)])
def test_torchrecs_plan_stays_unless_the_gain_is_more_than_two_predictions_err(
    error: float | None, is_kept: bool
) -> None:
    own, theirs = (Choice("data_parallel"),), (Choice("row_wise", (0, 1)),)
    found = Found(own, 0.9, 0.5, {TORCHREC: 1.0})
    taken, told = choose_cautiously(found, theirs, error)
    assert (taken.choices, taken.step_seconds) == ((own, 0.9) if is_kept else (theirs, 1.0))
    assert bool(told) != is_kept
