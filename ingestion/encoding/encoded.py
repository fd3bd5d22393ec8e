"""Encoded rows as model input: numbers, ids and bags of ids."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class EncodedBag(NamedTuple):
    """Encoded multi-valued column of a batch of rows; row i holds `values[offsets[i]:offsets[i + 1]]`.

    Attributes:
        values: int32 [ids].
        offsets: int64 [rows + 1].
        weights: float32 [ids]; None for a column without weights.
        are_numbers: Whether the input held numbers in a column with `text: true`.
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]
    weights: NDArray[np.float32] | None = None
    are_numbers: bool = False

    def part(self, start: int, end: int) -> "EncodedBag":
        """Return a copy of the rows from `start` to `end`, exclusive."""
        ids = slice(self.offsets[start], self.offsets[end])
        weights = None if self.weights is None else self.weights[ids].copy()
        offsets = self.offsets[start : end + 1] - self.offsets[start]
        return EncodedBag(self.values[ids].copy(), offsets, weights, self.are_numbers)

    def select(self, rows: NDArray[np.bool_]) -> "EncodedBag":
        """Return the rows where the mask `rows`, bool [rows], is true."""
        lengths = np.diff(self.offsets)
        chosen = np.repeat(rows, lengths)
        weights = None if self.weights is None else self.weights[chosen]
        return EncodedBag(self.values[chosen], np.concatenate([[0], np.cumsum(lengths[rows])]), weights)


@dataclass(frozen=True)
class EncodedRows:
    """Encoded rows as model input.

    Attributes:
        dense: float32 [rows, numeric columns].
        categorical: int32 [rows, single-valued columns].
        bags: One bag for each multi-valued column.
        flags: uint8 [numeric and single-valued columns, rows], see `ValueFlag`; None for training data.
    """

    dense: NDArray[np.float32]
    categorical: NDArray[np.int32]
    bags: list[EncodedBag]
    flags: NDArray[np.uint8] | None = None

    def part(self, start: int, end: int) -> "EncodedRows":
        """Return a copy of the rows from `start` to `end`, exclusive."""
        bags = [bag.part(start, end) for bag in self.bags]
        flags = None if self.flags is None else self.flags[:, start:end]
        return EncodedRows(self.dense[start:end].copy(), self.categorical[start:end].copy(), bags, flags)

    def __len__(self) -> int:
        return len(self.dense)

    def select(self, rows: NDArray[np.bool_]) -> "EncodedRows":
        """Return the rows where the mask `rows`, bool [rows], is true, without flags."""
        return EncodedRows(self.dense[rows], self.categorical[rows], [bag.select(rows) for bag in self.bags])
