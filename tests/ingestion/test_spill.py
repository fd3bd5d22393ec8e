"""Rows on disk between the two passes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from shunter.ingestion.sources.synthetic import CHUNK_ROWS, SyntheticSource
from shunter.ingestion.spill import Spill, SpillWriter, spill_path


def test_columns_are_read_by_several_threads_at_once(tmp_path: Path) -> None:
    source = SyntheticSource(2 * CHUNK_ROWS, seed=1)
    batches = [source.parse(chunk) for chunk in source.chunks()]
    columns = range(26)
    with Spill(tmp_path) as spill, ThreadPoolExecutor(4) as pool:
        with SpillWriter(spill_path(tmp_path)) as writer:
            for batch in batches:
                writer.append(batch, np.zeros(len(batch.labels), np.int8))
        spill.units.append(writer.rows)
        found = list(pool.map(lambda column: np.concatenate(list(spill.training_keys(column))), columns))

    for column in columns:
        assert np.array_equal(found[column], np.concatenate([batch.columns.keys[column] for batch in batches]))
    assert not list(tmp_path.iterdir())
