"""Request for the embedding tables of a model."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from shunter.models.spec import TableShape

Kernel = Literal["auto", "native", "fbgemm", "torch"]


@dataclass(frozen=True, kw_only=True)
class EmbeddingCache:
    """Settings of the cache of tables in a file.

    Attributes:
        rows: Rows of all tables that are in memory at a time.
        window_batches: Batches whose rows must be in memory: the one being admitted and those before it.
        directory: Folder of the file; None is the system's folder for temporary files.
        row_levels: Expected access frequency of each row as a level, uint8 `[rows of all tables]`; None if unknown.
    """

    rows: int
    window_batches: int
    directory: Path | None = None
    row_levels: np.ndarray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """Request for the tables of one model, independent of their kind.

    Attributes:
        shapes: Ids, rows and width of each table.
        dim: Width of the output vectors; no table is wider.
        table_of: Table of each bag of a sample, ascending.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of the tables; they cannot be moved.
        kernel: Library that does the lookups (`shunter.models.embeddings.kernel_choice`).
        is_mixed: Whether tables may differ in width, or have fewer rows than ids.
        cache: Cache in front of tables in a file; None keeps all rows in memory.
        is_half: Whether the rows are stored in fp16.
    """

    shapes: tuple[TableShape, ...]
    dim: int
    table_of: tuple[int, ...]
    learning_rate: float
    device: torch.device
    kernel: Kernel = "auto"
    is_mixed: bool = False
    cache: EmbeddingCache | None = None
    is_half: bool = False

    @property
    def rows(self) -> tuple[int, ...]:
        """Number of rows of each embedding table."""
        return tuple(shape.rows for shape in self.shapes)
