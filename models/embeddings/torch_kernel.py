"""Pooled lookup of all tables with torch alone, for machines without a compiled kernel."""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from shunter.models.embeddings.kernel_choice import choose_kernel
from shunter.models.embeddings.request import TableRequest
from shunter.models.embeddings.role import EPSILON, EmbeddingTables


class TorchEmbeddings(EmbeddingTables):
    """Tables that need only torch, for machines without a compiled kernel; steps never synchronise with the device.

    `memory` is existing memory for the weight and the optimiser state; None allocates memory.
    """

    def __init__(
        self,
        rows: Sequence[int],
        dim: int,
        learning_rate: float,
        device: torch.device,
        table_of: Sequence[int] | None = None,
        *,
        memory: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__(rows, dim, learning_rate, table_of)
        total = sum(rows)
        weight, adagrad_sum = memory or (torch.zeros(total, dim, device=device), torch.zeros(total, device=device))
        self.register_buffer("weight", weight)
        self.register_buffer("adagrad_sum", adagrad_sum, persistent=False)
        starts = torch.tensor((0, *rows[:-1]), device=device).cumsum(0)
        starts = starts[torch.tensor(self.table_of, device=device)]
        self.register_buffer("bag_starts", starts, persistent=False)
        # The update is in the backward pass, which autograd runs only if a tensor needs a gradient.
        self.register_buffer("anchor", torch.zeros(0, device=device, requires_grad=True), persistent=False)

    bag_starts: Tensor
    anchor: Tensor

    @classmethod
    def suits(cls, wanted: TableRequest) -> bool:
        """Return True if the request selects torch's own operators for lookups."""
        return choose_kernel(wanted.kernel, wanted.device) == "torch"

    @classmethod
    def of(cls, wanted: TableRequest) -> Self:
        """Build embedding tables with uninitialised weights."""
        return cls(wanted.rows, wanted.dim, wanted.learning_rate, wanted.device, wanted.table_of)

    def lookup(self, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Look up and sum the rows of each bag."""
        pooled: Tensor = _PooledLookup.apply(self.anchor, self, values, offsets, weights)  # pyright: ignore[reportAssignmentType]
        by_bag = pooled.view(len(self.table_of), -1, self.dim)
        return by_bag.transpose(0, 1).flatten(1)

    @torch.no_grad()
    def update(self, rows: Tensor, gradients: Tensor) -> None:
        """Sum the gradients of each distinct row, and update the row once.

        All shapes are independent of the ids, so a GPU never waits for the host. The distinct rows are in the first
        slots; the other slots have a zero gradient for row 0, which changes nothing.

        Args:
            rows: Row in `weight` of each looked-up id, with repetitions, `[ids]`.
            gradients: Gradient of each looked-up id, `[ids, dim]`.
        """
        ordered, order = rows.sort(stable=True)
        is_first = torch.ones_like(ordered, dtype=torch.bool)
        is_first[1:] = ordered[1:] != ordered[:-1]
        slot = is_first.cumsum(0) - 1
        distinct = torch.zeros_like(ordered).scatter_(0, slot, ordered)
        summed = torch.zeros_like(gradients).index_add_(0, slot, gradients[order])
        self.adagrad_sum.index_add_(0, distinct, summed.square().mean(1))
        scale = self.learning_rate / (self.adagrad_sum[distinct].sqrt() + EPSILON)
        self.weight.index_add_(0, distinct, summed * scale.unsqueeze(1), alpha=-1)


class _PooledLookup(torch.autograd.Function):
    """Autograd function: bag sums in the forward pass, update of the tables in the backward pass."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tables: TorchEmbeddings, *batch: Any) -> Tensor:
        values, offsets, weights = batch  # the arguments of `EmbeddingTables.forward`
        bags = offsets.numel() - 1
        bag_of_value = torch.repeat_interleave(offsets.diff(), output_size=values.numel())
        bag_of_sample = torch.arange(bags, device=values.device) // max(bags // len(tables.table_of), 1)
        rows = values.long() + tables.bag_starts[bag_of_sample][bag_of_value]
        ctx.tables = tables
        ctx.save_for_backward(rows, bag_of_value, weights)
        if not values.numel():
            return tables.weight.new_zeros(bags, tables.dim)
        return nn.functional.embedding_bag(
            rows, tables.weight, offsets.long(), mode="sum", include_last_offset=True, per_sample_weights=weights
        )

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, ...]:
        rows, bag_of_value, weights = ctx.saved_tensors
        if rows.numel():
            of_ids = gradients[0][bag_of_value]
            ctx.tables.update(rows, of_ids if weights is None else of_ids * weights.unsqueeze(1))
        return None, None, None, None, None
