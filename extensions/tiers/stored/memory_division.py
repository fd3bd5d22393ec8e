"""Division of the memory of stored tables into pinned rows, cached rows and working memory.

Ids of a vocabulary are ranks: id 1 is the most frequent value in training. So the first ids of each table are accessed
most, and their rows stay in memory (pinned); for a small table this is the whole table. This is placement by accesses
per byte (Software Defined Memory, ICDCS 2022, section 2.3). Rows that are frequent in requests, but not in the training
log, are in the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.errors import RequestError
from shunter.extensions.tiers.stored.row_cache import BYTES_A_SLOT, Policy
from shunter.extensions.tiers.stored.row_file import FLOAT_BYTES, MOST_BUFFER_BYTES, READERS, least_buffer_bytes

WORKING_SHARE = 8  # one over the share of memory for the rows of a batch; reading gets the same share
POOLED_SHARE = 8
MOST_WORKING_BYTES = 64 << 20
PINNED_SHARE = 0.5  # of the memory for rows, for pinned rows


@dataclass(frozen=True, kw_only=True)
class MemoryDivision:
    """Division of the memory of stored tables, in rows and bytes.

    Attributes:
        pinned: Number of first rows of each table that stay in memory.
        cached_rows: Capacity, in rows, of the cache for rows that are not pinned.
        policy: Eviction policy of the cache.
        pooled_bytes: Memory for cached sums of the rows of multi-valued features; 0 without such a cache.
        batch_rows: Largest number of distinct rows that are assembled at a time.
        buffer_bytes: Memory for the read buffers of the file.
    """

    pinned: tuple[int, ...]
    cached_rows: int
    policy: Policy
    pooled_bytes: int
    batch_rows: int
    buffer_bytes: int


def divide(
    memory_bytes: int,
    rows: Sequence[int],
    dim: int,
    bags: int,
    *,
    is_ranked: Sequence[bool] | None = None,
    has_lists: bool = False,
    pinned_share: float = PINNED_SHARE,
    policy: Policy = "lru",
) -> MemoryDivision:
    """Divide the memory between the tables' rows and the caches.

    Args:
        memory_bytes: Memory of the tables.
        rows: Rows of each table.
        dim: Width of a row.
        bags: Number of bags (pooled lookups) of a sample.
        is_ranked: Whether the ids of each table are ranks; rows of other tables count as equally frequent. None: all
            are ranks.
        has_lists: Whether the sums of the rows of multi-valued features are cached.
        pinned_share: Share of the rows' memory for pinned rows.
        policy: Eviction policy of the cache.

    Raises:
        RequestError: The memory is too small for one sample.
    """
    row_bytes = dim * FLOAT_BYTES
    least = WORKING_SHARE * max(least_buffer_bytes(dim), bags * row_bytes)
    if memory_bytes < least:
        raise RequestError(
            f"--memory leaves {memory_bytes:,} bytes for embedding tables, but looking up one sample takes "
            f"{least:,}: raise --memory."
        )
    working = min(memory_bytes // WORKING_SHARE, MOST_WORKING_BYTES)
    buffers = min(working, READERS * (MOST_BUFFER_BYTES + least_buffer_bytes(dim)))
    pooled = memory_bytes // POOLED_SHARE if has_lists else 0
    left = memory_bytes - working - buffers - pooled
    ranked = is_ranked or [True] * len(rows)
    pinned = first_rows(int(pinned_share * left) // row_bytes, rows, ranked)
    cached = (left - sum(pinned) * row_bytes) // (row_bytes + BYTES_A_SLOT)
    return MemoryDivision(
        pinned=pinned,
        cached_rows=min(cached, sum(rows) - sum(pinned)),
        policy=policy,
        pooled_bytes=pooled,
        batch_rows=working // row_bytes,
        buffer_bytes=buffers,
    )


def first_rows(most_rows: int, rows: Sequence[int], is_ranked: Sequence[bool]) -> tuple[int, ...]:
    """Return the number of first rows of each table to pin, together at most `most_rows`.

    Small tables are pinned whole, and the same number of rows of each other table. A table whose ids are not ranks is
    pinned whole or not at all.
    """
    sizes = np.sort(np.array([size for size, is_rank in zip(rows, is_ranked, strict=True) if is_rank], np.int64))
    taken = [0] * len(rows)
    for table in sorted((table for table, is_rank in enumerate(is_ranked) if not is_rank), key=lambda one: rows[one]):
        if rows[table] > most_rows // len(rows):
            break
        taken[table] = rows[table]
        most_rows -= rows[table]
    level = 0
    for place, size in enumerate(sizes.tolist()):
        if (size - level) * (len(sizes) - place) > most_rows:
            level += most_rows // (len(sizes) - place)
            break
        most_rows -= (size - level) * (len(sizes) - place)
        level = size
    return tuple(
        min(size, level) if is_rank else had for size, is_rank, had in zip(rows, is_ranked, taken, strict=True)
    )
