"""Columns of a matrix in another order, fast in both directions."""

from dataclasses import dataclass
from math import gcd
from typing import Any, Self

import torch
from torch import Tensor


class SelectedColumns(torch.autograd.Function):
    """Blocks of columns in another order, read by index in both directions.

    Of a slice for each block, every backward pass would fill and add up a gradient as wide as all of them.
    """

    @staticmethod
    def forward(ctx: Any, vectors: Tensor, order: Tensor, back: Tensor, width: int) -> Tensor:
        """Blocks of `width` columns of `vectors` `[rows, columns]` in the order `order`; `back` undoes it."""
        ctx.save_for_backward(back)
        ctx.width = width
        return _selected(vectors, order, width)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient's columns in their former order."""
        (back,) = ctx.saved_tensors
        return _selected(gradients[0], back, ctx.width), None, None, None


@dataclass(frozen=True)
class ColumnOrder:
    """An order of columns, as blocks that stay together.

    Attributes:
        order: The former place of each block, `[blocks]`.
        back: Its inverse.
        width: Columns of each block: the largest width that divides all pieces, so that long runs of memory are copied.
    """

    order: Tensor
    back: Tensor
    width: int

    @classmethod
    def of(cls, pieces: list[tuple[int, int]], device: torch.device) -> Self | None:
        """Of pieces (first column before, columns) in their new order; None where they lie so already."""
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
        """The columns of `[rows, columns]` in the new order."""
        return SelectedColumns.apply(vectors, self.order, self.back, self.width)  # pyright: ignore[reportReturnType]


def _selected(vectors: Tensor, order: Tensor, width: int) -> Tensor:
    return vectors.reshape(len(vectors), -1, width).index_select(1, order).flatten(1)
