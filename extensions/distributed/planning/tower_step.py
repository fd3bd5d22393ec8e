"""Step of a model with a tower on each host: vectors are exchanged in the host, compressed, then sent across.

The tables of a tower are on its host, whole or by row over its devices. The peers of a device are the devices at the
same position on the other hosts. Each device gets the vectors of all the tower's tables for the samples of its peers,
and sends them the outputs of the tower (SPTT of DMT, arXiv 2403.00877, section 3). Layers are those of the model with
towers. This module only simulates the step; `shunter train --model dmt` executes it with the same placement and
exchange.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.extensions.distributed.planning.calibration import UNCALIBRATED, Calibration
from shunter.extensions.distributed.planning.costs import TableCosts
from shunter.extensions.distributed.planning.demand import ModelDemand
from shunter.extensions.distributed.planning.options import greedy
from shunter.extensions.distributed.planning.search import Search
from shunter.extensions.distributed.planning.step import StepModel
from shunter.extensions.distributed.tables.sharding_types import Choice, can_divide_rows
from shunter.hardware.types import Workload
from shunter.model_families import MODEL_FAMILIES
from shunter.models.registry import model_spec
from shunter.models.spec import ModelSpec
from shunter.planner.describe import describe

WITH_TOWERS = ("dlrm", "dcnv2")  # families that DMT (arXiv 2403.00877) divides into towers
WIDTH_STEP = 4  # FBGEMM's rows are multiples of four floats


class TowerStep(StepModel):
    """Step simulator for plans with a tower on each host, which compress the messages between hosts by a factor."""

    def __init__(self, costs: TableCosts, compression: float, calibration: Calibration = UNCALIBRATED) -> None:
        self._compression = compression
        super().__init__(costs, calibration=calibration)

    def _exchange_seconds(self, phase: str, group: int, place: int, sums: Sequence[float]) -> tuple[float, float]:
        starts, sending = super()._exchange_seconds(phase, group, place, sums)
        if phase.startswith("ids"):
            return starts, sending
        if phase.endswith(" across"):
            return starts, sending / self._compression
        # Pooled tables send the own host's samples alone in a flat exchange; partial sums are of all samples as it is.
        return starts, sending * (self.layout.hosts if self.layout.groups[group] == "table_wise" else 1)


def tower_demand(demand: ModelDemand, towers: Workload) -> ModelDemand:
    """Return the demand of the same tables with the layers of a model with towers."""
    return replace(demand, family="dmt", workload=towers, layers=())


def tower_options(model: StepModel) -> list[list[Choice]]:
    """Return the placements of each table on its tower's host; hosts get equal numbers of tables in order."""
    layout, tables = model.layout, model.costs.demand.tables
    options: list[list[Choice]] = [[] for _ in tables]
    for host, members in enumerate(_by_host(len(tables), layout.hosts)):
        devices = tuple(range(host * layout.per_host, (host + 1) * layout.per_host))
        for table in members:
            options[table] = [Choice("table_wise", (device,)) for device in devices]
            if layout.per_host > 1 and can_divide_rows(tables[table].rows, layout.per_host):
                options[table].append(Choice("table_row_wise", devices))
    return options


def search_towers(model: TowerStep, seconds: float) -> tuple[list[Choice], float] | None:
    """Return the best placement of the towers' tables by single changes, and its step; None if they do not fit."""
    options = tower_options(model)
    return Search(model, options=options).improve(_balanced(model, options), seconds)


def _by_host(tables: int, hosts: int) -> list[list[int]]:
    """Return the table numbers of each host: consecutive tables, with counts that differ by at most one."""
    return [part.tolist() for part in np.array_split(np.arange(tables), hosts)]


def _balanced(model: StepModel, options: Sequence[Sequence[Choice]]) -> list[Choice]:
    """Return whole tables on their hosts, balanced by lookups; tables that do not fit are divided by row."""
    layout, tables, devices = model.layout, model.costs.demand.tables, model.machine.devices
    found = [one[-1] for one in options]
    for host, members in enumerate(_by_host(len(tables), layout.hosts)):
        own = devices[host * layout.per_host : (host + 1) * layout.per_host]
        whole = greedy(
            [tables[one].ids_per_sample * tables[one].width for one in members],
            [tables[one].rows * (tables[one].width + 1) * 4.0 for one in members],
            [float(device.memory_bytes) for device in own],
        )
        for place, table in enumerate(members):
            if whole is not None:
                found[table] = options[table][whole[place]]
    return found


def tower_spec(spec: ModelSpec, fields: int, towers: int, compression: float) -> ModelSpec:
    """Return the spec with towers; each compresses its fields' vectors by the factor `compression`.

    Args:
        spec: A flat model.
        fields: Number of categorical fields.
        towers: Number of towers, at most one for each field.
        compression: Compression factor of each tower.
    """
    of_a_tower = fields / towers
    vectors = max(1, round(of_a_tower / compression))
    width = of_a_tower * spec.embedding_dim / (compression * vectors)
    return model_spec(
        "dmt",
        embedding_dim=spec.embedding_dim,
        bottom_widths=spec.bottom_widths,
        top_widths=spec.top_widths,
        towers=towers,
        tower_kind="dcn" if spec.family == "dcnv2" else "dlrm",
        tower_vectors=vectors,
        tower_dim=max(WIDTH_STEP, WIDTH_STEP * round(width / WIDTH_STEP)),
    )


def tower_workload(dataset: Dataset, spec: ModelSpec, towers: int, compression: float) -> Workload | None:
    """Return the workload of a model with this number of towers; None if such a model is not available."""
    if "dmt" not in MODEL_FAMILIES.names:
        return None
    fields = len(dataset.features.categorical)
    if spec.family not in WITH_TOWERS or spec.has_mixed_tables or min(towers, fields) < 2:
        return None
    whole, alone = (
        describe(dataset, tower_spec(spec, fields, count, compression)) for count in (min(towers, fields), 1)
    )
    return with_one_tower(whole, alone)


def with_one_tower(whole: Workload, alone: Workload) -> Workload:
    """Return `whole` with the operator counts of `alone`, because a device computes only its own host's tower."""
    dense = {
        precision: one.model_copy(update={"operators_per_step": alone.dense[precision].operators_per_step})
        for precision, one in whole.dense.items()
    }
    return whole.model_copy(update={"dense": dense, "operators_per_step": alone.operators_per_step})
