"""Prefetch of embedding rows from the file of the tables, for the next batches of the loader."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from shunter.engine.config import Execution
from shunter.engine.data.batch import Batch
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.row_use import row_levels
from shunter.engine.memory import cached_rows
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.registry import Model
from shunter.models.spec import ModelSpec


def embedding_cache(
    execution: Execution, spec: ModelSpec, dataset: Dataset, directory: Path | None = None
) -> EmbeddingCache | None:
    """Return the cache of embedding rows for the table memory of `execution`; None if the tables fit into that memory.

    When the background reader works on a batch, at most `prefetch_depth` batches wait before it, and the step may be
    busy with one more. The reader's queue is bounded, and a step is done with a batch when it takes the next.

    Args:
        execution: Memory of the tables in bytes, and depth of the prefetch.
        spec: Width of a row.
        dataset: Training data: number of rows of each table, and rows that stay in memory.
        directory: Folder of the file; None is the system's folder for temporary files.

    Raises:
        RequestError: Neither the tables nor a cache of their rows fits.
        DataError: An array of the data set is missing.
    """
    memory_bytes = execution.embedding_memory_bytes
    rows = None if memory_bytes is None else cached_rows(spec, dataset.features, memory_bytes)
    if rows is None:
        return None
    return EmbeddingCache(
        rows=rows,
        window_batches=execution.window_batches,
        directory=directory,
        row_levels=row_levels(dataset),
    )


def admitted(batches: Iterator[Batch], model: Model) -> Iterator[Batch]:
    """Yield each training batch after its rows are in the cache of the model's tables.

    Iterated in the background, by `shunter.engine.loop.step.prefetch`.

    Raises:
        RequestError: One batch has more rows than the cache holds.
    """
    tables = model.embeddings
    tables.begin()
    try:
        for batch in batches:
            values = tables.admit(batch.values, batch.offsets)
            yield batch if values is batch.values else replace(batch, values=values)
    finally:
        tables.leave()


@contextmanager
def trained(model: Model) -> Iterator[None]:
    """End the use of the tables after a pass over admitted batches; end the block before their reader is closed."""
    try:
        yield
    finally:
        model.embeddings.end()
