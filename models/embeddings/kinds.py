"""Kinds of embedding tables, and the choice of the kind for a model.

All tables of a model are looked up by one operator, with the optimiser fused into the backward pass. There are three
kernels with equal results: this project's own for processors, FBGEMM's table-batched bag for GPUs, and plain torch if
these are missing. Each stores all tables in one `[rows of all tables, dim]` array, with one float of optimiser state
per row.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.request import Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.registry import Entry, Registry


class Kind(Protocol):
    """Interface of a class of embedding tables in one process."""

    def suits(self, wanted: TableRequest) -> bool:
        """Return True if a request needs this kind of tables; called in the order of `KINDS`.

        Raises:
            RequestError: The request needs this kind, but it cannot be built.
        """
        ...

    def of(self, wanted: TableRequest) -> EmbeddingTables:
        """Build embedding tables with uninitialised weights.

        Raises:
            RequestError: The tables cannot be built.
            HardwareError: There is not enough memory or disk space.
        """
        ...


# The first kind that suits a request is built. Tables divided over processes need more than a `TableRequest`, so they
# are built in `shunter.extensions.distributed.training`.
KINDS = Registry(
    "kind of embedding tables",
    {
        "half": Entry(target="shunter.models.embeddings.half:HalfEmbeddings"),
        "half_on_gpu": Entry(target="shunter.models.embeddings.half:HalfOnGpu"),
        "in_file": Entry(target="shunter.extensions.tiers.tiered:TieredEmbeddings"),
        "mixed": Entry(target="shunter.models.embeddings.mixed:MixedEmbeddings"),
        "native": Entry(target="shunter.models.embeddings.native_kernel:NativeEmbeddings"),
        "fbgemm": Entry(target="shunter.models.embeddings.fbgemm_kernel:FbgemmEmbeddings"),
        "torch": Entry(target="shunter.models.embeddings.torch_kernel:TorchEmbeddings"),
    },
    group="shunter.embedding_tables",
)


def build_tables(wanted: TableRequest) -> EmbeddingTables:
    """Build uninitialised tables of the kind that a request needs.

    Raises:
        RequestError: The tables cannot be built.
        HardwareError: There is not enough memory or disk space.
    """
    kinds: map[Kind] = map(KINDS.load, KINDS.names)
    return next(kind for kind in kinds if kind.suits(wanted)).of(wanted)


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
    return KINDS.load(choose_kernel(kernel, device))(rows, dim, learning_rate, device, table_of)
