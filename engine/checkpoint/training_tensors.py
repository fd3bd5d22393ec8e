"""Tensors of a training run, by their names in a file."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from shunter.engine.checkpoint.optimizer_state import optimizer_tensors, restore_optimizer
from shunter.engine.checkpoint.random_state import random_tensors, restore_random
from shunter.engine.checkpoint.storage import load_weights
from shunter.errors import CheckpointError, TrainingError
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.recommender import Recommender

WEIGHTS = "model."
VALUES_CHECKED_AT_ONCE = 1 << 14


def embedding_tables(model: nn.Module) -> list[tuple[str, EmbeddingTables]]:
    """Return the embedding tables of a model with their paths; a graph model has none."""
    return [(path, module) for path, module in model.named_modules() if isinstance(module, EmbeddingTables)]


def tables_of(model: nn.Module) -> EmbeddingTables | None:
    """Return the embedding tables of a click model; None if the model does not have exactly one set of tables."""
    found = embedding_tables(model)
    return found[0][1] if len(found) == 1 else None


def bags_of(model: nn.Module) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return the function that maps ids and offsets of a batch to those that the model looks up in its tables."""
    return model.bags_of if isinstance(model, Recommender) else lambda values, offsets: (values, offsets)


def weights_beside_tables(module: nn.Module, path: str = "") -> dict[str, Tensor]:
    """Return the state dict of a model without its embedding tables; no table file is read."""
    if isinstance(module, EmbeddingTables):
        return {}
    if not any(isinstance(one, EmbeddingTables) for one in module.modules()):
        return module.state_dict(prefix=path)
    own: dict[str, Tensor] = {}
    module._save_to_state_dict(own, path, keep_vars=False)
    for name, child in module.named_children():
        own |= weights_beside_tables(child, f"{path}{name}.")
    return own


def rows_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the live weights and optimizer state of the tables, by their names in a file."""
    tensors = {}
    for place, tables in embedding_tables(model):
        tensors |= {f"{WEIGHTS}{place}.{name}": tensor for name, tensor in tables.state_dict().items()}
        tensors |= {f"{place}.{name}": tensor for name, tensor in tables.optimizer_tensors().items()}
    return tensors


def collect(model: nn.Module, optimizer: torch.optim.Optimizer, *, rows_apart: bool) -> dict[str, Tensor]:
    """Return all live tensors of a training run by name, without the tables if `rows_apart`."""
    weights = weights_beside_tables(model) if rows_apart else model.state_dict()
    tensors = {f"{WEIGHTS}{name}": tensor for name, tensor in weights.items()}
    tensors |= {} if rows_apart else rows_of(model)
    return tensors | optimizer_tensors(optimizer) | random_tensors(next(model.parameters()).device)


def distribute(
    tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer, path: Path, *, rows_apart: bool
) -> None:
    """Restore model, optimizer and random state from the tensors of `collect`, read from the file `path`.

    Raises:
        CheckpointError: The tensors belong to another model, or to a training run on another kind of device.
    """
    load_weights(model, weights_among(tensors), path, without_tables=rows_apart)
    restore_optimizer(optimizer, tensors)
    device = next(model.parameters()).device
    try:
        for place, tables in () if rows_apart else embedding_tables(model):
            tables.load_optimizer_tensors({name: tensors[f"{place}.{name}"] for name in tables.optimizer_tensors()})
        restore_random(tensors, device)
    except KeyError as error:
        raise CheckpointError(
            f"The checkpoint {path} lacks {error}, since it was written on another kind of device: resume it on "
            "that kind, or start a new training."
        ) from error


def weights_among(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that are weights, by their names in the model."""
    return {name.removeprefix(WEIGHTS): value for name, value in tensors.items() if name.startswith(WEIGHTS)}


def bytes_of(tables: EmbeddingTables) -> int:
    """Return the bytes of the local rows of tables, and of their optimizer state."""
    held = tables.held_bytes()
    return held.weights + held.optimizer


def check_finite(name: str, tensor: Tensor, step: int) -> None:
    """Raise TrainingError if a value is not finite; checks part by part, as a mapped table may exceed memory."""
    if not tensor.is_floating_point():
        return
    if not all(bool(torch.isfinite(part).all()) for part in tensor.reshape(-1).split(VALUES_CHECKED_AT_ONCE)):
        raise TrainingError(
            f"After step {step} the tensor {name} holds NaN or infinity: lower the learning rates. The "
            "last good checkpoint is kept."
        )
