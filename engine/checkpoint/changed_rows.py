"""Changed rows of embedding tables, which a checkpoint stores apart from the other state of a training run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from torch import Tensor

from shunter.engine.checkpoint.generations import Part, StoredFile

WriteFile = Callable[[str, dict[str, Tensor], dict[str, str] | None], StoredFile]


class GivenUpError(Exception):
    """Error: the writing of rows was abandoned; the unwritten rows must be stored by a later checkpoint."""


class CheckpointRows(Protocol):
    """Embedding rows selected for one checkpoint, with a method that writes them."""

    @property
    def are_all(self) -> bool:
        """Return True if all rows of the tables are selected."""
        ...

    def write(self, number: int, step: int, parts: Sequence[Part], write_file: WriteFile) -> tuple[Part, ...]:
        """Write the rows of a generation as new parts after `parts`, with `write_file`; return all current parts.

        Raises:
            TrainingError: A weight is not finite.
            GivenUpError: Rows change faster than the disk can write them.
        """
        ...


class ChangedRows(Protocol):
    """Tracker of the rows that the next checkpoint must store."""

    @property
    def bytes(self) -> int:
        """Bytes of this process's embedding rows and of their optimizer state."""
        ...

    @property
    def history(self) -> Sequence[Sequence[float]]:
        """Shares of rows stored by each checkpoint since the last full one, for each range of rows."""
        ...

    def note(self, values: Tensor, offsets: Tensor) -> Tensor:
        """Record the rows of a batch as changed, right before its step; return their numbers across all tables."""
        ...

    def before_step(self, rows: Tensor) -> None:
        """Copy embedding rows that the next step changes and that the writer has not written yet."""

    def next_rows(self, copied_bytes: float, *, is_best: bool = False, may_give_up: bool = False) -> CheckpointRows:
        """Select the rows of the next checkpoint; rows changed from now on belong to the checkpoint after it.

        Args:
            copied_bytes: Memory limit in bytes for copies of rows that steps change before the rows are written.
            is_best: Whether the rows are the best weights so far, which are stored in at least 8 bits.
            may_give_up: Whether to abandon the checkpoint (`GivenUpError`) at that limit; otherwise steps wait.
        """
        ...

    def close(self) -> None:
        """Discard the rows that the checkpoint writer has not written yet."""

    def undo(self) -> None:
        """Mark the rows of the last `next_rows` as changed again, because they were not written."""

    def put_back(self, directory: Path, parts: Sequence[Part], history: Sequence[Sequence[float]]) -> None:
        """Load the parts of a generation into the tables, and continue to track changed rows from there."""

    def put_best(self, directory: Path, parts: Sequence[Part]) -> None:
        """Load the best weights into the tables from files; the rows do not count as changed."""
