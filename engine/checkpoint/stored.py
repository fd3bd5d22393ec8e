"""Models for scoring whose embedding tables stay in the file of their weights: `shunter serve --memory`.

Rows are read from the open file that was compared with its checksum, whatever becomes of its name. A safetensors file
is eight bytes with the length of its head, the head in JSON, and the numbers of each tensor from an offset on.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shunter.engine.checkpoint.packed_tables import PACKED, PackedEmbeddings, PackedTable
from shunter.engine.checkpoint.packing import is_packed, parts_of_tables, unpack
from shunter.engine.checkpoint.storage import (
    MEMBERS,
    build_described,
    check_size,
    check_sum,
    load_model,
    load_weights,
    opened,
    read_json,
    ready_to_score,
)
from shunter.engine.checkpoint.tensor_file import TensorFile
from shunter.engine.config import Execution
from shunter.engine.memory import available_memory_bytes
from shunter.errors import CheckpointError, RequestError
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.embeddings.stored.room import Room, divide
from shunter.models.embeddings.stored.row_file import FLOAT_BYTES, RowFile
from shunter.models.embeddings.stored.tables import StoredEmbeddings
from shunter.models.ensemble import Ensemble
from shunter.models.registry import Model, bag_tables, build_scoring_model, model_spec
from shunter.models.spec import Features, ModelSpec

TABLES = "embeddings.weight"
LARGEST_SHARE = 0.8  # of the free memory that tables may need to be loaded whole
SHARE = 0.5  # of the free memory for those that are not


def load_stored_model(
    directory: Path, memory_bytes: int, is_ranked: Sequence[bool] | None = None, **division: Any
) -> Model | Ensemble:
    """Read what `shunter.engine.checkpoint.storage.save_model` wrote, with at most so much memory for embedding tables.

    Where they are no larger they are loaded whole. Tables in few bits stay in memory, as many of them unpacked as there
    is room for. The scores are the same bit by bit.

    Args:
        directory: Folder of the model.
        memory_bytes: What the tables of all members may take together.
        is_ranked: Whether the ids of a table are ranks by frequency; see
            `shunter.models.embeddings.stored.room.divide`.
        division: Further arguments of it.

    Raises:
        CheckpointError: A file is missing, damaged or does not belong to the other.
        RequestError: The memory is too little, or tables of this model cannot stay in a file or in few bits.
        HardwareError: The file cannot be read.
    """
    path, weights_path = directory / "model.json", directory / "model.safetensors"
    features, specs = _described(path)
    sizes = [EmbeddingTables.count_bytes(spec.tables(features)).weights for spec in specs]
    if sum(sizes) <= memory_bytes:
        return load_model(directory)
    if any(spec.table_precision != "fp32" for spec in specs):
        raise RequestError(
            f"The embedding tables of this model are kept in fp16, which lie in memory and take {sum(sizes):,} bytes "
            f"of the {memory_bytes:,} of --memory: raise it, or leave it out."
        )
    if any(spec.has_mixed_tables for spec in specs):
        raise RequestError(
            "Embedding tables of several widths or shared rows cannot stay in a file: leave out --memory, or serve a "
            "model of tables of one width."
        )
    with opened(weights_path) as file:
        check_sum(file, weights_path, str(read_json(path).get("sha256")))  # before a row of it is read
        stored = TensorFile(file, weights_path)
        head = stored.head
        if is_packed(head):
            return ready_to_score(_load_packed(stored, path, memory_bytes), path)
        is_single = TABLES in head
        tables: list[StoredEmbeddings] = []
        for member, (spec, size) in enumerate(zip(specs, sizes, strict=True)):
            place = _place(head, TABLES if is_single else f"{MEMBERS}{member}.{TABLES}", spec, features, weights_path)
            room = _room(memory_bytes * size // sum(sizes), spec, features, {"is_ranked": is_ranked, **division})
            tables.append(_open_tables(file, place, spec, features, room))
        waiting = iter(tables)
        model, _ = build_described(
            path,
            partial(check_size, file, weights_path),
            lambda spec, features: build_scoring_model(spec, features, next(waiting)),
        )
        load_weights(model, dict(_layers(stored)), weights_path)
    return ready_to_score(model, path)


def _load_packed(file: TensorFile, path: Path, memory_bytes: int) -> Model | Ensemble:
    """A model in few bits, of whose tables as many are unpacked as the memory has room for.

    Raises:
        CheckpointError: The file is that of another model.
        RequestError: The memory does not hold the packed tables.
    """
    features, specs = _described(path)
    tensors = {name: file.read(name) for name in file.head}
    is_single = "ensemble_weights" not in (description := read_json(path)) or description["ensemble_weights"] is None
    prefixes = [""] if is_single else [f"{MEMBERS}{number}." for number in range(len(specs))]
    packed = [
        [
            PackedTable(parts, shape.rows, shape.width)
            for parts, shape in zip(parts_of_tables(tensors, len(shapes), prefix), shapes, strict=True)
        ]
        for prefix, shapes in zip(prefixes, (spec.tables(features) for spec in specs), strict=True)
    ]
    sizes = [sum(table.bytes_as(PACKED) for table in tables) for tables in packed]
    if sum(sizes) > memory_bytes:
        raise RequestError(
            f"The tables of this model lie in few bits, which stay in memory and take {sum(sizes):,} bytes of the "
            f"{memory_bytes:,} of --memory: raise it, or serve the model that was packed."
        )
    built = iter(
        PackedEmbeddings(
            [shape.rows for shape in spec.tables(features)],
            spec.embedding_dim,
            bag_tables(spec, features),
            tables,
            memory_bytes * size // sum(sizes),
        )
        for spec, tables, size in zip(specs, packed, sizes, strict=True)
    )
    model, _ = build_described(path, None, lambda spec, features: build_scoring_model(spec, features, next(built)))
    members = model.models if isinstance(model, Ensemble) else (model,)
    weights = {} if is_single else {name: one for name, one in tensors.items() if not name.startswith(MEMBERS)}
    for member, prefix in zip(members, prefixes, strict=True):
        weights |= unpack(member, tensors, prefix, with_tables=False)
    load_weights(model, weights, path.with_name("model.safetensors"))
    return model


def memory_for_tables(directory: Path, among: int = 1) -> int | None:
    """What the embedding tables of a model may take of the memory that is free, where they are too large for it.

    Args:
        directory: Folder of the model.
        among: Models as large that share the memory.

    Returns:
        For `load_stored_model`; None where there is room for all of them, or they can lie in memory alone.

    Raises:
        CheckpointError: The model is missing, or not one of this version.
    """
    path = directory / "model.json"
    features, specs = _described(path)
    free = available_memory_bytes(torch.device("cpu"))
    size = sum(EmbeddingTables.count_bytes(spec.tables(features)).weights for spec in specs)
    return (
        None
        if any(spec.has_mixed_tables or spec.table_precision != "fp32" for spec in specs)
        or among * size <= LARGEST_SHARE * free
        else int(SHARE * free)
    )


def load_to_score(directory: Path, execution: Execution, among: int = 1) -> Model | Ensemble:
    """Read what `shunter.engine.checkpoint.storage.save_model` wrote, to score with it where its training ran.

    On a processor embedding tables stay in their file where the memory has no room for them, as after a training in
    several processes that held them together. The scores are the same bit by bit.

    Args:
        directory: Folder of the model.
        execution: Where it is scored.
        among: Models as large that are loaded together.

    Raises:
        CheckpointError: A file is missing, damaged or does not belong to the other.
    """
    is_mapped = execution.maps_tables
    if not is_mapped and execution.device == "cpu" and not read_json(directory / "model.json").get("packed", False):
        is_mapped = memory_for_tables(directory, among) is not None
    return load_model(directory, execution.device, is_mapped=is_mapped)


def placement_of_tables(model: torch.nn.Module) -> list[str]:
    """Where tables of a model or of members of an ensemble lie that are not whole in memory, a sentence each."""
    return [one.placement for one in model.modules() if isinstance(one, StoredEmbeddings | PackedEmbeddings)]


def stored_tables(model: torch.nn.Module) -> list[StoredEmbeddings]:
    """The tables of a model, or of the members of an ensemble, that lie in a file."""
    return [module for module in model.modules() if isinstance(module, StoredEmbeddings)]


def _described(path: Path) -> tuple[Features, list[ModelSpec]]:
    """The input and the architectures of a description.

    Raises:
        CheckpointError: It is that of no model.
    """
    description = read_json(path)
    try:
        return Features.from_dict(description["features"]), [model_spec(**one) for one in description["members"]]
    except (KeyError, TypeError, ValueError, AssertionError, RequestError) as error:
        raise CheckpointError(
            f"The file {path} does not describe a model of this version ({error}): save the model again."
        ) from error


def _place(head: Mapping[str, Any], name: str, spec: ModelSpec, features: Features, path: Path) -> int:
    """Where the tables of a member begin in the file."""
    tensor, rows = head.get(name, {}), sum(shape.rows for shape in spec.tables(features))
    if tensor.get("dtype") != "F32" or tensor.get("shape") != [rows, spec.embedding_dim]:
        raise CheckpointError(f"The weights in {path} are those of another model (its tables are not {name}).")
    if tensor["start"] % FLOAT_BYTES:
        raise CheckpointError(f"The numbers in {path} lie at no multiple of their size: save the model again.")
    return tensor["start"]


def _room(memory_bytes: int, spec: ModelSpec, features: Features, options: Mapping[str, Any]) -> Room:
    rows, bags = [shape.rows for shape in spec.tables(features)], bag_tables(spec, features)
    has_lists = len(bags) == len(features.categorical) and any(field.multi_valued for field in features.categorical)
    return divide(memory_bytes, rows, spec.embedding_dim, len(bags), **{"has_lists": has_lists, **options})


def _open_tables(
    file: io.BufferedReader, start: int, spec: ModelSpec, features: Features, room: Room
) -> StoredEmbeddings:
    rows, dim = [shape.rows for shape in spec.tables(features)], spec.embedding_dim
    stored = RowFile(file.fileno(), start, sum(rows), dim, room.buffer_bytes)
    return StoredEmbeddings(rows, dim, bag_tables(spec, features), stored, room)


def _layers(file: TensorFile) -> Iterator[tuple[str, Tensor]]:
    """All tensors but the tables."""
    for name in file.head:
        if not name.endswith(TABLES):
            yield name, file.read(name)
