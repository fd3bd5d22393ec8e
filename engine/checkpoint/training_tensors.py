"""All of a training that is tensors, by the names that it has in a file."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from engine.checkpoint.optimizer_state import optimizer_tensors, restore_optimizer
from engine.checkpoint.random_state import random_tensors, restore_random
from engine.checkpoint.storage import load_weights
from models.embeddings.role import EmbeddingTables
from shunter.errors import CheckpointError

WEIGHTS = "model."


def embedding_tables(model: nn.Module) -> list[tuple[str, EmbeddingTables]]:
    """The tables of a model by their path, which keep the state of their own optimiser; a graph model has none."""
    return [(path, module) for path, module in model.named_modules() if isinstance(module, EmbeddingTables)]


def tables_of(model: nn.Module) -> EmbeddingTables | None:
    """The tables of a model of clicks."""
    found = embedding_tables(model)
    return found[0][1] if len(found) == 1 else None


def rows_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and optimiser state of the tables, live, by their names in a file."""
    tensors = {}
    for place, tables in embedding_tables(model):
        tensors |= {f"{WEIGHTS}{place}.{name}": tensor for name, tensor in tables.state_dict().items()}
        tensors |= {f"{place}.{name}": tensor for name, tensor in tables.optimizer_tensors().items()}
    return tensors


def collect(model: nn.Module, optimizer: torch.optim.Optimizer, *, rows_apart: bool) -> dict[str, Tensor]:
    """All tensors of a training by name, live; those of the tables are left out where they are kept apart."""
    tensors = {f"{WEIGHTS}{name}": tensor for name, tensor in model.state_dict().items()} | rows_of(model)
    if rows_apart:
        tensors = {name: tensor for name, tensor in tensors.items() if name not in rows_of(model)}
    return tensors | optimizer_tensors(optimizer) | random_tensors(next(model.parameters()).device)


def distribute(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Put back what `collect` gave, from the file `path`.

    Raises:
        CheckpointError: They are those of another model, or of a training on another kind of device.
    """
    load_weights(model, weights_among(tensors), path)
    restore_optimizer(optimizer, tensors)
    device = next(model.parameters()).device
    try:
        for place, tables in embedding_tables(model):
            tables.load_optimizer_tensors({name: tensors[f"{place}.{name}"] for name in tables.optimizer_tensors()})
        restore_random(tensors, device)
    except KeyError as error:
        raise CheckpointError(
            f"The checkpoint {path} lacks {error}: it was written on another kind of device."
        ) from error


def weights_among(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that are weights, by their names in the model."""
    return {name.removeprefix(WEIGHTS): value for name, value in tensors.items() if name.startswith(WEIGHTS)}
