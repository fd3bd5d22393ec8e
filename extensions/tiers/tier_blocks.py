"""Assignment of the rows of tables in files to the processes of a training run."""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np

from shunter.models.registry import bag_tables
from shunter.models.spec import Features, ModelSpec


class TierBlocks:
    """Blocks of table rows that each process owns, divided as TorchRec's `row_wise` sharding does.

    The first rows of a table are its frequent ones. Consecutive tables therefore begin at different processes, so that
    the first process does not have all frequent rows. Tables whose bags are summed from more than two parts begin at
    the first process, because the order changes the last bit of a sum.

    Args:
        rows: Rows of each table.
        processes: Number of processes.
        is_spread: For each table, whether its first block may belong to another process than the first.
    """

    def __init__(self, rows: Sequence[int], processes: int, is_spread: Sequence[bool]) -> None:
        self.rows, self.processes = tuple(rows), processes
        self._sizes = np.array([math.ceil(count / processes) for count in rows])
        self._turns = np.where(is_spread, np.cumsum(is_spread) - 1, 0) % processes

    @classmethod
    def of(cls, spec: ModelSpec, features: Features, processes: int) -> Self:
        """Return the blocks of the tables of a model."""
        bags = zip(bag_tables(spec, features), features.categorical, strict=True)
        in_many_parts = {table for table, field in bags if field.multi_valued and processes > 2}
        return cls(
            features.table_rows, processes, [table not in in_many_parts for table in range(len(features.table_rows))]
        )

    def own(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first row and the number of rows of each table that belong to a process."""
        first = np.minimum((rank - self._turns) % self.processes * self._sizes, self.rows)
        return first, np.minimum(first + self._sizes, self.rows) - first

    def owner(self, table: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return the process to which each row of a table belongs."""
        return (row // self._sizes[table] + self._turns[table]) % self.processes
