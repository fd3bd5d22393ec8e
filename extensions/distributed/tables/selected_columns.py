"""Reordering of matrix columns that is fast in both directions."""

from dataclasses import dataclass
from math import gcd
from typing import Any, Self

import torch
from torch import Tensor


class SelectedColumns(torch.autograd.Function):
    """Reorders blocks of columns by index in both directions.

    With slices instead, the backward pass of each block would fill and add a gradient as wide as all blocks.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, order: Tensor, back: Tensor, width: int) -> Tensor:
        """Return the blocks of `width` columns of `vectors` `[rows, columns]` in order; `back` inverts `order`."""
        ctx.save_for_backward(back)
        ctx.width = width
        return _selected(vectors, order, width)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the columns of the gradient in their former order."""
        (back,) = ctx.saved_tensors
        return _selected(gradients[0], back, ctx.width), None, None, None


@dataclass(frozen=True)
class ColumnOrder:
    """Order of columns, as blocks of adjacent columns.

    Attributes:
        order: Former position of each block, `[blocks]`.
        back: Inverse of `order`.
        width: Columns of each block: the largest width that divides all pieces, so that long runs of memory are copied.
    """

    order: Tensor
    back: Tensor
    width: int

    @classmethod
    def of(cls, pieces: list[tuple[int, int]], device: torch.device) -> Self | None:
        """Create a column order from pieces (former first column, columns); None if the order stays the same."""
        places, reached = [], 0
        for start, columns in pieces:
            places.append(start == reached)
            reached += columns
        if all(places):
            return None
        width = gcd(*(number for piece in pieces for number in piece))
        blocks = [start // width + one for start, columns in pieces for one in range(columns // width)]
        order = torch.tensor(blocks, device=device)
        return cls(order, order.argsort(), width)

    def applied(self, vectors: Tensor) -> Tensor:
        """Return the columns of `[rows, columns]` in the new order."""
        return SelectedColumns.apply(vectors, self.order, self.back, self.width)  # pyright: ignore[reportReturnType]


def _selected(vectors: Tensor, order: Tensor, width: int) -> Tensor:
    return vectors.reshape(len(vectors), -1, width).index_select(1, order).flatten(1)
