"""Short measurements of step costs besides matrix products and copies: fixed cost of a step, and embedding table costs.

Steps of one small model at two batch sizes give the fixed cost of a step (the interpreter, the transfer of a batch,
kernel launches). They also give the factor by which memory access is slower within a step than in a copy, because
each tensor of a step is newly allocated. Lookups in tables of several shapes separate the costs of a bag, of a
looked-up row and of each byte of a row, from the caches and from memory. All measurements use the training kernels.
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
from shunter.hardware.probes.timing import repeat, threads
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.registry import build_model, model_spec
from shunter.models.spec import CategoricalFeature, Features

FLOAT_BYTES = 4
CACHED_ROWS = 512  # rows of a table that stays in the caches
REFERENCE_SPEC = model_spec()
REFERENCE_FEATURES = Features(
    dense=tuple(f"dense{i}" for i in range(13)),
    categorical=tuple(CategoricalFeature(name=f"id{i}", rows=CACHED_ROWS) for i in range(26)),
)
REFERENCE_BATCHES = (64, 1024)


@dataclass(frozen=True, kw_only=True)
class TableShape:
    """Shape of equally wide embedding tables that are looked up in one operator.

    Attributes:
        tables: Number of tables.
        ids: Number of ids in each bag.
        dim: Width of a row.
        batch_size: Number of bags for each table.
        cached: Whether the tables fit into the processor's caches; otherwise they are far larger.
    """

    tables: int
    ids: int
    dim: int
    batch_size: int
    cached: bool

    @property
    def bags(self) -> int:
        """Number of bags of all tables."""
        return self.tables * self.batch_size

    @property
    def row_bytes(self) -> int:
        """Size of the weights of a row, in bytes."""
        return self.dim * FLOAT_BYTES

    @property
    def lookups(self) -> int:
        """Number of looked-up rows."""
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
    """Return the seconds of a training step of the reference model, with batches in memory."""
    execution = Execution(device=str(device), threads=threads, precision=precision, batch_size=batch_size)
    with applied(execution), seeded(0, device):
        model = build_model(REFERENCE_SPEC, REFERENCE_FEATURES, device=device).train()
        optimizer = build_dense_optimizer(model, Hyperparameters())
        with prefetch(_reference_batches(batch_size), execution) as batches:
            return _undisturbed(repeat(lambda: train_step(model, optimizer, next(batches), precision), device, seconds))


def time_tables(device: torch.device, shape: TableShape, *, threads: int, large_bytes: int, seconds: float) -> float:
    """Return the seconds of one lookup and update of tables with uniform ids; `large_bytes` is for uncached tables."""
    rows = CACHED_ROWS if shape.cached else max(CACHED_ROWS, large_bytes // (shape.tables * shape.dim * FLOAT_BYTES))
    tables = build_embeddings([rows] * shape.tables, shape.dim, learning_rate=0.01, device=device)
    tables.weight.fill_(0.01)  # writing, by all cores, allocates all memory pages before the lookups
    tables.adagrad_sum.zero_()
    with applied(Execution(device=str(device), threads=threads)), seeded(0, device):
        values = torch.randint(rows, (shape.lookups,), dtype=torch.int32, device=device)
        offsets = torch.arange(0, shape.lookups + 1, shape.ids, dtype=torch.int32, device=device)
        gradient = torch.full((shape.batch_size, shape.tables, shape.dim), 1e-3, device=device)
        return _undisturbed(repeat(lambda: tables(values, offsets).backward(gradient), device, seconds))


def _undisturbed(durations: list[float]) -> float:
    """Return the lower quartile of durations: other jobs on the machine may disturb more than half of them."""
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


ROW_BYTES = (16, 32, 64, 128, 256, 512)
LOOKUPS = 2**14
BATCH = 512  # samples; each has 32 lookups, about as many as in a typical recommender


@dataclass(frozen=True, kw_only=True)
class EmbeddingTimes:
    """Repeated measurements of one table.

    Attributes:
        row_bytes: Width of the rows in bytes.
        payload_bytes: Bytes of the rows of one pass, each row counted once.
        lookup_seconds: Seconds of each forward pass.
        update_seconds: Seconds of each backward pass, which updates the rows.
    """

    row_bytes: int
    payload_bytes: int
    lookup_seconds: tuple[float, ...]
    update_seconds: tuple[float, ...]


def time_embeddings(
    device: torch.device, *, thread_count: int, table_bytes: int, seconds_each: float = 0.05
) -> list[EmbeddingTimes]:
    """Time the forward and the backward pass of a table, for each of `ROW_BYTES`.

    The ids are uniform, which is the slowest access if the table is too large for the caches.

    Args:
        device: Device of the table.
        thread_count: Intra-operator threads.
        table_bytes: Size of the table in bytes.
        seconds_each: Seconds after which a measurement is repeated no more; each is repeated at least three times.
    """
    with threads(thread_count), torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        return [_time_width(device, row_bytes, table_bytes, seconds_each) for row_bytes in ROW_BYTES]


def _time_width(device: torch.device, row_bytes: int, table_bytes: int, seconds: float) -> EmbeddingTimes:
    dim, rows = row_bytes // FLOAT_BYTES, table_bytes // row_bytes
    tables = build_embeddings((rows,), dim, learning_rate=0.01, device=device)
    tables.weight.fill_(0.01)  # writing allocates all memory pages before the lookups
    tables.adagrad_sum.zero_()
    values = torch.randint(rows, (LOOKUPS,), dtype=torch.int32, device=device)
    offsets = torch.arange(0, LOOKUPS + 1, LOOKUPS // BATCH, dtype=torch.int32, device=device)
    gradient = torch.full((BATCH, 1, dim), 1e-3, device=device)
    lookup_seconds = repeat(lambda: tables(values, offsets), device, seconds)
    pooled = tables(values, offsets)
    update_seconds = repeat(lambda: pooled.backward(gradient, retain_graph=True), device, seconds)
    return EmbeddingTimes(
        row_bytes=row_bytes,
        payload_bytes=LOOKUPS * row_bytes,
        lookup_seconds=tuple(lookup_seconds),
        update_seconds=tuple(update_seconds),
    )
