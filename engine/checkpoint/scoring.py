"""Loading of models to score with them, within the free memory."""

from pathlib import Path

import torch

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.checkpoint.storage import describing_a_model, load_model
from shunter.engine.config import Execution
from shunter.engine.memory import available_memory_bytes
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, model_spec
from shunter.models.spec import Features, ModelSpec

LARGEST_SHARE = 0.8  # of the free memory: larger tables are not loaded whole
SHARE = 0.5  # of the free memory, for tables that are not loaded whole


def memory_for_tables(directory: Path, among: int = 1) -> int | None:
    """Return the memory limit in bytes for embedding tables that are too large for the free memory.

    The limit is for `load_stored_model` (`shunter.engine.table_files`), and `among` equally large models share the
    memory. It is None if all tables fit, or if tables of this kind cannot stay in a file.

    Raises:
        CheckpointError: The model is missing, or not of this version.
    """
    path = directory / "model.json"
    features, specs = read_architectures(path)
    free = available_memory_bytes(torch.device("cpu"))
    size = sum(EmbeddingTables.count_bytes(spec.tables(features)).weights for spec in specs)
    return (
        None
        if any(spec.has_mixed_tables or spec.table_precision != "fp32" for spec in specs)
        or among * size <= LARGEST_SHARE * free
        else int(SHARE * free)
    )


def load_to_score(directory: Path, execution: Execution, among: int = 1) -> Model | Ensemble:
    """Load a model of `shunter.engine.checkpoint.storage.save_model`, to score with it on the device of its training.

    On a CPU the embedding tables of `among` equally large models stay in their files if they do not fit into memory
    together. The scores are equal bit for bit.

    Raises:
        CheckpointError: A file is missing or damaged, or the files do not match.
    """
    is_mapped = execution.maps_tables
    if not is_mapped and execution.device == "cpu" and not read_json(directory / "model.json").get("packed", False):
        is_mapped = memory_for_tables(directory, among) is not None
    return load_model(directory, execution.device, is_mapped=is_mapped)


def placement_of_tables(model: torch.nn.Module) -> list[str]:
    """Return a sentence on the location of tables for each model or member whose tables are not fully in memory."""
    tables = (one for one in model.modules() if isinstance(one, EmbeddingTables))
    return [one.placement for one in tables if one.placement]


def read_architectures(path: Path) -> tuple[Features, list[ModelSpec]]:
    """Read the features and the architecture of each member from a description (`model.json`).

    Raises:
        CheckpointError: The file describes no model of this version.
    """
    description = read_json(path)
    with describing_a_model(path):
        return Features.from_dict(description["features"]), [model_spec(**one) for one in description["members"]]
