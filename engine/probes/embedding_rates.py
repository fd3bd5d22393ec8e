"""Measurement of the bandwidth of embedding lookups and updates on a device, for rows of several widths.

The measured kernel is that of training, with pooling, sorting of ids and row-wise Adagrad.
"""

from dataclasses import dataclass

import torch

from shunter.hardware.probes.timing import repeat, threads
from shunter.models.embeddings.kinds import build_embeddings

ROW_BYTES = (16, 32, 64, 128, 256, 512)
LOOKUPS = 2**14
BATCH = 512  # samples; each has 32 lookups, about as many as in a typical recommender
FLOAT_BYTES = 4


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
