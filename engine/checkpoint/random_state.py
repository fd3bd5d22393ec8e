"""The state of torch's generators, which dropout draws from: a resumed training goes on where they stopped."""

from collections.abc import Mapping

import torch
from torch import Tensor


def random_tensors(device: torch.device) -> dict[str, Tensor]:
    """State of the generator of the processor, and of the device's own where it has one."""
    tensors = {"random.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def restore_random(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Put back what `random_tensors` gave, among others.

    Raises:
        KeyError: They were written on another kind of device.
    """
    torch.set_rng_state(tensors["random.cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"], device)
