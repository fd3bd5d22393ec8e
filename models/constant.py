"""Numbers that a step needs on its device, and that never change."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Constant:
    """Whole numbers that are copied to a device once: a copy at each step would make the host wait for the GPU.

    Args:
        numbers: The numbers.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = tuple(numbers)
        self._copies: dict[torch.device, Tensor] = {}

    def on(self, device: torch.device) -> Tensor:
        """The numbers there, int64 `[numbers]`; not to be written to."""
        if device not in self._copies:
            copied = torch.tensor(self._numbers, dtype=torch.int64, device=device)
            if type(copied) is not Tensor:  # of a trace, which counts and compiles without memory
                return copied
            self._copies[device] = copied
        return self._copies[device]
