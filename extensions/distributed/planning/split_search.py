"""Search for the division of the dense layers, for given table placements or alternating with a search of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shunter.errors import InfeasibleError
from shunter.extensions.distributed.planning.dense_split import SplitLayer, kinds_of
from shunter.extensions.distributed.planning.options import manual_plan
from shunter.extensions.distributed.planning.search import Found, Search
from shunter.extensions.distributed.planning.step import StepModel, step_of
from shunter.extensions.distributed.tables.sharding_types import Choice

ROUNDS = 2  # over all layers, as one that is divided may make another worth dividing


def split_layers(model: StepModel, choices: Sequence[Choice]) -> tuple[SplitLayer, ...]:
    """Return the layers whose division makes the step faster, each with its best division, the largest layer first.

    Fitting into memory has priority over time.
    """
    sums, layout = model.costs.sums(list(choices)), model.layout
    room = [device.memory_bytes for device in model.machine.devices]

    def cost(splits: Mapping[str, SplitLayer]) -> tuple[float, float]:
        tried = model.with_layers(tuple(splits.values()))
        used = tried.memory_bytes(sums)
        missing = sum(max(0, own - has) for own, has in zip(used, room, strict=True))
        return missing, step_of(tried, choices)[0]

    found: dict[str, SplitLayer] = {}
    best = cost(found)
    for _ in range(ROUNDS):
        before = best
        for layer in sorted(model.costs.demand.layers, key=lambda one: (-one.parameter_bytes, one.name)):
            without = {name: one for name, one in found.items() if name != layer.name}
            ways = [without]
            for kind in kinds_of(layer, layout.per_host, layout.hosts):
                ways.append({**without, layer.name: SplitLayer(layer, kind)})
            for way in ways:
                if (tried := cost(way)) < best:
                    best, found = tried, way
        if best == before:
            break
    return tuple(found.values())


def search_with_layers(
    model: StepModel, seconds: float, begin: Mapping[str, Sequence[Choice]], seed: int
) -> tuple[StepModel, Found]:
    """Search tables and layers in turn: layers for manually placed tables, tables for these layers, then layers again.

    Returns:
        The model with the layers that were found, and the plan of its tables. Other plans keep a copy of every layer
        on each device; the bound holds for all divisions of layers.

    Raises:
        InfeasibleError: Tables and layers do not fit into memory.
    """
    costs = model.costs
    first = model.with_layers(split_layers(model, manual_plan(costs.demand, model.machine)))
    search = Search(first, "all", seed)
    found = search.run(seconds, begin)
    last = model.with_layers(split_layers(model, found.choices))
    step_seconds = step_of(last, found.choices)[0]
    try:
        rivals = Search(model, "all", seed).run(0.0, begin).beginnings
    except InfeasibleError:
        rivals = {}
    bound = min(search.bound_seconds, step_seconds)
    return last, replace(found, step_seconds=step_seconds, bound_seconds=bound, beginnings=rivals, proof="")
