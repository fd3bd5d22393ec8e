"""Embedding tables that are read from a memory-mapped file, to score models larger than memory."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.models.embeddings.native_kernel import NativeKernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.native.library import library
from shunter.models.spec import TableShape


class MappedEmbeddings(EmbeddingTables):
    """Tables for scoring only, whose memory (a mapped file) is assigned by `load_state_dict(..., assign=True)`.

    The operating system reads the pages of a mapped file that are accessed, and drops them when memory is short. Pooled
    sums are bitwise equal to the sums of the in-memory kernels.

    Args:
        shapes: Ids, rows and width of each table; all of one width, with a row for each id.
        dim: Width of every row.
        table_of: See `EmbeddingTables`.
    """

    is_in_memory = False

    def __init__(self, shapes: Sequence[TableShape], dim: int, table_of: Sequence[int]) -> None:
        rows = [shape.rows for shape in shapes]
        super().__init__(rows, dim, 0.0, table_of)
        self.is_frozen = True
        self.register_buffer("weight", torch.empty(sum(rows), dim, device="meta"))
        self.register_buffer("adagrad_sum", torch.empty(sum(rows), device="meta"), persistent=False)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up and sum the rows of each bag."""
        pooled = sum_of_rows(self.weight, self.rows_of_batch(values, offsets), offsets, weights)
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def initialise(self, generator: torch.Generator) -> None:
        """Do nothing, because the file already contains the trained weights."""


def sum_of_rows(weight: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum the rows of each bag, with all tables in one array.

    Args:
        weight: Rows of all tables, `[rows of all tables, dim]`.
        rows: Row of each id, int64 `[ids]`.
        offsets: `[bags + 1]`, start of each bag in `rows`, and the end.
        weights: Factor of each row, `[ids]`; None is 1.

    Returns:
        Sums, `[bags, dim]`.
    """
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.is_contiguous() and library():
        width = weight.shape[1]
        kernel = NativeKernel((len(weight),), (width,), width, 0.0, (0,), weight=weight)
        factors = None if weights is None else weights.float().contiguous()
        return kernel.look_up(rows.contiguous(), offsets.contiguous(), factors)
    return nn.functional.embedding_bag(
        rows, weight, offsets.long(), mode="sum", include_last_offset=True, per_sample_weights=weights
    )
