"""Pooled lookup of all tables, and their row-wise Adagrad, by compiled code of this project for processors.

Without the compiled code torch's operators are used (`shunter.models.embeddings.torch_kernel`).
"""

import ctypes
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.request import TableRequest
from shunter.models.embeddings.role import EPSILON, EmbeddingTables
from shunter.models.native.library import Batch, Tables, check, library


class NativeKernel:
    """Lookup and update in tables of any widths that are concatenated in memory.

    Args:
        rows: Rows of each table.
        widths: Width of each table, a multiple of 4.
        dim: Width of the output vectors; vectors of narrower tables are padded with zeros.
        learning_rate: Step size of the row-wise Adagrad.
        table_of: Table of each bag of a sample, ascending.
        weight: Existing rows for lookups without training; None allocates memory for trainable rows.

    Attributes:
        weight: float32 `[numbers of all rows]`.
        adagrad_sum: float32 `[rows of all tables]`.
    """

    def __init__(
        self,
        rows: Sequence[int],
        widths: Sequence[int],
        dim: int,
        learning_rate: float,
        table_of: Sequence[int],
        *,
        weight: Tensor | None = None,
    ) -> None:
        numbers = [table_rows * width for table_rows, width in zip(rows, widths, strict=True)]
        self.weight = torch.zeros(sum(numbers)) if weight is None else weight
        self.adagrad_sum = torch.zeros(sum(rows) if weight is None else 0)
        loaded = library()
        assert loaded is not None, "`choose_kernel` chooses this kernel only if it can be loaded"
        self._library, self._learning_rate = loaded, learning_rate
        self._l2 = np.zeros(len(rows), np.float32)
        self._bags, self._dim = len(table_of), dim
        bags = [table_of.count(table) for table in range(len(rows))]
        self._shape = [
            np.array(values, np.int64)
            for values in (
                *(rows, widths, list(accumulate(numbers, initial=0))[:-1], list(accumulate(rows, initial=0))[:-1]),
                list(accumulate(bags, initial=0)),
            )
        ]
        self._anchor = torch.zeros(0, requires_grad=True)  # makes autograd call `update` if the result needs a gradient

    def __call__(self, ids: Tensor, offsets: Tensor, id_weights: Tensor | None = None) -> Tensor:
        """Sum the rows of each bag, and update them in the backward pass; see `EmbeddingTables.forward`.

        Returns:
            float32 `[batch, bags of a sample * dim]`.

        Raises:
            IndexError: An id has no row.
            ValueError: The offsets do not fit the ids, or a tensor has the wrong type.
        """
        weights = None if id_weights is None else id_weights.detach().float().contiguous()
        return _Lookup.apply(self._anchor, self, ids.contiguous(), offsets.contiguous(), weights)  # pyright: ignore[reportReturnType]

    def look_up(self, ids: Tensor, offsets: Tensor, id_weights: Tensor | None) -> Tensor:
        """Sum the rows of each bag without recording a gradient; the tensors must be contiguous."""
        batch = self._batch(ids, offsets, id_weights)
        pooled = torch.empty(batch.samples, self._bags * self._dim)
        call = ctypes.byref(batch), ctypes.byref(self._tables()), pooled.data_ptr(), torch.get_num_threads()
        check(self._library.shunter_look_up(*call))
        return pooled

    def update(self, gradient: Tensor, ids: Tensor, offsets: Tensor, id_weights: Tensor | None) -> None:
        """Sum the gradients of each distinct row in the order of the batch, and update the row once.

        Args:
            gradient: Gradient of the pooled rows, float32 `[batch, bags of a sample * dim]`.
            ids: Ids of the batch.
            offsets: Bounds of the bags.
            id_weights: Weights of the ids.
        """
        batch = self._batch(ids, offsets, id_weights)
        if gradient.shape != (batch.samples, self._bags * self._dim) or gradient.dtype != torch.float32:
            raise ValueError(
                f"an embedding gradient of {gradient.dtype} {tuple(gradient.shape)} does not fit the batch"
            )
        if gradient.stride(1) != 1:
            gradient = gradient.contiguous()
        options = gradient.data_ptr(), gradient.stride(0), self._learning_rate, EPSILON, torch.get_num_threads()
        check(self._library.shunter_update(ctypes.byref(batch), ctypes.byref(self._tables()), *options))

    def set_learning_rate(self, rate: float) -> None:
        """Set the step size of later updates."""
        self._learning_rate = rate

    def set_decay(self, l2: float, frozen_tables: Collection[int]) -> None:
        """Set the weight decay: `l2 * row` is added to the gradient of touched rows, except rows of frozen tables."""
        self._l2.fill(l2)
        self._l2[list(frozen_tables)] = 0.0

    def _tables(self) -> Tables:
        addresses = (*(one.ctypes.data for one in self._shape), self._l2.ctypes.data)
        return Tables(self.weight.data_ptr(), self.adagrad_sum.data_ptr(), *addresses, len(self._l2), self._dim)

    def _batch(self, ids: Tensor, offsets: Tensor, id_weights: Tensor | None) -> Batch:
        samples, rest = divmod(len(offsets) - 1, self._bags)
        kinds = {torch.int32: 0, torch.int64: 1}
        is_processor = ids.device.type == offsets.device.type == "cpu"
        if rest or samples < 0 or not is_processor or not {ids.dtype, offsets.dtype} <= {*kinds}:
            raise ValueError(
                f"ids of type {ids.dtype} with {len(offsets)} offsets of type {offsets.dtype} are not a valid batch"
            )
        if id_weights is not None and (id_weights.shape != ids.shape or id_weights.dtype != torch.float32):
            raise ValueError(
                f"the number of weights, {len(id_weights)} of type {id_weights.dtype}, differs from the number "
                f"of ids, {len(ids)}"
            )
        if not all(one is None or one.is_contiguous() for one in (ids, offsets, id_weights)):
            raise ValueError("ids, offsets and weights of ids must be contiguous")
        address = None if id_weights is None else id_weights.data_ptr()
        of_ids = ids.data_ptr(), offsets.data_ptr(), address, len(ids), samples
        return Batch(*of_ids, kinds[ids.dtype], kinds[offsets.dtype])


class NativeEmbeddings(EmbeddingTables):
    """Tables of one width with the compiled kernel."""

    decays_rows = True

    def __init__(
        self, rows: Sequence[int], dim: int, learning_rate: float, device: torch.device, table_of: Sequence[int] | None
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        # Kept out of the module tree; its memory is registered there under the names that every kernel has.
        self._kernel = (NativeKernel(rows, [dim] * len(rows), dim, learning_rate, self.table_of),)
        self.register_buffer("weight", self._kernel[0].weight.view(-1, dim))
        self.register_buffer("adagrad_sum", self._kernel[0].adagrad_sum, persistent=False)

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Return True if the request chooses the compiled kernel for lookups."""
        return choose_kernel(wanted.kernel, wanted.device) == "native"

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build embedding tables with uninitialised weights."""
        return cls(wanted.rows, wanted.dim, wanted.learning_rate, wanted.device, wanted.table_of)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up and sum the rows of each bag."""
        self._kernel[0].set_decay(self.row_l2, self.frozen_tables)
        return self._kernel[0](values, offsets, weights)

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate, also in the kernel."""
        super().set_learning_rate(rate)
        self._kernel[0].set_learning_rate(rate)


class _Lookup(torch.autograd.Function):
    """Autograd function: bag sums in the forward pass, update of the tables in the backward pass."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, kernel: NativeKernel, *batch: Any) -> Tensor:
        ctx.kernel = kernel
        ctx.save_for_backward(*batch)
        return kernel.look_up(*batch)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        ctx.kernel.update(gradients[0], *ctx.saved_tensors)
        return None, None, None, None, None
