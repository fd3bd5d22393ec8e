"""Ways to give the values of a column fewer rows than there are values, each written as columns and a schema.

All are what a user can ask of the command today: a column of `categorical` with `hash_size`, `max_ids` or
`learned_rows`, or a bag whose two or three values are looked up and summed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

FLOAT_BYTES = 4
KEY_BYTES = 8  # of a value in an exact vocabulary
MAP_SHARE = 1 / 3  # of the bytes of a learned table: what its map may take; else rare values are left to the hash
SEPARATOR = "|"


@dataclass(frozen=True, eq=False)
class Column:
    """A column that is to take fewer bytes.

    Attributes:
        name: Name in the log.
        codes: A number for each value that training holds often enough, in the order of the values.
        row_bytes: Bytes of a row of its table.
        bytes: What its table and the map to it may take.
    """

    name: str
    codes: pd.Series
    row_bytes: int
    bytes: int

    @property
    def rows(self) -> int:
        """Rows that the bytes suffice for where no map is stored, without that of the missing value."""
        return max(2, self.bytes // self.row_bytes - 1)


@dataclass(frozen=True)
class Written:
    """A column as a method wants it.

    Attributes:
        said: What the schema says of it.
        values: What stands in the column, from the values of the log; None leaves them as they are.
    """

    said: dict[str, Any]
    values: Callable[[pd.Series], pd.Series] | None = None


def exact(column: Column) -> Written:
    """A row for each value."""
    return Written({"column": column.name})


def hashing(column: Column) -> Written:
    """The hashing trick (Weinberger et al., ICML 2009)."""
    return Written({"column": column.name, "hash_size": column.rows})


def double_hashing(column: Column) -> Written:
    """The sum of the rows of two hash functions (Svenstrup et al., "Hash Embeddings", NIPS 2017, without weights)."""

    def twice(values: pd.Series) -> pd.Series:
        text = values.astype(str)
        return ("first " + text + SEPARATOR + "second " + text).where(values.notna(), "")

    return Written(_bag(column, hash_size=column.rows), twice)


def quotient_remainder(column: Column) -> Written:
    """The sum of the rows of a quotient and of a remainder (Shi et al., KDD 2020, operation `add`).

    With as few collisions in either part as the bytes allow; in three parts, as their complementary partitions have it,
    where two take more. Values have the numbers of their order without a map, which the rival gets for nothing.
    """
    count = len(column.codes) + 1  # with that of rare and unseen values
    base = next((base for base in range(2, count) if base + -(-count // base) <= column.rows), None)
    bases = [base] if base else [int(np.ceil(count ** (1 / 3)))] * 2

    def parts(values: pd.Series) -> pd.Series:
        numbers = values.map(column.codes).fillna(count - 1).astype(np.int64)
        text = pd.Series("", index=values.index)
        for place, divisor in enumerate(bases):
            text += f"part{place} " + (numbers % divisor).astype(str) + SEPARATOR
            numbers //= divisor
        return (text + "rest " + numbers.astype(str)).where(values.notna(), "")

    return Written(_bag(column, min_count=1), parts)


def most_frequent(column: Column) -> Written:
    """A row for each of the most frequent values, with their keys; the others share one."""
    return Written({"column": column.name, "max_ids": max(2, column.bytes // (column.row_bytes + KEY_BYTES) - 1)})


def learned(column: Column) -> Written:
    """Values that behave alike share a row (`shunter.extensions.learned_hashing.learned_ids`)."""
    known, rows = learned_sizes(len(column.codes), column.row_bytes, column.bytes)
    return Written({"column": column.name, "learned_rows": rows, "max_ids": known})


def learned_sizes(values: int, row_bytes: int, most_bytes: int) -> tuple[int, int]:
    """Values that a map knows and rows of the table, of as many bytes.

    Args:
        values: Known values.
        row_bytes: Bytes of a row.
        most_bytes: Of table and map.
    """
    rows = max(2, most_bytes // row_bytes - 1)
    a_value = 1.23 * (rows.bit_length() + 4) / 8
    known = max(2, min(values, int(MAP_SHARE * most_bytes / a_value)))
    return known, max(2, int((most_bytes - a_value * (known + 32)) // row_bytes) - 1)


def _bag(column: Column, **said: Any) -> dict[str, Any]:
    return {"column": column.name, "separator": SEPARATOR, **said}


EXACT, HASHING, FREQUENT, LEARNED = "exact", "hashing", "most_frequent", "learned"
METHODS: dict[str, Callable[[Column], Written]] = {
    HASHING: hashing,
    "double_hashing": double_hashing,
    "quotient_remainder": quotient_remainder,
    FREQUENT: most_frequent,
    LEARNED: learned,
}
