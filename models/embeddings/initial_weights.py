"""Initial weights of embedding tables, the same for every kind of table.

Rows of a small table are drawn one after the other. Each row of a large table can be drawn independently and in any
order: its numbers are hashes of their positions (splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom
number generators", OOPSLA 2014). So a table in a file needs no rows before their first lookup.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

ROWS_DRAWN_AT_ONCE = 1 << 18
# Tables with at least this many rows are drawn by hashes; smaller tables are drawn within milliseconds.
LATER_FROM_ROWS = 1 << 16
# Name of the hashing rule in checkpoints, which leave out rows that still have their initial weights.
RULE = "splitmix64"
_HASHED_AT_ONCE = 1 << 13  # 64-bit words that fit a processor's cache
_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, np.uint64(0xBF58476D1CE4E5B9)), (27, np.uint64(0x94D049BB133111EB)))
_DIGITS = 24  # bits of a float32


@dataclass(frozen=True, kw_only=True)
class IndependentRows:
    """Embedding table whose rows can be initialised independently of each other.

    Attributes:
        table: Index of the table.
        rows: Rows of the table.
        width: Width of a row.
        limit: Bound of the uniform distribution: numbers are between `-limit` and `limit`.
        key: Hash key of the table and the seed.
    """

    table: int
    rows: int
    width: int
    limit: float
    key: int

    def draw(self, rows: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Draw the initial weights of the given rows.

        Args:
            rows: Row numbers within the table, int64.
            out: Memory for the result, float32 `[rows, width]`; None allocates memory.
        """
        out = np.empty((len(rows), self.width), np.float32) if out is None else out
        words = -(-self.width // 2)  # two numbers per 64-bit word
        for first, hashed in hashed_words(rows, words, self.key):
            digits = (hashed.view(np.uint32) >> np.uint32(32 - _DIGITS)).view(np.int32)[:, : self.width]
            numbers = out[first : first + len(hashed)]
            np.multiply(digits, np.float32(2 * self.limit / (1 << _DIGITS)), out=numbers, casting="unsafe")
            numbers -= np.float32(self.limit)
        return out


def hashed_words(rows: np.ndarray, words: int, key: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield random words for rows, which are hashes of their positions.

    Args:
        rows: Row numbers, not negative.
        words: Number of 64-bit words of each row.
        key: Hash key.

    Yields:
        Index of the first row of a part, and the 64-bit words of the part: uint64 `[rows of the part, words]`.
    """
    at_once = max(_HASHED_AT_ONCE // words, 1)
    for first in range(0, len(rows), at_once):
        part = rows[first : first + at_once].astype(np.uint64)
        hashed = (part[:, np.newaxis] * np.uint64(words) + np.arange(1, words + 1, dtype=np.uint64)) * _STEP
        hashed += np.uint64(key)
        for shift, factor in _MIX:
            hashed ^= hashed >> np.uint64(shift)
            hashed *= factor
        hashed ^= hashed >> np.uint64(31)
        yield first, hashed


def draw_tables(
    rows: Sequence[int],
    dim: int | Sequence[int],
    generator: torch.Generator,
    bound: float | None = None,
    *,
    later: Callable[[IndependentRows], None] | None = None,
) -> Iterator[tuple[int, int, Tensor]]:
    """Draw the initial weights of each table uniformly within its bound, the same for all kinds of tables.

    Args:
        rows: Rows of each table.
        dim: Width of every row, or of the rows of each table.
        generator: Source of the random numbers.
        bound: Bound of all tables; None is 1 / sqrt(rows) for each, as in facebookresearch/dlrm.
        later: Callback that receives each large table, whose rows are drawn later; None draws them now.

    Yields:
        Number of the table, first row and weights, part by part, since a table may be larger than memory. The weights
        are valid until the next part, which reuses their memory.
    """
    widths = [dim] * len(rows) if isinstance(dim, int) else dim
    room = torch.empty(min(ROWS_DRAWN_AT_ONCE, max(rows)) * max(widths))
    for table, (table_rows, width) in enumerate(zip(rows, widths, strict=True)):
        limit = table_rows**-0.5 if bound is None else bound
        independent = None
        if table_rows >= LATER_FROM_ROWS:
            key = int(torch.randint(np.iinfo(np.int64).max, (), generator=generator))
            independent = IndependentRows(table=table, rows=table_rows, width=width, limit=limit, key=key)
            if later is not None:
                later(independent)
                continue
        for first_row in range(0, table_rows, ROWS_DRAWN_AT_ONCE):
            part = room[: min(ROWS_DRAWN_AT_ONCE, table_rows - first_row) * width].view(-1, width)
            if independent is None:
                part.uniform_(-limit, limit, generator=generator)
            else:
                independent.draw(np.arange(first_row, first_row + len(part)), out=part.numpy())
            yield table, first_row, part
