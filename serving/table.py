"""Raw rows of one request as columns, independent of the protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from shunter.serving.errors import RefusedError, TooLargeRequestError

Column = Sequence[Any] | pl.Series
_TYPES: dict[frozenset[type], type[pl.DataType]] = {
    frozenset(): pl.Null,
    frozenset({str}): pl.String,
    frozenset({bool}): pl.Boolean,
    frozenset({int}): pl.Int64,
    frozenset({float}): pl.Float64,
    frozenset({int, float}): pl.Float64,
}
MOST_MISSING = 64  # largest ratio of all values, including missing values, to the given values
FEW_VALUES = 1_000_000  # up to this number of values, any share of the values may be missing
MOST_COLUMNS = 4_096  # largest number of columns; creating a data frame with more columns takes seconds
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Table:
    """Raw rows of a request.

    Attributes:
        rows: Number of rows.
        columns: Values by column name, as JSON values or as a series; None is a missing value.
        top: Number of best items to return for each user instead of scores; None returns scores.
    """

    rows: int
    columns: Mapping[str, Column]
    top: int | None = None

    def series(self, name: str) -> pl.Series:
        """Return a column with the type of its values; values of several types become texts.

        Raises:
            RefusedError: The column has values that a column cannot store.
        """
        values = self.columns[name]
        return values if isinstance(values, pl.Series) else _series(name, values)


def check_size(rows: int, columns: int, max_rows: int) -> None:
    """Raise `TooLargeRequestError` if a request has too many rows or columns."""
    if rows > max_rows:
        raise TooLargeRequestError(
            f"The request has {rows:,} rows, more than the permitted {max_rows:,}: send several requests, "
            "or use `shunter predict` for a file."
        )
    if columns > MOST_COLUMNS:
        raise TooLargeRequestError(
            f"The request has {columns:,} columns, more than the permitted {MOST_COLUMNS:,}: send only the "
            "columns of the model."
        )


def columns_of_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    """Convert rows, each a list in the order of the names, to columns."""
    turned = zip(*rows, strict=True) if rows else ((),) * len(names)
    return {name: list(values) for name, values in zip(names, turned, strict=True)}


def columns_of_records(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Convert records, each a mapping of column names to values, to columns.

    A column that is absent from a record has the value None in this row.

    Raises:
        RefusedError: Nearly all values of the columns would be None, which would need far more memory than the records.
    """
    names = dict.fromkeys(name for record in records for name in record)
    given = sum(map(len, records))
    if len(names) * len(records) > max(MOST_MISSING * given, FEW_VALUES):
        raise RefusedError(
            f"The rows have {len(names):,} different columns in all but {given / len(records):,.0f} each "
            "on average: give every row the columns of the model."
        )
    return {name: [record.get(name) for record in records] for name in names}


def _series(name: str, values: Sequence[Any]) -> pl.Series:
    types = frozenset(map(type, values)) - {type(None)}
    if list in types:
        return _lists(name, values, types)
    if dict in types:
        raise RefusedError(f"The column {name} holds a JSON object: give numbers, texts or null.")
    known = _TYPES.get(types)
    if known is pl.Int64 and not all(value is None or value in _INT64 for value in values):
        known = None
    if known is not None:
        return pl.Series(name, values, known, strict=False)
    return pl.Series(name, [None if _is_missing(value) else str(value) for value in values], pl.String)


def _lists(name: str, values: Sequence[Any], types: frozenset[type]) -> pl.Series:
    if types != {list}:
        raise RefusedError(f"The column {name} mixes lists with other values: give a list, or null, in each row.")
    flat = [value for row in values if row is not None for value in row]
    if list in set(map(type, flat)):
        raise RefusedError(f"The column {name} holds lists of lists: give a list of numbers or texts in each row.")
    inner = _series(name, flat)
    if inner.dtype == pl.String:
        values = [None if row is None else [None if _is_missing(one) else str(one) for one in row] for row in values]
    return pl.Series(name, values, pl.List(inner.dtype), strict=False)


def _is_missing(value: Any) -> bool:
    """Return True if the value is null, or the NaN that Python's JSON writes."""
    return value is None or value != value  # noqa: PLR0124
