"""Costs of a super-net's architectures: a cost for each operator, whose sum is an architecture's cost.

The costs may be of any additive quantity: bytes are counted here, seconds and joules are measured
(`shunter.extensions.nas.operator_costs`); all implement `OperatorCosts`.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from shunter.extensions.nas.supernet.network import Supernet
from shunter.extensions.nas.supernet.space import (
    INPUT,
    INTERACTION,
    OUTPUT,
    Architecture,
    Choices,
    Coding,
    LayerCosts,
    Masks,
    MlpPaths,
    dim_choice,
    share_choice,
)
from shunter.models.counting import count_model
from shunter.models.counts import FLOAT_BYTES
from shunter.models.spec import rows_kept


class OperatorCosts(Protocol):
    """Cost of each operator, including forward, backward and update."""

    unit: str
    base: float

    def linear(self, inputs: int, outputs: int, *, is_first: bool) -> float:
        """Return the cost of a linear layer; the first layer of the model has no input gradient."""
        ...

    def table(self, rows: int, width: int) -> float:
        """Return the cost of a table and its lookups."""
        ...

    def interaction(self, name: str) -> float:
        """Return the cost of an interaction."""
        ...


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """Cost of every operator that an architecture of a super-net may have.

    Attributes:
        unit: Unit of all costs.
        bottom: Cost of the linear layer between two widths of the bottom MLP, see `paths`.
        top: Cost of the linear layer between two widths of the top MLP, see `paths`.
        interactions: Cost of each interaction.
        tables: Cost of each table, by the index of its share of rows and of its width.
        base: Cost that all architectures have in common.
    """

    unit: str
    bottom: LayerCosts
    top: LayerCosts
    interactions: tuple[float, ...]
    tables: tuple[tuple[tuple[float, ...], ...], ...]
    base: float


def cost_table(network: Supernet, costs: OperatorCosts) -> CostTable:
    """Return the cost of every operator of a super-net."""
    space, features, paths = network.space, network.features, network.coding
    bottom: LayerCosts = {}
    if paths.bottom:
        bottom = _of_layers(paths.bottom, len(features.dense), space.base.embedding_dim, costs, is_first=True)
    top = _of_layers(paths.top, network.layers.top_inputs, features.outputs, costs, is_first=False)
    interactions = tuple(costs.interaction(name) for name in space.interactions)
    tables = tuple(
        tuple(tuple(costs.table(rows_kept(rows, share), width) for width in widths) for share in shares)
        for rows, shares, widths in zip(features.table_rows, space.shares, space.dims, strict=True)
    )
    return CostTable(unit=costs.unit, bottom=bottom, top=top, interactions=interactions, tables=tables, base=costs.base)


def expected_cost(coding: Coding, masks: Masks, costs: CostTable) -> Tensor:
    """Return the mean cost of the mixed architectures, `[batch]`; for one-hot masks that of the architecture."""
    total = masks[INTERACTION] @ masks.values.new_tensor(costs.interactions) + costs.base
    if coding.bottom:
        total = total + coding.bottom.expected_cost(masks, costs.bottom)
    total = total + coding.top.expected_cost(masks, costs.top)
    for table, of_table in enumerate(costs.tables):
        of_share = masks[dim_choice(table)] @ masks.values.new_tensor(of_table).t()
        total = total + (of_share * masks[share_choice(table)]).sum(1)
    return total


def cost_of(architecture: Architecture, coding: Coding, costs: CostTable) -> float:
    """Return the exact cost of an architecture."""
    masks = Choices(coding.sizes).one_hot(coding.encode(architecture))
    return float(expected_cost(coding, replace(masks, values=masks.values.double()), costs))


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
        network: Super-net.
    """

    unit = "bytes"
    base = 0.0

    def __init__(self, network: Supernet) -> None:
        # Bytes of each interaction: a model without hidden layers, minus its output layers.
        space, features = network.space, network.features
        outputs = self.linear(network.layers.top_inputs, features.outputs, is_first=False)
        if features.dense:
            outputs += self.linear(len(features.dense), space.base.embedding_dim, is_first=True)
        bare = replace(space.base, bottom_widths=(), top_widths=(), table_dims=(), table_shares=())
        self._of_interactions = {
            name: count_model(replace(bare, interaction=name), features).dense_parameter_bytes - outputs
            for name in space.interactions
        }

    def linear(self, inputs: int, outputs: int, *, is_first: bool) -> float:
        """Return the bytes of weights and biases."""
        return float((inputs + 1) * outputs * FLOAT_BYTES)

    def table(self, rows: int, width: int) -> float:
        """Return the bytes of a table's rows."""
        return float(rows * width * FLOAT_BYTES)

    def interaction(self, name: str) -> float:
        """Return the bytes of an interaction's weights."""
        return self._of_interactions[name]
