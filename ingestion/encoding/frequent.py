"""Filter of rows with rare values: minimum frequencies and k-core filtering.

The filter stores the values whose rows are kept, so it can be applied to each row independently, in any process.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shunter.errors import DataError
from shunter.ingestion.batch import MISSING_KEY, RawBatch
from shunter.ingestion.schema import Schema

Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class RowFilter:
    """Filter that keeps the rows with frequent values, and drops rows without a value in a counted column.

    Attributes:
        kept: Keys of the values whose rows are kept, sorted, by column.
    """

    kept: Mapping[str, Keys]

    def apply(self, batch: RawBatch, schema: Schema) -> RawBatch:
        """Return the batch with only the rows to keep; no row is kept if the schema lacks a counted column."""
        keys = dict(zip((field.field for field in schema.categorical), batch.columns.keys, strict=True))
        rows = np.ones(len(batch.labels), bool)
        for name, kept in self.kept.items():
            rows &= np.isin(keys[name], kept) if name in keys else False
        return batch if rows.all() else replace(batch.select(rows), left_out=batch.left_out + int((~rows).sum()))


def fit_filter(schema: Schema, batches: Iterable[Keys], name: str) -> RowFilter:
    """Return the filter that drops rows of rare values, fitted to a log.

    Args:
        schema: Schema with `min_rows` or `k_core`.
        batches: Keys of `schema.counted_columns`, uint64 [columns, rows] each.
        name: Name of the log, for the error message.

    Raises:
        DataError: No row is left.
    """
    columns = schema.counted_columns
    keys = np.concatenate([np.empty((len(columns), 0), np.uint64), *batches], axis=1)
    alive = (keys != MISSING_KEY).all(axis=0)
    found = [np.unique(of_column, return_inverse=True) for of_column in keys]

    def frequent(floors: Mapping[str, int]) -> NDArray[np.bool_]:
        of_columns = zip(columns, found, strict=True)
        counts = (
            (name, np.bincount(codes[alive], minlength=len(values))[codes]) for name, (values, codes) in of_columns
        )
        return np.logical_and.reduce([count >= floors.get(name, 0) for name, count in counts])

    alive &= frequent(schema.min_rows)
    while schema.k_core and not (left := frequent(schema.k_core))[alive].all():
        alive &= left
    if not alive.any():
        raise DataError(f"min_rows and k_core of the schema remove all rows of {name}: lower these numbers.")
    return RowFilter({column: np.unique(of_column[alive]) for column, of_column in zip(columns, keys, strict=True)})
