"""Lookup counts of each row of the embedding tables in training."""

import numpy as np

from shunter.engine.data.arrays import read_array
from shunter.engine.data.dataset import Dataset
from shunter.models.spec import ModelSpec

IDS_AT_ONCE = 1 << 22


def row_uses(dataset: Dataset, spec: ModelSpec) -> list[np.ndarray]:
    """Return the lookups of each row in one pass over the training part, int64 `[rows]` for each table.

    Args:
        dataset: Data set.
        spec: Architecture, which defines where ids share rows.

    Raises:
        DataError: An array is missing.
    """
    features = dataset.features
    counts = [np.zeros(shape.rows, dtype=np.int64) for shape in spec.tables(features)]
    single = [field.name for field in features.categorical if not field.multi_valued]
    for position, (field, table) in enumerate(zip(features.categorical, features.table_of, strict=True)):
        name = f"train.bag{position}.values.npy" if field.multi_valued else "train.categorical.npy"
        ids = read_array(dataset.directory / name)
        column = ids if field.multi_valued else ids[:, single.index(field.name)]
        rows = len(counts[table])
        for start in range(0, len(column), IDS_AT_ONCE):
            counts[table] += np.bincount(column[start : start + IDS_AT_ONCE] % rows, minlength=rows)
    return counts
