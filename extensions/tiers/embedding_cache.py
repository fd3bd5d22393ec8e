"""Size and access frequencies of the cache for embedding tables that are stored in a file."""

from pathlib import Path

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.errors import RequestError
from shunter.extensions.tiers.row_use import row_levels
from shunter.extensions.tiers.slots import BYTES_A_ROW, BYTES_A_SLOT
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.embeddings.role import FLOAT_BYTES, EmbeddingTables
from shunter.models.registry import can_be_in_file
from shunter.models.spec import Features, ModelSpec


def embedding_cache(
    execution: Execution, spec: ModelSpec, dataset: Dataset, directory: Path | None = None
) -> EmbeddingCache | None:
    """Return the cache of embedding rows for the table memory of `execution`; None if the tables fit into that memory.

    The rows of all batches in progress stay cached: the batch being read, the `prefetch_depth` batches that wait for
    training, and the batch being trained on.

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


def cached_rows(spec: ModelSpec, features: Features, memory_bytes: int) -> int | None:
    """Return the number of cached rows if the tables and the bookkeeping of the cache may take `memory_bytes`.

    Args:
        spec: Width of a row.
        features: Rows of each table.
        memory_bytes: Memory limit of the tables.

    Returns:
        None if all tables fit, so that they need no file.

    Raises:
        RequestError: The tables do not fit, and either cannot be kept in a file, or the bookkeeping of the cache leaves
            no room for a row.
    """
    size = EmbeddingTables.count_bytes(spec.tables(features))
    if size.weights + size.optimizer <= memory_bytes:
        return None
    if not can_be_in_file(spec):
        why = "of several widths or shared rows" if spec.has_mixed_tables else f"of {spec.family}, read id by id,"
        why = "in fp16" if spec.table_precision != "fp32" else why
        raise RequestError(
            f"The embedding tables {why} take {size.weights + size.optimizer:,} bytes and cannot be stored "
            "in a file: raise --embedding-memory, or choose a model with fp32 tables of one width."
        )
    rows, row_bytes = sum(features.table_rows), (spec.embedding_dim + 1) * FLOAT_BYTES
    cached = (memory_bytes - rows * BYTES_A_ROW) // (row_bytes + BYTES_A_SLOT)
    if cached < 1:
        raise RequestError(
            f"The index of {rows:,} embedding rows in a file takes {rows * BYTES_A_ROW:,} bytes, which "
            f"leaves no room for rows within --embedding-memory of {memory_bytes:,}: raise it."
        )
    return cached
