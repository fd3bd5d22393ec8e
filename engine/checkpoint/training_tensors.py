"""Tensors of a training run, by their names in a file."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

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


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """Return the state of the CPU's random generator, and of the device's if the device is a GPU."""
    tensors = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def restore_random(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore the random generators from the tensors of `random_tensors`; ignore other tensors.

    Raises:
        KeyError: The tensors were written on another kind of device.
    """
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], device)


PREFIX = "optimizer."


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return all numbers of an optimizer's state as tensors `optimizer.{parameter}.{name}`, or longer names if nested.

    A key that is a number, and an index of a list, is written with a leading `#`. The length of a list is stored under
    `#length`, so that an empty list is restored too. A number becomes a tensor without dimensions.
    """
    return state_tensors(optimizer.state_dict())


def state_tensors(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of an optimizer's state dictionary; see `optimizer_tensors`."""
    state = state_dict["state"]
    return {f"{PREFIX}{name}": value for key, values in state.items() for name, value in _flat(str(key), values)}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], **changes: Any) -> None:
    """Restore an optimizer's state from the tensors of `optimizer_tensors`; tensors with other names are ignored.

    `changes` are other entries of the state dictionary, such as `part`, to set instead of the current ones.
    """
    nested: dict[str, Any] = {}
    for key, value in tensors.items():
        if key.startswith(PREFIX):
            *path, last = key.removeprefix(PREFIX).split(".")
            inner = nested
            for name in path:
                inner = inner.setdefault(name, {})
            inner[last] = value
    state = {int(key): _nested(values) for key, values in nested.items()}
    optimizer.load_state_dict({**optimizer.state_dict(), **changes, "state": state})


def _flat(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, int):
        yield f"{name}.#number", torch.tensor(value)
    elif isinstance(value, list):
        yield f"{name}.#length", torch.tensor(len(value))
        for index, item in enumerate(value):
            yield from _flat(f"{name}.#{index}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{name}.#{key}" if isinstance(key, int) else f"{name}.{key}", item)


def _nested(value: Any) -> Any:
    """Rebuild the optimizer state of a parameter from its tensors, nested by the parts of their names."""
    if isinstance(value, Tensor):
        return value
    if "#number" in value:
        return int(value["#number"])
    if "#length" in value:
        return [_nested(value[f"#{index}"]) for index in range(int(value["#length"]))]
    return {int(key[1:]) if key.startswith("#") else key: _nested(item) for key, item in value.items()}
