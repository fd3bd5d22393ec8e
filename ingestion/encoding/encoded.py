"""Raw rows as a model takes them: numbers, ids and bags of ids."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class EncodedBag(NamedTuple):
    """A multi-valued column of some rows.

    Attributes:
        values: int32 [ids].
        offsets: int64 [rows + 1].
        weights: float32 [ids]; None where the column has none.
        are_numbers: Whether numbers were given where training read texts as they are written.
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None
    are_numbers: bool = False

    def part(self, start: int, end: int) -> "EncodedBag":
        """The rows from one to another, in memory of their own."""
        ids = slice(self.offsets[start], self.offsets[end])
        weights = None if self.weights is None else self.weights[ids].copy()
        offsets = self.offsets[start : end + 1] - self.offsets[start]
        return EncodedBag(self.values[ids].copy(), offsets, weights, self.are_numbers)

    def select(self, rows: NDArray[np.bool_]) -> "EncodedBag":
        """The rows where `rows` is true."""
        lengths = np.diff(self.offsets)
        chosen = np.repeat(rows, lengths)
        weights = None if self.weights is None else self.weights[chosen]
        return EncodedBag(self.values[chosen], np.concatenate([[0], np.cumsum(lengths[rows])]), weights)


@dataclass(frozen=True)
class EncodedRows:
    """Rows as a model takes them.

    Attributes:
        dense: float32 [rows, numeric columns].
        categorical: int32 [rows, single-valued columns].
        bags: One for each multi-valued column.
        flags: uint8 [numeric and single-valued columns, rows], see `ValueFlag`; None for rows that are learned.
    """

    dense: NDArray[np.float32]
    categorical: NDArray[np.int32]
    bags: list[EncodedBag]
    flags: NDArray[np.uint8] | None = None

    def part(self, start: int, end: int) -> "EncodedRows":
        """The rows from one to another, in memory of their own."""
        bags = [bag.part(start, end) for bag in self.bags]
        flags = None if self.flags is None else self.flags[:, start:end]
        return EncodedRows(self.dense[start:end].copy(), self.categorical[start:end].copy(), bags, flags)

    def __len__(self) -> int:
        return len(self.dense)

    def select(self, rows: NDArray[np.bool_]) -> "EncodedRows":
        """The rows where `rows` is true, without their flags."""
        return EncodedRows(self.dense[rows], self.categorical[rows], [bag.select(rows) for bag in self.bags])
