"""State of torch's random generators (for dropout), so that a resumed training run draws the same numbers."""

from collections.abc import Mapping

import torch
from torch import Tensor


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
