"""Pooled lookup of all tables of a model in one operator, with the optimiser fused into its backward.

Two kernels with equal results: FBGEMM's table-batched bag where `fbgemm_gpu` can be imported, plain torch elsewhere.
Both keep all tables in one `[rows of all tables, dim]` array, and one float of optimiser state a row.
"""

from collections.abc import Sequence

import torch

from shunter.models.embeddings.fbgemm_kernel import FbgemmEmbeddings, choose_kernel
from shunter.models.embeddings.request import Kernel
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.torch_kernel import TorchEmbeddings


def build_embeddings(
    rows: Sequence[int],
    dim: int,
    *,
    learning_rate: float,
    device: torch.device,
    kernel: Kernel = "auto",
    table_of: Sequence[int] | None = None,
) -> EmbeddingTables:
    """Build uninitialised tables of one width.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device where they lie, for good.
        kernel: Library that does the lookups; `auto` picks FBGEMM where it is installed.
        table_of: See `EmbeddingTables`.
    """
    kernels: dict[str, type[FbgemmEmbeddings] | type[TorchEmbeddings]] = {
        "fbgemm": FbgemmEmbeddings,
        "torch": TorchEmbeddings,
    }
    return kernels[choose_kernel(kernel, device)](rows, dim, learning_rate, device, table_of)
