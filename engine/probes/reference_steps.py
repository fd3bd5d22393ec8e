"""Short probes of what no matrix product and no copy tells: what a step costs that computes nothing, and the tables.

Steps of one small model at two batch sizes give what every step costs whatever its size (the interpreter, the hand-over
of a batch, the kernels' own start), and how much longer memory takes within a step than alone, as each tensor is new.
Passes over tables of several shapes tell apart what a bag, a looked-up row and each byte of it cost, from the caches
and from memory. Measured with the kernels that train.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from statistics import quantiles
from typing import Literal

import numpy as np
import torch

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.batch import Batch, make_batch
from shunter.engine.loop.step import applied, build_dense_optimizer, prefetch, seeded, train_step
from shunter.hardware.probes.timing import repeat
from shunter.models.embeddings.pooled import build_embeddings
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

FLOAT_BYTES = 4
CACHED_ROWS = 512  # of a table that stays in the caches
REFERENCE_SPEC = model_spec()
REFERENCE_FEATURES = Features(
    dense=tuple(f"dense{i}" for i in range(13)),
    categorical=tuple(CategoricalFeature(name=f"id{i}", rows=CACHED_ROWS) for i in range(26)),
)
REFERENCE_BATCHES = (64, 1024)


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """Tables of one width that are looked up in one operator.

    Attributes:
        tables: how many.
        ids: Ids of each bag.
        dim: width of a row.
        batch_size: bags of each table.
        cached: whether the tables are so small that they stay in the caches, or far larger.
    """

    tables: int
    ids: int
    dim: int
    batch_size: int
    cached: bool

    @property
    def bags(self) -> int:
        """Of all tables."""
        return self.tables * self.batch_size

    @property
    def row_bytes(self) -> int:
        """Of the weights of a row."""
        return self.dim * FLOAT_BYTES

    @property
    def lookups(self) -> int:
        """Rows that are looked up."""
        return self.bags * self.ids


SHAPES = (
    TableShape(tables=1, ids=1, dim=16, batch_size=64, cached=True),
    TableShape(tables=16, ids=1, dim=16, batch_size=512, cached=True),
    TableShape(tables=16, ids=1, dim=64, batch_size=512, cached=True),
    TableShape(tables=4, ids=16, dim=16, batch_size=512, cached=True),
    TableShape(tables=16, ids=1, dim=16, batch_size=512, cached=False),
    TableShape(tables=16, ids=1, dim=64, batch_size=512, cached=False),
)


def time_reference_step(
    device: torch.device, *, threads: int, precision: Literal["fp32", "bf16"], batch_size: int, seconds: float
) -> float:
    """Seconds of a training step of the reference model, its batches in memory.

    Args:
        device: Device that it runs on.
        threads: intra-operator threads.
        precision: Precision of the dense part.
        batch_size: samples of the step.
        seconds: for how long it is repeated.
    """
    execution = Execution(device=str(device), threads=threads, precision=precision, batch_size=batch_size)
    with applied(execution), seeded(0, device):
        model = build_model(REFERENCE_SPEC, REFERENCE_FEATURES, device=device).train()
        optimizer = build_dense_optimizer(model, Hyperparameters())
        with prefetch(_reference_batches(batch_size), execution) as batches:
            return _undisturbed(repeat(lambda: train_step(model, optimizer, next(batches), precision), device, seconds))


def time_tables(device: torch.device, shape: TableShape, *, threads: int, large_bytes: int, seconds: float) -> float:
    """Seconds of looking up and updating tables once, with uniform ids.

    Args:
        device: Device of the tables.
        shape: how many there are and how they are looked up.
        threads: intra-operator threads.
        large_bytes: Bytes of all tables together when they shall not fit into the caches.
        seconds: for how long it is repeated.
    """
    rows = CACHED_ROWS if shape.cached else max(CACHED_ROWS, large_bytes // (shape.tables * shape.dim * FLOAT_BYTES))
    tables = build_embeddings([rows] * shape.tables, shape.dim, learning_rate=0.01, device=device)
    tables.weight.fill_(0.01)  # touched, by all cores, so that no page is made while it is read
    tables.adagrad_sum.zero_()
    with applied(Execution(device=str(device), threads=threads)), seeded(0, device):
        values = torch.randint(rows, (shape.lookups,), dtype=torch.int32, device=device)
        offsets = torch.arange(0, shape.lookups + 1, shape.ids, dtype=torch.int32, device=device)
        gradient = torch.full((shape.batch_size, shape.tables, shape.dim), 1e-3, device=device)
        return _undisturbed(repeat(lambda: tables(values, offsets).backward(gradient), device, seconds))


def _undisturbed(durations: list[float]) -> float:
    """The lower quartile: on a crowded machine more than half of the repetitions may have waited for others."""
    return quantiles(durations, n=4)[0] if len(durations) > 1 else durations[0]


def _reference_batches(batch_size: int) -> Iterator[Batch]:
    random = np.random.default_rng(0)
    dense, fields = len(REFERENCE_FEATURES.dense), len(REFERENCE_FEATURES.categorical)
    return cycle(
        [
            make_batch(
                REFERENCE_FEATURES,
                dense=random.normal(size=(batch_size, dense)).astype(np.float32),
                categorical=random.integers(CACHED_ROWS, size=(batch_size, fields), dtype=np.int32),
                labels=np.zeros(batch_size, dtype=np.float32),
            )
            for _ in range(4)
        ]
    )
