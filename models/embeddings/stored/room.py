"""What becomes of the memory that stored tables may take: rows that stay, rows that come and go, and working memory.

Ids of a vocabulary are ranks: id 1 is the value that training saw most. So the first ids of each table are those that
are asked for most, and they stay in memory for good; where a table is small, that is the whole table (placement by
accesses per byte, SDM 2.3 A, for accesses that fall with the rank as they do in clicks). What is hot by the day, and
not by the training log, has the cache beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.errors import RequestError
from shunter.models.embeddings.stored.row_cache import BYTES_A_SLOT, Policy
from shunter.models.embeddings.stored.row_file import FLOAT_BYTES, MOST_BUFFER_BYTES, READERS, least_buffer_bytes

WORKING_SHARE = 8  # one over the part for the rows of a batch, and as much for reading
POOLED_SHARE = 8
MOST_WORKING_BYTES = 64 << 20
PINNED_SHARE = 0.5  # of what the rows have, for those that stay


@dataclass(frozen=True, kw_only=True)
class Room:
    """How the memory is divided.

    Attributes:
        pinned: Of each table, how many of its first rows stay in memory.
        cached_rows: Rows in the cache of the others.
        policy: How that cache makes room.
        pooled_bytes: Memory for sums of whole lists.
        batch_rows: Distinct rows that are put together at a time.
        buffer_bytes: Memory for reading.
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
) -> Room:
    """Divide the memory.

    Args:
        memory_bytes: All that the tables may take.
        rows: Rows of each table.
        dim: Width of a row.
        bags: Bags of a sample.
        is_ranked: Whether the ids of a table are ranks; of one whose are not, all rows are alike. None: all are.
        has_lists: Whether sums of lists are worth keeping.
        pinned_share: Share of the rows' memory for those that stay.
        policy: How the cache makes room.

    Raises:
        RequestError: It is too little for one sample.
    """
    row_bytes = dim * FLOAT_BYTES
    least = WORKING_SHARE * max(least_buffer_bytes(dim), bags * row_bytes)
    if memory_bytes < least:
        raise RequestError(
            f"--memory leaves embedding tables {memory_bytes:,} bytes, and to look up one sample takes {least:,}: "
            "raise it."
        )
    working = min(memory_bytes // WORKING_SHARE, MOST_WORKING_BYTES)
    buffers = min(working, READERS * (MOST_BUFFER_BYTES + least_buffer_bytes(dim)))
    pooled = memory_bytes // POOLED_SHARE if has_lists else 0
    left = memory_bytes - working - buffers - pooled
    ranked = is_ranked or [True] * len(rows)
    pinned = first_rows(int(pinned_share * left) // row_bytes, rows, ranked)
    cached = (left - sum(pinned) * row_bytes) // (row_bytes + BYTES_A_SLOT)
    return Room(
        pinned=pinned,
        cached_rows=min(cached, sum(rows) - sum(pinned)),
        policy=policy,
        pooled_bytes=pooled,
        batch_rows=working // row_bytes,
        buffer_bytes=buffers,
    )


def first_rows(room: int, rows: Sequence[int], is_ranked: Sequence[bool]) -> tuple[int, ...]:
    """Of each table so many first rows that there is room for all: whole small tables, and of the others one number.

    A table whose ids are no ranks stays whole or not at all.
    """
    sizes = np.sort(np.array([size for size, is_rank in zip(rows, is_ranked, strict=True) if is_rank], np.int64))
    taken = [0] * len(rows)
    for table in sorted((table for table, is_rank in enumerate(is_ranked) if not is_rank), key=lambda one: rows[one]):
        if rows[table] > room // len(rows):
            break
        taken[table] = rows[table]
        room -= rows[table]
    level = 0
    for place, size in enumerate(sizes.tolist()):
        if (size - level) * (len(sizes) - place) > room:
            level += room // (len(sizes) - place)
            break
        room -= (size - level) * (len(sizes) - place)
        level = size
    return tuple(
        min(size, level) if is_rank else had for size, is_rank, had in zip(rows, is_ranked, taken, strict=True)
    )
