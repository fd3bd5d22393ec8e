"""Costs of a super-net's architectures: a cost for each operator, whose sum is an architecture's cost.

The costs may be of any additive quantity: bytes and FLOPs are counted here, seconds and joules are measured
(`shunter.extensions.nas.operator_costs`); all implement `OperatorCosts`.
"""

from collections.abc import Callable
from dataclasses import replace

from shunter.extensions.nas.supernet.cost_table import CostTable, OperatorCosts
from shunter.extensions.nas.supernet.network import Supernet
from shunter.extensions.nas.supernet.paths import INPUT, OUTPUT, LayerCosts, MlpPaths
from shunter.models.counting import count_model
from shunter.models.counts import FLOAT_BYTES, ModelCounts
from shunter.models.spec import rows_kept


def cost_table(network: Supernet, costs: OperatorCosts) -> CostTable:
    """Return the cost of every operator of a super-net."""
    space, features = network.space, network.features
    top_inputs = network.layers.top_inputs
    bottom: LayerCosts = {}
    paths = network.coding
    if paths.bottom:
        bottom = _of_layers(paths.bottom, len(features.dense), space.base.embedding_dim, costs, is_first=True)
    top = _of_layers(paths.top, top_inputs, features.outputs, costs, is_first=False)
    interactions = tuple(costs.interaction(name) for name in space.interactions)
    tables = tuple(
        tuple(tuple(costs.table(rows_kept(rows, share), width) for width in widths) for share in shares)
        for rows, shares, widths in zip(features.table_rows, space.shares, space.dims, strict=True)
    )

    def extreme(pick: Callable[..., float]) -> float:
        of_tables = sum(pick(cost for of_share in of_table for cost in of_share) for of_table in tables)
        of_bottom = paths.bottom.extreme_cost(bottom, pick) if paths.bottom else 0.0
        return costs.base + pick(interactions) + of_tables + of_bottom + paths.top.extreme_cost(top, pick)

    return CostTable(
        unit=costs.unit,
        bottom=bottom,
        top=top,
        interactions=interactions,
        tables=tables,
        base=costs.base,
        largest=extreme(max),
        smallest=extreme(min),
    )


def _of_layers(paths: MlpPaths, inputs: int, outputs: int, costs: OperatorCosts, *, is_first: bool) -> LayerCosts:
    return {
        (before, after): costs.linear(
            inputs if before == INPUT else before,
            outputs if after == OUTPUT else after,
            is_first=is_first and before == INPUT,
        )
        for before, after in paths.linear_shapes()
    }


class CountedBytes:
    """Bytes of the parameters, equal to `shunter.models.counting.ModelCounts.parameter_bytes`.

    Args:
        network: The super-net.
    """

    unit = "bytes"
    base = 0.0

    def __init__(self, network: Supernet) -> None:
        self._of_interactions = _without_layers(network, self, lambda counts: counts.dense_parameter_bytes)

    def linear(self, inputs: int, outputs: int, *, is_first: bool) -> float:
        """Return the bytes of weights and biases."""
        return float((inputs + 1) * outputs * FLOAT_BYTES)

    def table(self, rows: int, width: int) -> float:
        """Return the bytes of the rows."""
        return float(rows * width * FLOAT_BYTES)

    def interaction(self, name: str) -> float:
        """Return the bytes of the weights."""
        return self._of_interactions[name]


class CountedFlops:
    """FLOPs of the matrix products of a step per sample, as `models.counting.ModelCounts.matmul_flops_per_sample`.

    Args:
        network: The super-net.
    """

    unit = "FLOPs"
    base = 0.0

    def __init__(self, network: Supernet) -> None:
        self._of_interactions = _without_layers(network, self, lambda counts: counts.matmul_flops_per_sample)

    def linear(self, inputs: int, outputs: int, *, is_first: bool) -> float:
        """Return the FLOPs of the output, the weight gradient and, except for the first layer, the input gradient."""
        return float(2 * inputs * outputs * (2 if is_first else 3))

    def table(self, rows: int, width: int) -> float:
        """Return 0: a table has no matrix product."""
        return 0.0

    def interaction(self, name: str) -> float:
        """Return the FLOPs of the interaction's products."""
        return self._of_interactions[name]


def _without_layers(
    network: Supernet, costs: CountedBytes | CountedFlops, figure: Callable[[ModelCounts], float]
) -> dict[str, float]:
    """Return the cost of each interaction: that of a model without hidden layers, minus its two output layers."""
    space, features = network.space, network.features
    outputs = costs.linear(network.layers.top_inputs, features.outputs, is_first=False)
    if features.dense:
        outputs += costs.linear(len(features.dense), space.base.embedding_dim, is_first=True)
    bare = replace(space.base, bottom_widths=(), top_widths=(), table_dims=(), table_shares=())
    return {
        name: figure(count_model(replace(bare, interaction=name), features)) - outputs for name in space.interactions
    }
