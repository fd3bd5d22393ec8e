"""Demand of a model: the lookups of its tables and the work of its layers, counted from the model and from samples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np

from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader, mean_ids_per_sample
from shunter.errors import RequestError
from shunter.extensions.distributed.planning.plan import tables_fingerprint
from shunter.hardware.types import Workload
from shunter.models.registry import bag_tables
from shunter.models.spec import ModelSpec
from shunter.planner.describe import describe

COUNTED_SAMPLES = 200_000  # of the training part, in its shuffled order
COUNTED_AT_ONCE = 8_192
POINTS = 48
FLOAT_BYTES = 4

Curve = tuple[tuple[float, float], ...]
"""Ascending points (number of first rows, share of all lookups in these rows); the last is (all rows, 1)."""


@dataclass(frozen=True)
class TableDemand:
    """Embedding table with the statistics of its lookups.

    Attributes:
        name: Field that owns the table.
        width: Number of floats in a row.
        bags: Number of pooled vectors per sample from this table.
        ids_per_sample: Number of ids per sample, summed over the bags of the table.
        in_order: Points (number of first rows, share of the lookups in them), rows in the order of the table.
        by_frequency: Points as in `in_order`, with the most frequent rows first.
    """

    name: str
    rows: int
    width: int
    bags: int
    ids_per_sample: float
    in_order: Curve
    by_frequency: Curve

    @classmethod
    def counted(cls, name: str, width: int, *, bags: int, ids_per_sample: float, counts: np.ndarray) -> Self:
        """Return the demand of a table, from the number of lookups of each row, `counts` `[rows]`."""
        by_frequency = _curve(np.sort(counts)[::-1])
        return cls(name, len(counts), width, bags, ids_per_sample, _curve(counts), by_frequency)

    def share_before(self, rows: float) -> float:
        """Return the share of the lookups that fall on the first `rows` rows of the table."""
        x, y = self._order
        return float(np.interp(rows, x, y))

    def distinct_rows(self, first: float, last: float, lookups: float) -> float:
        """Return the expected number of distinct rows from `first` up to `last` among a number of lookups of the table.

        Rows between two points of `in_order` are assumed to be looked up equally often.
        """
        rows, shares = self._order
        found = 0.0
        for (low, high), (before, after) in zip(pairwise(rows), pairwise(shares), strict=True):
            own = min(high, last) - max(low, first)
            if own > 0:
                found += own * -math.expm1(-lookups * (after - before) / (high - low))
        return found

    @cached_property
    def _order(self) -> tuple[list[float], list[float]]:
        return [0.0, *(rows for rows, _ in self.in_order)], [0.0, *(share for _, share in self.in_order)]


@dataclass(frozen=True)
class LayerDemand:
    """Linear layer that may be divided by its outputs."""

    name: str
    inputs: int
    outputs: int

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the layer's weights."""
        return (self.inputs + 1) * self.outputs * FLOAT_BYTES


@dataclass(frozen=True)
class ModelDemand:
    """Demand of a model on its data: lookups of the tables and work of the layers.

    Attributes:
        workload: Demand of a sample; only its dense part is used.
        layers: Linear layers that a simulated plan may divide; training does not divide them.
    """

    family: str
    data: str
    tables: tuple[TableDemand, ...]
    workload: Workload
    layers: tuple[LayerDemand, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the tables' names, rows and widths."""
        return tables_fingerprint([(table.name, table.rows, table.width) for table in self.tables])


def demand_of(dataset: Dataset, spec: ModelSpec) -> ModelDemand:
    """Return the demand of a model on a data set; lookups are counted in a sample of the training part.

    Raises:
        RequestError: The model cannot take these features.
        DataError: The data set is damaged.
    """
    import torch
    from torch import nn

    from shunter.models.registry import build_layers

    if spec.table_precision != "fp32":
        raise RequestError("Embedding tables in fp16 cannot be sharded over devices: leave out table_precision.")
    names, shapes = table_names(dataset), spec.tables(dataset.features)
    bags = bag_tables(spec, dataset.features)
    table_of = dataset.features.table_of
    ids = list(mean_ids_per_sample(dataset).values())
    counts = count_lookups(dataset, [shape.rows for shape in shapes])
    tables = tuple(
        TableDemand.counted(
            name,
            shape.width,
            bags=bags.count(place),
            ids_per_sample=sum(ids[field] for field, table in enumerate(table_of) if table == place),
            counts=counts[place],
        )
        for place, (name, shape) in enumerate(zip(names, shapes, strict=True))
    )
    with torch.device("meta"):
        modules = build_layers(spec, dataset.features).named_modules()
    layers = tuple(
        LayerDemand(name, module.in_features, module.out_features)
        for name, module in modules
        if type(module) is nn.Linear and module.out_features > 1
    )
    return ModelDemand(spec.family, dataset.name, tables, describe(dataset, spec), layers)


def table_names(dataset: Dataset) -> list[str]:
    """Return the name of each table, which is the field that owns it."""
    return [field.name for field in dataset.features.categorical if field.table is None]


def count_lookups(dataset: Dataset, rows: Sequence[int]) -> list[np.ndarray]:
    """Count the lookups of each row of each table in a sample of the training part; row = id modulo rows."""
    counts = [np.zeros(size, dtype=np.int64) for size in rows]
    table_of = dataset.features.table_of
    loader = BatchLoader(dataset, "train", COUNTED_AT_ONCE, shuffle=True)
    seen = 0
    for batch in loader.batches():
        values, offsets = batch.values.numpy(), batch.offsets.numpy()
        size = (len(offsets) - 1) // len(table_of)
        for field, table in enumerate(table_of):
            ids = values[offsets[field * size] : offsets[(field + 1) * size]]
            counts[table] += np.bincount(ids % rows[table], minlength=rows[table])
        seen += size
        if seen >= COUNTED_SAMPLES:
            break
    return counts


def _curve(counts: np.ndarray) -> Curve:
    """Return cumulative shares of lookups at rows with logarithmic spacing; uniform without lookups."""
    if not counts.sum():
        return ((float(len(counts)), 1.0),)
    cumulative = np.cumsum(counts)
    ranks = np.unique(np.geomspace(1, len(counts), POINTS).round().astype(np.int64))
    return tuple((float(rank), float(cumulative[rank - 1] / cumulative[-1])) for rank in ranks)
