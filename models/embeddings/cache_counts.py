"""What a cache in front of embedding tables in a file did."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(kw_only=True)
class CacheCounts:
    """What a cache did since it was built.

    Attributes:
        rows: Rows that lie in memory at most.
        row_bytes: A row with the state of its optimiser.
        lookups: Ids of all admitted batches.
        hits: Distinct rows of a batch that were there already, summed over the batches.
        misses: Distinct rows of a batch that had to be fetched.
        written_back: Rows that made room for others, each trained since it was fetched.
        transfer_seconds: Time spent on moving rows; it delays training only where training waits for a batch.
        processes: Processes that share the tables, each with a cache of its own, which all figures are of together; the
            time is that of the slowest.
        highest_miss_rate: `miss_rate` of the process where it is highest; None where there is one process.
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
        """What the caches of several processes did together."""
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
        """Share of the distinct rows of a batch that had to be fetched."""
        return self.misses / max(self.hits + self.misses, 1)

    @property
    def bytes_read(self) -> int:
        """From the file."""
        return self.misses * self.row_bytes

    @property
    def bytes_written(self) -> int:
        """To the file, without what is written when the tables are saved."""
        return self.written_back * self.row_bytes
