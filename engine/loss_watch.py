"""Sums the losses of an epoch, and stops a training whose loss is not a number any more."""

import math

import torch
from torch import Tensor

from shunter.errors import TrainingError

# A GPU would wait for the host whenever a loss is read, so there it is read once in a while; a CPU waits anyway.
STEPS_BETWEEN_LOSS_CHECKS = {"cpu": 1, "cuda": 100}


class LossWatch:
    """Sums the losses of an epoch on the device, and looks at them once in a while.

    A loss is always added at its own step and in the order of the steps, so that the sum does not depend on when it
    is looked at.
    """

    def __init__(self, device: torch.device) -> None:
        self.period = STEPS_BETWEEN_LOSS_CHECKS[device.type]
        self.total = torch.zeros((), dtype=torch.float64, device=device)
        self.recent = torch.zeros(self.period, device=device)
        self.checked_step = 0

    def restart(self, total: float, step: int) -> None:
        """Go on from a sum."""
        self.total.fill_(total)
        self.checked_step = step

    def add(self, loss: Tensor, samples: int, step: int) -> None:
        """Add the mean loss of a step."""
        self.recent[step % self.period] = loss
        self.total.add_(loss, alpha=samples)
        if step - self.checked_step >= self.period:
            self.check(step)

    def check(self, step: int) -> float:
        """Return the sum after `step`.

        Raises:
            TrainingError: a loss since the last check is not finite; the message names its step.
        """
        total = self.total.item()
        if not math.isfinite(total):
            recent = self.recent.tolist()
            steps = range(self.checked_step + 1, step + 1)
            first = next((number for number in steps if not math.isfinite(recent[number % self.period])), step)
            raise TrainingError(
                f"The loss of step {first} is {recent[first % self.period]}: lower the learning rates; "
                f"the last good checkpoint is kept."
            )
        self.checked_step = step
        return total
