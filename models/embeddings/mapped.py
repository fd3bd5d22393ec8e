"""Embedding tables that are read where they lie, in a mapped file: for scoring models larger than memory."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.models.embeddings.native_kernel import NativeKernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.native.library import library
from shunter.models.spec import TableShape


class MappedEmbeddings(EmbeddingTables):
    """Tables without memory of their own, which `load_state_dict(..., assign=True)` gives them; they learn nothing.

    Of a tensor in a mapped file the operating system reads the pages that are looked up, and forgets them again where
    memory is short. The sums are those of the kernels in memory, bit by bit.

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
        """Sum the rows of each bag."""
        pooled = sum_of_rows(self.weight, self.rows_of_batch(values, offsets), offsets, weights)
        return pooled.view(len(self.table_of), -1, self.dim).transpose(0, 1).flatten(1)

    def initialise(self, generator: torch.Generator) -> None:
        """Draw nothing: the file holds what was learned."""


def sum_of_rows(weight: Tensor, rows: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sum the rows of each bag of tables that lie one below the other.

    Args:
        weight: `[rows of all tables, dim]`.
        rows: `[ids]` int64, the row of each id.
        offsets: `[bags + 1]`, where each bag starts in `rows`, and the end.
        weights: `[ids]`, what each row is multiplied by; None is 1.

    Returns:
        `[bags, dim]`.
    """
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.is_contiguous() and library():
        width = weight.shape[1]
        kernel = NativeKernel((len(weight),), (width,), width, 0.0, (0,), weight=weight)
        return kernel.look_up(rows, offsets.contiguous(), None if weights is None else weights.contiguous())
    return nn.functional.embedding_bag(
        rows, weight, offsets.long(), mode="sum", include_last_offset=True, per_sample_weights=weights
    )
