"""Statistics of tables with row exchange between processes."""

from dataclasses import dataclass


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
