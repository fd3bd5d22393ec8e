"""Pooled lookup of all tables of a model in one operator, with the optimiser fused into the backward pass.

There are three kernels with equal results: this project's own for processors, FBGEMM's table-batched bag for GPUs, and
plain torch if these are missing. Each stores all tables in one `[rows of all tables, dim]` array, with one float of
optimiser state per row.
"""

from collections.abc import Sequence

import torch

from shunter.models.embeddings.fbgemm_kernel import FbgemmEmbeddings
from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.native_kernel import NativeEmbeddings
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
    """Build embedding tables of one width with uninitialised weights.

    Args:
        rows: Rows of each table.
        dim: Width of every row.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of the tables; they cannot be moved.
        kernel: Library that does the lookups (`shunter.models.embeddings.kernel_choice`).
        table_of: See `EmbeddingTables`.
    """
    kernels: dict[str, type[NativeEmbeddings | FbgemmEmbeddings | TorchEmbeddings]] = {
        "native": NativeEmbeddings,
        "fbgemm": FbgemmEmbeddings,
        "torch": TorchEmbeddings,
    }
    return kernels[choose_kernel(kernel, device)](rows, dim, learning_rate, device, table_of)
