"""Costs of a super-net's architectures: a cost for each operator, whose sum is an architecture's cost.

The costs may be of any additive quantity. `CountedBytes` counts bytes. `MeasuredCosts` are seconds or joules per step
on this machine, from measured operators: forward, backward and update.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.steps import time_steps
from shunter.errors import HardwareError
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
from shunter.hardware.meters.meter import measure_energy
from shunter.hardware.probes.timing import measured_seconds, repeat, threads
from shunter.hardware.types import Quantity
from shunter.models.counting import count_model
from shunter.models.counts import FLOAT_BYTES
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.interactions import dlrm_interaction
from shunter.models.spec import rows_kept

Key = tuple[str, int, int]
Work = Callable[[], object]
Unit = Literal["seconds", "joules"]
# A step looks up all tables in one operator; its launch cost is divided over this number of bags.
BAGS_TOGETHER = 8
MOST_ROWS = 1 << 20  # of a measured table; rows of larger tables come from memory too


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """Cost of every operator that an architecture of a super-net may have.

    Attributes:
        unit: Unit of all costs.
        bottom: Cost of the linear layer between two widths of the bottom MLP, see `MlpPaths`.
        top: Cost of the linear layer between two widths of the top MLP, see `MlpPaths`.
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


def cost_table(network: Supernet, costs: "CountedBytes | MeasuredCosts") -> CostTable:
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


def _of_layers(
    paths: MlpPaths, inputs: int, outputs: int, costs: "CountedBytes | MeasuredCosts", *, is_first: bool
) -> LayerCosts:
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


def measure_operators(
    works: Mapping[Any, Work], accelerator: str, *, thread_count: int = 1, seconds_each: float = 0.02
) -> tuple[dict[Any, Quantity], Quantity | None]:
    """Time each operator for `seconds_each` and at least three times; return the median times, and the mean power.

    The power is measured or estimated, as given by its source; None if it is unknown.

    The time of a step is not quite the sum: caches hold other data within a step, and launching the step and updating
    the layers take additional time. A prediction of a step's time also needs one measured step.
    """
    device = torch.device(accelerator)
    with threads(thread_count), measure_energy(accelerator) as meter:
        durations = {key: repeat(work, device, seconds_each) for key, work in works.items()}
    reading = meter.reading
    seconds = {key: measured_seconds(times) for key, times in durations.items()}
    if reading.mean_watts is None or reading.method == "unavailable":
        return seconds, None
    return seconds, Quantity(value=reading.mean_watts, source=reading.method)


def module_work(module: nn.Module, shape: tuple[int, ...], device: torch.device, *, is_first: bool = False) -> Work:
    """Return a function that runs a module on a tensor of the given shape, forward and backward.

    If the module is the first one, the gradient of its input is not computed.
    """
    sample = torch.randn(shape, device=device, requires_grad=not is_first)
    gradient = torch.ones_like(module(sample))
    wanted = [*([] if is_first else [sample]), *module.parameters()]

    def work() -> object:
        return torch.autograd.grad(module(sample), wanted, gradient, allow_unused=True)

    return work


class MeasuredCosts:
    """Measured cost of each operator, per step of the whole batch.

    Linear layers, interactions, and lookups with their update are measured separately. The remaining time of a step is
    measured on real steps of one architecture, and assumed for all.

    Args:
        network: Super-net.
        dataset: Data set of the real steps.
        hyperparameters: Hyperparameters of a training run.
        execution: Device, threads and batch size.
        unit: Seconds per step; or joules, computed as seconds times the mean watts of the measurement.

    Attributes:
        source: Source of the figures: `measured`, or `estimated` if the watts are estimated.

    Raises:
        HardwareError: Joules are requested, but the power cannot be measured or estimated.
    """

    def __init__(
        self,
        network: Supernet,
        dataset: Dataset,
        hyperparameters: Hyperparameters,
        execution: Execution,
        unit: Unit = "seconds",
    ) -> None:
        self.unit, self.base, self._scale = unit, 0.0, 1.0
        self.source = "measured"
        works = _works(network, execution)
        self._seconds, watts = measure_operators(works, execution.device, thread_count=execution.threads)
        if unit == "joules":
            if watts is None:
                raise HardwareError(
                    "The power of this machine is unknown, so the energy of architectures is unknown "
                    "too: use the time as the cost."
                )
            self._scale, self.source = watts.value, watts.source
        architecture = network.coding.decode(dict.fromkeys(network.coding.sizes, 0))
        known = cost_of(architecture, network.coding, cost_table(network, self))
        timing = time_steps(dataset, network.space.spec(architecture), hyperparameters, execution)
        self.base = max(0.0, timing.step_seconds * self._scale - known)

    def linear(self, inputs: int, outputs: int, *, is_first: bool) -> float:
        """Return the measured cost of a linear layer with its ReLU."""
        return self._cost(("first" if is_first else "linear", inputs, outputs))

    def table(self, rows: int, width: int) -> float:
        """Cost of a bag of one id per sample, looked up and updated."""
        return self._cost(("table", min(rows, MOST_ROWS), width)) / BAGS_TOGETHER

    def interaction(self, name: str) -> float:
        """Return the measured cost of an interaction."""
        return self._cost((name, 0, 0))

    def _cost(self, key: Key) -> float:
        return self._seconds[key].value * self._scale


def _works(network: Supernet, execution: Execution) -> dict[Key, Work]:
    """Return a function for every distinct operator that an architecture may have."""
    space, features, batch = network.space, network.features, execution.batch_size
    device = torch.device(execution.device)
    works: dict[Key, Work] = {}
    mlps = [("linear", network.coding.top, network.layers.top_inputs, features.outputs)]
    if network.coding.bottom:
        mlps.append(("first", network.coding.bottom, len(features.dense), space.base.embedding_dim))
    for kind, paths, inputs, outputs in mlps:
        for before, after in paths.linear_shapes():
            is_first = kind == "first" and before == INPUT
            shape = inputs if before == INPUT else before, outputs if after == OUTPUT else after
            module = nn.Sequential(nn.Linear(*shape, device=device), nn.ReLU())
            work = module_work(module, (batch, shape[0]), device, is_first=is_first)
            works["first" if is_first else "linear", *shape] = work
    vectors = len(features.categorical) + (1 if features.dense else 0)
    for name in space.interactions:
        module = dlrm_interaction(name, space.base.embedding_dim, vectors).to(device)
        works[name, 0, 0] = module_work(module, (batch, vectors, space.base.embedding_dim), device)
    for ids, shares, widths in zip(features.table_rows, space.shares, space.dims, strict=True):
        for rows in {min(rows_kept(ids, share), MOST_ROWS) for share in shares}:
            for width in widths:
                works.setdefault(("table", rows, width), _table_work(rows, width, batch, device))
    return works


def _table_work(rows: int, width: int, batch: int, device: torch.device) -> Work:
    """Return a function that looks up one random id per sample in a table, and updates the table."""
    # The kernels need widths that are multiples of four.
    table = build_embeddings(
        [rows], 4 * math.ceil(width / 4), learning_rate=0.0, device=device, table_of=[0] * BAGS_TOGETHER
    )
    table.initialise(torch.Generator().manual_seed(0))
    ids = torch.randint(rows, (BAGS_TOGETHER * batch,), dtype=torch.int32, device=device)
    offsets = torch.arange(len(ids) + 1, dtype=torch.int32, device=device)
    gradient = torch.ones(batch, BAGS_TOGETHER, table.dim, device=device)

    def work() -> Tensor:
        pooled = table(ids, offsets)
        pooled.backward(gradient)
        return pooled

    return work
