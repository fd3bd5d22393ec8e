"""Pooled lookup of all tables in one FBGEMM operator, with the optimiser fused into the backward pass."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.request import TableRequest
from shunter.models.embeddings.role import EPSILON, EmbeddingTables

if TYPE_CHECKING:
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import SplitTableBatchedEmbeddingBagsCodegen


class FbgemmEmbeddings(EmbeddingTables):
    """FBGEMM's split table-batched embedding bag."""

    can_be_recorded = True
    _is_half = False

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        learning_rate: float,
        device: torch.device,
        table_of: Sequence[int] | None = None,
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        kernel, weight, adagrad_sum = fbgemm_kernel(
            rows, [dim] * len(rows), learning_rate, device, self.table_of, is_half=self._is_half
        )
        # The kernel is kept out of the module tree, since it has many internal buffers and its weights are not updated
        # by the dense optimiser.
        self._kernel = (kernel,)
        # Views of the kernel's memory, under the same names as in every other kernel.
        self.register_buffer("weight", weight.view(-1, dim))
        self.register_buffer("adagrad_sum", adagrad_sum, persistent=False)

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Return True if the request chooses FBGEMM for lookups."""
        return choose_kernel(wanted.kernel, wanted.device) == "fbgemm"

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build embedding tables with uninitialised weights."""
        return cls(wanted.rows, wanted.dim, wanted.learning_rate, wanted.device, wanted.table_of)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up and sum the rows of each bag."""
        return self._kernel[0](values, offsets, weights)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also in the kernel, which reads it at each backward pass."""
        super().set_learning_rate(rate)
        self._kernel[0].set_learning_rate(rate)


def fbgemm_kernel(
    rows: Sequence[int],
    widths: Sequence[int],
    learning_rate: float,
    device: torch.device,
    table_of: Sequence[int],
    *,
    is_half: bool = False,
) -> "tuple[SplitTableBatchedEmbeddingBagsCodegen, Tensor, Tensor]":
    """Build an FBGEMM kernel for tables of any widths.

    Args:
        rows: Rows of each table.
        widths: Width of each table, a multiple of 4.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of the tables.
        table_of: Table of each bag.
        is_half: Whether the rows are stored in fp16. A GPU then rounds stochastically, a processor to nearest.

    Returns:
        The kernel, which maps ids, offsets and weights of ids to `[batch, widths of all bags]`, and flat views of its
        memory, table by table: weights, `[numbers of all rows]`, and optimiser states, `[rows of all tables]`.
    """
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    on_cpu = device.type == "cpu"
    location = EmbeddingLocation.HOST if on_cpu else EmbeddingLocation.DEVICE
    compute = ComputeDevice.CPU if on_cpu else ComputeDevice.CUDA
    kernel = SplitTableBatchedEmbeddingBagsCodegen(
        [(table_rows, width, location, compute) for table_rows, width in zip(rows, widths, strict=True)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=learning_rate,
        eps=EPSILON,
        feature_table_map=list(table_of),
        pooling_mode=PoolingMode.SUM,
        # Ids are checked when a batch is made, where an error message can name the field.
        bounds_check_mode=BoundsCheckMode.NONE,
        weights_precision=SparseType.FP16 if is_half else SparseType.FP32,
        output_dtype=SparseType.FP32,
        stochastic_rounding=is_half,
        device=device,
    )
    weights = getattr(kernel, "weights_host" if on_cpu else "weights_dev")
    momentum = getattr(kernel, "momentum1_host" if on_cpu else "momentum1_dev")
    numbers = sum(table_rows * width for table_rows, width in zip(rows, widths, strict=True))
    return kernel, weights.detach()[:numbers], momentum.detach()[: sum(rows)]
