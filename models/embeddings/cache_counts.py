"""Statistics of a cache in front of embedding tables in a file, and of the row exchange between processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(kw_only=True)
class CacheCounts:
    """Statistics of a cache since it was built.

    Attributes:
        rows: Largest number of rows in memory.
        row_bytes: Bytes of a row with its optimiser state.
        lookups: Ids of all admitted batches.
        hits: Distinct rows of a batch that were in the cache, summed over the batches.
        misses: Distinct rows of a batch that were read from the file.
        written_back: Evicted rows, each of which was trained since it was read and is therefore written.
        transfer_seconds: Time spent on moving rows; it delays training only if training waits for a batch.
        processes: Number of processes that share the tables, each with its own cache. Counts are sums over the
            processes; the time is that of the slowest process.
        highest_miss_rate: Highest `miss_rate` of a process; None if there is one process.
    """

    rows: int = 0
    row_bytes: int = 0
    lookups: int = 0
    hits: int = 0
    misses: int = 0
    written_back: int = 0
    transfer_seconds: float = 0.0
    processes: int = 1
    highest_miss_rate: float | None = None

    @classmethod
    def of_all(cls, counts: Sequence[Self]) -> Self:
        """Add up the statistics of the caches of several processes."""
        if len(counts) == 1:
            return counts[0]
        added = ("rows", "lookups", "hits", "misses", "written_back")
        return cls(
            **{name: sum(getattr(one, name) for one in counts) for name in added},
            row_bytes=counts[0].row_bytes,
            transfer_seconds=max(one.transfer_seconds for one in counts),
            processes=len(counts),
            highest_miss_rate=max(one.miss_rate for one in counts),
        )

    @property
    def miss_rate(self) -> float:
        """Share of the distinct rows of a batch that were read from the file."""
        return self.misses / max(self.hits + self.misses, 1)

    @property
    def bytes_read(self) -> int:
        """Bytes read from the file of the embedding tables."""
        return self.misses * self.row_bytes

    @property
    def bytes_written(self) -> int:
        """Bytes of evicted rows written to the file, without the bytes of saving the tables."""
        return self.written_back * self.row_bytes


@dataclass(kw_only=True)
class LookupCounts:
    """Counts of where rows were found since the tables were opened; each row counts once per batch.

    Attributes:
        pinned: Rows found among the pinned rows.
        cached: Rows found in the cache.
        read: Rows read from the file.
        pooled: Lists whose sum was cached.
        read_bytes: Bytes read from the file.
        read_seconds: Time that scoring waited for reads.
    """

    pinned: int = 0
    cached: int = 0
    read: int = 0
    pooled: int = 0
    read_bytes: int = 0
    read_seconds: float = 0.0

    def __add__(self, other: "LookupCounts") -> "LookupCounts":
        """Return the sum of two counts of lookups."""
        return LookupCounts(**{name: value + getattr(other, name) for name, value in vars(self).items()})


@dataclass(kw_only=True)
class RowTraffic:
    """Counts of the row exchange of a process since its tables were built.

    Attributes:
        steps: Lookups with an update.
        lookups: All lookups, including evaluations.
        rows: Rows received from other processes.
        sent_bytes: Bytes of ids, rows and gradients sent by this process. Gathered gradients of frequent rows
            count once for each receiving process.
    """

    steps: int = 0
    lookups: int = 0
    rows: int = 0
    sent_bytes: int = 0

    @property
    def rows_per_lookup(self) -> float:
        """Mean number of rows received from other processes per lookup."""
        return self.rows / max(self.lookups, 1)
