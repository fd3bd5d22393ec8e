"""Constant integers that a training step needs on its device."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Constant:
    """Integers that are copied to a device once; a copy in each step would make the host wait for the GPU.

    Args:
        numbers: The integers.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = tuple(numbers)
        self._copies: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        """Return the integers on a device, int64 `[numbers]`; the tensor must not be written to."""
        if device not in self._copies:
            copied = torch.tensor(self._numbers, dtype=torch.int64, device=device)
            if type(copied) is not Tensor:  # a fake tensor of a trace or compilation, which must not be cached
                return copied
            self._copies[device] = copied
        return self._copies[device]
