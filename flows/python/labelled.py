"""Reading of a frame's labels, by the same rules as in ingestion."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from shunter.ingestion.encoding.columns import check_columns
from shunter.ingestion.schema import Schema
from shunter.ingestion.sources.tabular import TableChunk, parse_table
from shunter.ingestion.time_format import AS_WRITTEN

NO_FEATURES = {
    **{"numeric": (), "categorical": (), "multi_valued": (), "sequences": (), "user": None, "item": None},
    **{"time": None, "time_format": None, "part": None, "sessions": None},
}


@dataclass(frozen=True)
class Labelled:
    """Rows whose labels could be read.

    Attributes:
        rows: Rows of the frame.
        labels: 0 or 1, float32 `[rows]`, or `[rows, labels]` for several labels; 0 for a missing label.
        weights: Weights of the labels, of the same shape; None if all weights are equal.
    """

    rows: pl.DataFrame
    labels: NDArray[np.float32]
    weights: NDArray[np.float32] | None


def with_labels(rows: pl.DataFrame, schema: Schema) -> Labelled:
    """Return the rows with readable labels and weights.

    Raises:
        DataError: A column is missing.
    """
    only = schema.model_copy(update=NO_FEATURES)
    check_columns("The frame", rows.columns, only.read_columns, "of the schema")
    chunk = TableChunk(Path("the frame"), rows.select(only.read_columns), np.arange(rows.height), [])
    batch = parse_table(chunk, only, AS_WRITTEN)
    kept = np.ones(rows.height, bool)
    kept[[one.line for one in batch.rejected]] = False
    labels, weights = batch.labels, batch.weights
    if labels.ndim > 1:
        is_there = ~np.isnan(labels)
        labels = np.where(is_there, labels, np.float32(0))
        weights = is_there.astype(np.float32) * (1 if weights is None else weights[:, None])
    return Labelled(rows.filter(pl.Series(kept)), labels, weights)
