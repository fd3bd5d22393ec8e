"""Comparison of server types by the nodes, energy and cost that training a model on a data set needs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError
from shunter.extensions.tiers.memory.demand import demands
from shunter.extensions.tiers.memory.nodes import Plan, TrainingDemand, fewest_nodes
from shunter.extensions.tiers.memory.power import Fleet, saving, serving_fleets
from shunter.extensions.tiers.memory.servers import Server, read_servers
from shunter.extensions.tiers.plan_memory_request import PlanMemoryRequest
from shunter.model_families import AUTO, is_ranking
from shunter.models.counting import count_model
from shunter.models.registry import check_spec, model_spec

FORWARD_AND_BACKWARD = 3  # times the arithmetic of the forward pass
MISSES = (0.5, 1.0, 2.0)  # multiples of the predicted misses, for a sensitivity analysis
RATES = (0.1, 1.0, 10.0)  # multiples of the requested rate, likewise


@dataclass(frozen=True)
class Sensitivity:
    """Number of nodes needed at one training rate and one assumed ratio of cache misses.

    Attributes:
        samples_per_second: Training rate in samples per second.
        miss_factor: Ratio of the assumed cache misses to the predicted ones.
        nodes: Number of nodes by server; None if a server needs more than `MOST_NODES`.
        miss_rates: Cache miss rate by server; None without a cache.
    """

    samples_per_second: float
    miss_factor: float
    nodes: Mapping[str, int | None]
    miss_rates: Mapping[str, float | None]


@dataclass(frozen=True)
class Comparison:
    """Comparison of server types by the number of nodes that a training demand needs.

    Attributes:
        ask: Training demand that was requested.
        plans: Plan of each server; None if no number of nodes suffices.
        around: Sensitivity analysis: numbers of nodes at multiples of the requested rate and of the predicted misses.
        serving: Hosts of each kind that serve the tables at the requested sample rate.
    """

    ask: TrainingDemand
    plans: Mapping[str, Plan | None]
    around: Sequence[Sensitivity]
    serving: Mapping[str, Fleet]

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, ready for JSON."""
        plans = {
            name: None if plan is None else {**asdict(plan), "hours": plan.hours} for name, plan in self.plans.items()
        }
        return {
            "table_bytes": sum(table.total_bytes for table in self.ask.tables),
            "samples_per_second": self.ask.samples_per_second,
            "servers": plans,
            "nodes_by_rate_and_misses": [asdict(one) for one in self.around],
            "serving": {
                name: {**asdict(fleet), "energy_saving": saving(self.serving, name)}
                for name, fleet in self.serving.items()
            },
        }


def compare(dataset: Dataset, request: PlanMemoryRequest) -> Comparison:
    """Find the fewest nodes of each server type for the requested model and rate.

    Raises:
        RequestError: The model is unknown, its tables have several widths, or the file does not describe servers.
        DataError: The arrays of the data set are damaged.
    """
    servers = read_servers(request.servers)
    if is_ranking(request.architecture.model):
        raise RequestError(
            f"--model {request.architecture.model} is a ranking model without tables in memory tiers: name "
            "a click model, such as dlrm."
        )
    family = request.architecture.model
    spec = model_spec("dlrm" if family == AUTO else family, embedding_dim=request.embedding_dim)
    check_spec(spec, dataset.features)
    lookups = ids_per_sample(dataset)
    tables = [table.scaled(request.rows_times) for table in demands(dataset, spec, lookups)]
    flops = count_model(spec, dataset.features).matmul_flops_per_sample
    ask = TrainingDemand(tuple(tables), FORWARD_AND_BACKWARD * flops, request.batch_size, request.samples_per_second)
    return compare_servers(servers, ask)


def compare_servers(servers: Mapping[str, Server], ask: TrainingDemand) -> Comparison:
    """Compare servers at a training demand, and at multiples of its rate and of the predicted cache misses."""
    around: list[Sensitivity] = []
    plans: dict[str, Plan | None] = {}
    for rate, misses in product(RATES, MISSES):
        other = replace(ask, samples_per_second=rate * ask.samples_per_second, miss_factor=misses)
        found = {name: fewest_nodes(server, other) for name, server in servers.items()}
        nodes = {name: plan and plan.nodes for name, plan in found.items()}
        miss_rates = {name: plan.miss_rate if plan and plan.miss_rate else None for name, plan in found.items()}
        around.append(Sensitivity(other.samples_per_second, misses, nodes, miss_rates))
        if rate == misses == 1:
            plans = found
    return Comparison(ask, plans, around, serving_fleets(ask.tables, ask.samples_per_second))


def ids_per_sample(dataset: Dataset) -> Sequence[float]:
    """Return the mean number of ids per sample for each field, over the training part.

    Raises:
        DataError: An array is missing.
    """
    found: list[float] = []
    for place, field in enumerate(dataset.features.categorical):
        if not field.multi_valued:
            found.append(1.0)
            continue
        ids = read_array(dataset.directory / f"train.bag{place}.values.npy")
        found.append(len(ids) / max(dataset.splits["train"].rows, 1))
    return found
