"""What rows of tables in a file begin with that nobody has asked for yet."""

from dataclasses import dataclass

import numpy as np

from shunter.models.embeddings.initial_weights import RowsByThemselves


@dataclass(frozen=True)
class StartBlock:
    """Rows of a table that lie one after the other in a file.

    Attributes:
        first: Number of the first, counted through the file.
        rows: How many.
        first_row: Number of the first within the table.
        table: Draws them.
    """

    first: int
    rows: int
    first_row: int
    table: RowsByThemselves


class StartingRows:
    """The rows of a file that can be drawn each by itself.

    Attributes:
        blocks: Where they lie, in the order of the file.
    """

    def __init__(self) -> None:
        self.blocks: list[StartBlock] = []

    def draw(self, rows: np.ndarray, dim: int) -> np.ndarray:
        """Draw some rows, float32 `[rows, dim]`.

        Args:
            rows: Their numbers, counted through the file; all lie in a block.
            dim: Numbers of a row.
        """
        block_of_row = np.searchsorted([block.first for block in self.blocks], rows, side="right") - 1
        drawn = np.empty((len(rows), dim), np.float32)
        for number in np.unique(block_of_row).tolist():
            block, here = self.blocks[number], np.flatnonzero(block_of_row == number)
            drawn[here] = block.table.draw(rows[here] - block.first + block.first_row)
        return drawn
