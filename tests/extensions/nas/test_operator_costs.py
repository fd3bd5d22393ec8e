"""The measured cost of an architecture is that of its operators and of what every step has beside them."""

from dataclasses import replace
from pathlib import Path

import pytest

from shunter.engine.config import Execution, Hyperparameters
from shunter.extensions.nas.supernet.costs import MeasuredCosts, cost_of, cost_table
from shunter.extensions.nas.supernet.network import Supernet
from tests.engine.synthetic import write_dataset
from tests.extensions.nas.supernet.planted import SPACE


def test_every_architecture_has_a_measured_cost(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=1_000, dense=2, single=2, bags=1)
    space = replace(SPACE, shares=((1.0, 0.1), (1.0,), (1.0, 0.5)), dims=((4, 8),) * 3)
    network = Supernet(space, dataset.features, kernel="torch")
    execution = Execution(batch_size=64)
    costs = MeasuredCosts(network, dataset, Hyperparameters(), execution)
    assert (costs.unit, costs.source) == ("seconds", "measured")
    table = cost_table(network, costs)
    architecture = network.coding.decode(dict.fromkeys(network.coding.sizes, 0))
    operators = cost_of(architecture, network.coding, cost_table(network, _without_base(costs)))
    assert cost_of(architecture, network.coding, table) == pytest.approx(operators + costs.base)
    assert operators > 0


def _without_base(costs: MeasuredCosts) -> MeasuredCosts:
    bare = object.__new__(MeasuredCosts)
    bare.__dict__.update({**costs.__dict__, "base": 0.0})
    return bare


def test_joules_are_seconds_times_watts(tmp_path: Path) -> None:
    dataset = write_dataset(tmp_path, rows=600, dense=0, single=2, bags=0)
    space = replace(SPACE, bottom=(), top=((8,),), interactions=("dot",), dims=((4, 8), (8,)), shares=((1.0,), (1.0,)))
    network = Supernet(space, dataset.features, kernel="torch")
    costs = MeasuredCosts(network, dataset, Hyperparameters(), Execution(batch_size=64), "joules")
    assert costs.unit == "joules"
    assert costs.source in ("measured", "estimated")
    assert costs.table(dataset.features.table_rows[0], 8) > 0
