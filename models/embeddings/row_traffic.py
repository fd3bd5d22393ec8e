"""What tables whose rows travel one by one have asked of other processes."""

from dataclasses import dataclass


@dataclass(kw_only=True)
class RowTraffic:
    """What a process has asked and sent since its tables were built, counted.

    Attributes:
        steps: Lookups that learned.
        lookups: Lookups of all kinds, those of evaluations included.
        rows: Rows that came from other processes.
        sent_bytes: Bytes of ids, rows and gradients that this process has sent; its part of the gathered gradients of
            frequent rows counts once for each other process.
    """

    steps: int = 0
    lookups: int = 0
    rows: int = 0
    sent_bytes: int = 0

    @property
    def rows_per_lookup(self) -> float:
        """Rows of a batch that came from other processes."""
        return self.rows / max(self.lookups, 1)
