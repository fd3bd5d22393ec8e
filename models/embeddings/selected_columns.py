"""Columns of a matrix in another order, fast in both directions."""

from typing import Any

import torch
from torch import Tensor


class SelectedColumns(torch.autograd.Function):
    """Columns in another order, read by index in both directions.

    Of a slice for each column, every backward pass would fill and add up a gradient as wide as all of them.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, order: Tensor, back: Tensor) -> Tensor:
        """Columns of `vectors` `[rows, columns]` in the order `order`; `back` undoes it."""
        ctx.save_for_backward(back)
        return vectors.index_select(1, order)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The gradient's columns in their former order."""
        (back,) = ctx.saved_tensors
        return gradients[0].index_select(1, back), None, None
