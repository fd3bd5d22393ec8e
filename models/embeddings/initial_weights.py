"""The initial weights of embedding tables, which are the same for every kind of them."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

ROWS_DRAWN_AT_ONCE = 1 << 18


def draw_tables(
    rows: Sequence[int], dim: int | Sequence[int], generator: torch.Generator, bound: float | None = None
) -> Iterator[tuple[int, int, Tensor]]:
    """Draw each table uniformly from plus and minus the bound; equal for all kinds.

    Args:
        rows: Rows of each table.
        dim: Width of every row, or of those of each table.
        generator: Source of the random numbers.
        bound: Bound of all tables; None is 1 / sqrt(rows) for each, as in facebookresearch/dlrm.

    Yields:
        Number of the table, first row and weights of one part after the other: a table may be larger than memory. The
        weights are valid until the next part, which is drawn into the same memory.
    """
    widths = [dim] * len(rows) if isinstance(dim, int) else dim
    room = torch.empty(min(ROWS_DRAWN_AT_ONCE, max(rows)) * max(widths))
    for table, (table_rows, width) in enumerate(zip(rows, widths, strict=True)):
        limit = table_rows**-0.5 if bound is None else bound
        for first_row in range(0, table_rows, ROWS_DRAWN_AT_ONCE):
            part = room[: min(ROWS_DRAWN_AT_ONCE, table_rows - first_row) * width].view(-1, width)
            yield table, first_row, part.uniform_(-limit, limit, generator=generator)
