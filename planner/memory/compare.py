"""Servers side by side: what each takes to train a model over some data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from engine.data.dataset import Dataset
from models.counting import count_model
from models.registry import check_spec, model_spec
from planner.memory.demand import demands
from planner.memory.nodes import Ask, Plan, fewest_nodes
from planner.memory.power import Fleet, saving, serving_fleets
from planner.memory.servers import Server, read_servers
from shunter.errors import DataError, RequestError
from shunter.requests.architecture import GRAPH_MODELS
from shunter.requests.plan_memory import PlanMemoryRequest

FORWARD_AND_BACKWARD = 3  # times the arithmetic of the forward pass
FACTORS = (0.5, 2.0)  # of the misses, to see what depends on them


@dataclass(frozen=True)
class Comparison:
    """What each server comes to.

    Attributes:
        ask: What was asked.
        plans: By server; None where no number of nodes does.
        around: Nodes of each server if its cache missed half and twice as often.
        serving: Hosts of each kind that serve the tables at the same rate.
    """

    ask: Ask
    plans: Mapping[str, Plan | None]
    around: Mapping[str, tuple[int | None, ...]]
    serving: Mapping[str, Fleet]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plans = {
            name: None if plan is None else {**asdict(plan), "hours": plan.hours} for name, plan in self.plans.items()
        }
        return {
            "table_bytes": sum(table.total_bytes for table in self.ask.tables),
            "samples_per_second": self.ask.samples_per_second,
            "servers": plans,
            "nodes_by_misses": {
                name: dict(zip(map(str, FACTORS), one, strict=True)) for name, one in self.around.items()
            },
            "serving": {
                name: {**asdict(fleet), "energy_saving": saving(self.serving, name)}
                for name, fleet in self.serving.items()
            },
        }


def compare(dataset: Dataset, request: PlanMemoryRequest) -> Comparison:
    """Plan for each server.

    Raises:
        RequestError: There is no such model, its tables are of several widths, or the file of servers is none.
        DataError: The arrays of the data set are damaged.
    """
    servers = read_servers(request.servers)
    if request.architecture.model in GRAPH_MODELS:
        raise RequestError(
            f"--model {request.architecture.model} ranks items and has no tables on tiers: name a model of clicks, "
            "such as dlrm."
        )
    if request.architecture.model == "auto":
        spec = model_spec(embedding_dim=request.embedding_dim)
    else:
        spec = model_spec(request.architecture.model, embedding_dim=request.embedding_dim)
    check_spec(spec, dataset.features)
    lookups = ids_per_sample(dataset)
    tables = [table.scaled(request.rows_times) for table in demands(dataset, spec, lookups)]
    flops = count_model(spec, dataset.features).matmul_flops_per_sample
    ask = Ask(tuple(tables), FORWARD_AND_BACKWARD * flops, request.batch_size, request.samples_per_second)
    return compare_servers(servers, ask)


def compare_servers(servers: Mapping[str, Server], ask: Ask) -> Comparison:
    """Plan for each server, and for misses that are other than predicted."""
    around: dict[str, tuple[int | None, ...]] = {}
    for name, server in servers.items():
        other = [fewest_nodes(server, replace(ask, miss_factor=factor)) for factor in FACTORS]
        around[name] = tuple(None if plan is None else plan.nodes for plan in other)
    serving = serving_fleets(ask.tables, ask.samples_per_second)
    return Comparison(ask, {name: fewest_nodes(server, ask) for name, server in servers.items()}, around, serving)


def ids_per_sample(dataset: Dataset) -> Sequence[float]:
    """Ids of a sample of the training part in each field, on average.

    Raises:
        DataError: An array is missing.
    """
    found: list[float] = []
    for place, field in enumerate(dataset.features.categorical):
        if not field.multi_valued:
            found.append(1.0)
            continue
        try:
            ids = np.load(dataset.directory / f"train.bag{place}.values.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            raise DataError(f"The data set in {dataset.directory} is damaged ({error}): ingest it again.") from error
        found.append(len(ids) / max(dataset.splits["train"].rows, 1))
    return found
