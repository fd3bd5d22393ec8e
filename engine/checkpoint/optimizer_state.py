"""State of a dense optimizer as named tensors, for a file."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

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

    Args:
        optimizer: Optimizer of the same parameters.
        tensors: Tensors by name.
        changes: Other entries of the state dictionary, such as `part`, with values to set instead of the current ones.
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
