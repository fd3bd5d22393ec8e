"""The loader knows the next batches, so their embedding rows are fetched from the file before they are needed."""

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
    """The cache that the tables of a model need in the memory that `execution` gives them; None where they fit.

    When the background reader works on a batch, `prefetch_depth` batches at most wait before it and the step may be
    busy with one more: the reader's queue is bounded, and the step is done with a batch when it takes the next.

    Args:
        execution: memory of the tables and depth of the prefetch.
        spec: Width of a row.
        dataset: What is trained on: how many rows each table has, and which of them stay.
        directory: Folder of the file; None is the system's folder for temporary files.

    Raises:
        RequestError: The tables do not fit, and no cache of them either.
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
    """Admit each training batch to the tables of the model, which may have to fetch its rows.

    To be iterated in the background, by `shunter.engine.loop.step.prefetch`.

    Raises:
        RequestError: the rows of one batch are more than the cache holds.
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
    """A pass over admitted batches, to be left before their reader is closed."""
    try:
        yield
    finally:
        model.embeddings.end()
