"""What a cache in front of embedding tables in a file did."""

from dataclasses import dataclass


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
    """

    rows: int = 0
    row_bytes: int = 0
    lookups: int = 0
    hits: int = 0
    misses: int = 0
    written_back: int = 0
    transfer_seconds: float = 0.0

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
