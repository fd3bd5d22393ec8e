"""Models for scoring whose embedding tables stay in the file of their weights: `shunter serve --memory`.

Rows are read from the open file whose checksum was verified, even if the file's name is replaced later. A safetensors
file is eight bytes with the length of its header, the header in JSON, and the numbers of each tensor from an offset on.
"""

import io
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from shunter.engine.checkpoint.checked_files import check_sum, opened, read_json
from shunter.engine.checkpoint.scoring import read_architectures
from shunter.engine.checkpoint.storage import (
    MEMBERS,
    WEIGHT_PACKINGS,
    build_described,
    check_size,
    is_packed,
    load_model,
    load_weights,
    ready_to_score,
)
from shunter.engine.checkpoint.tensor_file import TensorFile
from shunter.errors import CheckpointError, RequestError
from shunter.extensions.tiers.stored.memory_division import divide
from shunter.extensions.tiers.stored.row_file import FLOAT_BYTES, RowFile
from shunter.extensions.tiers.stored.tables import StoredEmbeddings
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, bag_tables, build_scoring_model
from shunter.models.spec import Features, ModelSpec

TABLES = "embeddings.weight"


def load_stored_model(
    directory: Path, memory_bytes: int, is_ranked: Sequence[bool] | None = None, **division: Any
) -> Model | Ensemble:
    """Load a model of `shunter.engine.checkpoint.storage.save_model` with limited memory for embedding tables.

    Tables within the limit are loaded whole. Packed tables stay in memory; they are unpacked as far as memory allows.
    Scores are bitwise equal to those of a model in memory.

    Args:
        directory: Folder of the model.
        memory_bytes: Memory limit of the tables of all members together.
        is_ranked: Whether the ids of each table are ranks by frequency; see
            `shunter.extensions.tiers.stored.memory_division.divide`.
        division: Further arguments of `divide`, such as `policy`.

    Raises:
        CheckpointError: A file is missing or damaged, or the files do not match.
        RequestError: The memory is too small, or the tables of this model cannot stay in a file or packed.
        HardwareError: The file cannot be read.
    """
    path, weights_path = directory / "model.json", directory / "model.safetensors"
    features, specs = read_architectures(path)
    sizes = [EmbeddingTables.count_bytes(spec.tables(features)).weights for spec in specs]
    if sum(sizes) <= memory_bytes:
        return load_model(directory)
    if any(spec.table_precision != "fp32" for spec in specs):
        raise RequestError(
            f"The fp16 embedding tables of this model need {sum(sizes):,} bytes of memory, more than "
            f"--memory of {memory_bytes:,}: raise --memory, or leave it out."
        )
    if any(spec.has_mixed_tables for spec in specs):
        raise RequestError(
            "Embedding tables of several widths or with shared rows cannot be read from a file: leave out "
            "--memory, or serve a model whose tables have one width."
        )
    with opened(weights_path) as file:
        check_sum(file, weights_path, str(read_json(path).get("sha256")))  # before any row is read
        stored = TensorFile(file, weights_path)
        head = stored.head
        if is_packed(head):
            load_packed = WEIGHT_PACKINGS.load_part("few_bits", "load_within")
            return ready_to_score(load_packed(stored, path, memory_bytes), path)
        is_single = TABLES in head
        tables: list[StoredEmbeddings] = []
        for member, (spec, size) in enumerate(zip(specs, sizes, strict=True)):
            name = TABLES if is_single else f"{MEMBERS}{member}.{TABLES}"
            place = _offset(head, name, spec, features, weights_path)
            options = {"memory_bytes": memory_bytes * size // sum(sizes), "is_ranked": is_ranked, **division}
            tables.append(_open_tables(file, place, spec, features, options))
        waiting = iter(tables)
        model, _ = build_described(
            path,
            partial(check_size, file, weights_path),
            lambda spec, features: build_scoring_model(spec, features, next(waiting)),
        )
        layers = {name: stored.read(name) for name in head if not name.endswith(TABLES)}
        load_weights(model, layers, weights_path)
    return ready_to_score(model, path)


def stored_tables(model: torch.nn.Module) -> list[StoredEmbeddings]:
    """Return the tables of a model, or of the members of an ensemble, that are in a file."""
    return [module for module in model.modules() if isinstance(module, StoredEmbeddings)]


def _offset(head: Mapping[str, Any], name: str, spec: ModelSpec, features: Features, path: Path) -> int:
    """Return the byte position, in the weights file, of one member's embedding tables, after checks of its type."""
    tensor, rows = head.get(name, {}), sum(shape.rows for shape in spec.tables(features))
    if tensor.get("dtype") != "F32" or tensor.get("shape") != [rows, spec.embedding_dim]:
        raise CheckpointError(f"The weights in {path} belong to another model (its tables are not {name}).")
    if tensor["start"] % FLOAT_BYTES:
        raise CheckpointError(f"The tables in {path} are not aligned to {FLOAT_BYTES} bytes: save the model again.")
    return tensor["start"]


def _open_tables(
    file: io.BufferedReader, start: int, spec: ModelSpec, features: Features, options: Mapping[str, Any]
) -> StoredEmbeddings:
    rows, dim, bags = [shape.rows for shape in spec.tables(features)], spec.embedding_dim, bag_tables(spec, features)
    has_lists = len(bags) == len(features.categorical) and any(field.multi_valued for field in features.categorical)
    memory = divide(rows=rows, dim=dim, bags=len(bags), **{"has_lists": has_lists, **options})
    stored = RowFile(file.fileno(), start, sum(rows), dim, memory.buffer_bytes)
    return StoredEmbeddings(rows, dim, bags, stored, memory)
