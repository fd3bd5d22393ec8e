"""The state of a dense optimiser as named tensors, for a file."""

from collections.abc import Mapping

import torch
from torch import Tensor

PREFIX = "optimizer."


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of the state, as `optimizer.{parameter}.{name}`."""
    return {
        f"{PREFIX}{index}.{name}": value
        for index, values in optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave; tensors of other names are left alone."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith(PREFIX):
            index, name = key.removeprefix(PREFIX).split(".", maxsplit=1)
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
