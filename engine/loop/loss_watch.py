"""Sums the losses of an epoch, and stops a training whose loss is not a number any more."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shunter.errors import TrainingError

# A GPU would wait for the host whenever a loss is read, so there it is read once in a while; a CPU waits anyway.
STEPS_BETWEEN_LOSS_CHECKS = {"cpu": 1, "cuda": 100}


class LossWatch:
    """Sums the losses of an epoch on the device, and looks at them once in a while.

    A loss is always added at its own step and in the order of the steps, so that the sum does not depend on when it
    is looked at.

    Args:
        device: Device of the losses.
        tasks: how many losses a step has.
    """

    def __init__(self, device: torch.device, tasks: int = 1) -> None:
        self.period = STEPS_BETWEEN_LOSS_CHECKS[device.type]
        self.totals = torch.zeros(tasks, dtype=torch.float64, device=device)
        self.recent = torch.zeros(self.period, tasks, device=device)
        self.checked_step = 0

    def restart(self, totals: Sequence[float], step: int) -> None:
        """Go on from sums."""
        self.totals.copy_(torch.tensor(totals, dtype=torch.float64))
        self.checked_step = step

    def add(self, losses: Tensor, counts: Sequence[float], step: int) -> None:
        """Add the mean losses of a step, each as often as its count says."""
        self.recent[step % self.period] = losses
        for total, loss, count in zip(self.totals, losses.view(-1), counts, strict=True):
            total.add_(loss, alpha=count)
        if step - self.checked_step >= self.period:
            self.check(step)

    def check(self, step: int) -> list[float]:
        """Return the sums after `step`.

        Raises:
            TrainingError: a loss since the last check is not finite; the message names its step.
        """
        totals = self.totals.tolist()
        if not all(map(math.isfinite, totals)):
            recent = [sum(losses) for losses in self.recent.tolist()]
            steps = range(self.checked_step + 1, step + 1)
            first = next((number for number in steps if not math.isfinite(recent[number % self.period])), step)
            raise TrainingError(
                f"The loss of step {first} is {recent[first % self.period]}: lower the learning rates; "
                f"the last good checkpoint is kept."
            )
        self.checked_step = step
        return totals
