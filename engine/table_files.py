"""Embedding tables in files: what an extension adds to training, scoring and planning."""

from pathlib import Path

from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset
from shunter.models.embeddings.request import EmbeddingCache
from shunter.models.spec import ModelSpec
from shunter.registry import Entry, Registry

# Functions by the name of what they return. `with_moved_rows`, `with_expected_misses` and `expected_miss_rate` are for
# planning.
TABLES_IN_FILES = Registry(
    "operation on embedding tables in files",
    {
        "embedding_cache": Entry(target="shunter.extensions.tiers.embedding_cache:embedding_cache"),
        "cached_rows": Entry(target="shunter.extensions.tiers.embedding_cache:cached_rows"),
        "load_stored_model": Entry(target="shunter.extensions.tiers.stored_models:load_stored_model"),
        "stored_tables": Entry(target="shunter.extensions.tiers.stored_models:stored_tables"),
        "memory_for_tables": Entry(target="shunter.extensions.tiers.planned_tables:memory_for_tables"),
        "embedding_memory_notes": Entry(target="shunter.extensions.tiers.planned_tables:embedding_memory_notes"),
        "with_moved_rows": Entry(target="shunter.extensions.tiers.planned_tables:with_moved_rows"),
        "with_expected_misses": Entry(target="shunter.extensions.tiers.planned_tables:with_expected_misses"),
        "expected_miss_rate": Entry(target="shunter.extensions.tiers.planned_tables:expected_miss_rate"),
    },
    group="shunter.tables_in_files",
)


def are_supported() -> bool:
    """Return True if an extension for tables in files is installed."""
    return "embedding_cache" in TABLES_IN_FILES.names


def embedding_cache(
    execution: Execution, spec: ModelSpec, dataset: Dataset, directory: Path | None = None
) -> EmbeddingCache | None:
    """Return the cache of embedding rows for the table memory of `execution`; None if all tables are in memory.

    Args:
        execution: Execution settings: memory limit of the tables, and number of prefetched batches.
        spec: Architecture, which gives the width of the rows.
        dataset: Training data, which give the number of rows of each table and which rows stay in memory.
        directory: Folder of the file; None is the system's folder for temporary files.

    Raises:
        MissingExtensionError: The memory of the tables is limited, and no extension keeps tables in files.
        RequestError: Neither the tables nor a cache of their rows fits.
        DataError: An array of the data set is missing.
    """
    if execution.embedding_memory_bytes is None:
        return None
    return TABLES_IN_FILES.load("embedding_cache")(execution, spec, dataset, directory)
