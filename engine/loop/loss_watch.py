"""Sum of the losses of an epoch, with a check that stops a training run whose loss is not finite."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from shunter.errors import TrainingError

# Copying a loss to the host stalls a GPU, so losses are copied every 100 steps only; on a CPU reading is free.
STEPS_BETWEEN_LOSS_CHECKS = {"cpu": 1, "cuda": 100}


class LossWatch:
    """Accumulator that sums the losses of an epoch on the device, and periodically checks that the sums are finite.

    Losses are added step by step, in the order of the steps. The sum therefore does not depend on the checks.

    Args:
        device: Device of the losses.
        tasks: Number of losses of a step.
    """

    def __init__(self, device: torch.device, tasks: int = 1) -> None:
        self.period = STEPS_BETWEEN_LOSS_CHECKS[device.type]
        self.totals = torch.zeros(tasks, dtype=torch.float64, device=device)
        self.recent = torch.zeros(self.period, tasks, device=device)
        self.checked_step = 0

    def restart(self, totals: Sequence[float], step: int) -> None:
        """Continue after `step` with the loss sums `totals` (one for each task)."""
        self.totals.copy_(torch.tensor(totals, dtype=torch.float64))
        self.checked_step = step

    def add(self, losses: Tensor, counts: Sequence[float], step: int) -> None:
        """Add the mean losses of a step, each multiplied by its count of samples (or its total weight)."""
        self.recent[step % self.period] = losses
        for total, loss, count in zip(self.totals, losses.view(-1), counts, strict=True):
            total.add_(loss, alpha=count)
        if step - self.checked_step >= self.period:
            self.check(step)

    def check(self, step: int) -> list[float]:
        """Return the loss sums after `step`, one for each task.

        Raises:
            TrainingError: A loss since the last check is not finite; the message names its step.
        """
        totals = self.totals.tolist()
        if not all(map(math.isfinite, totals)):
            recent = [sum(losses) for losses in self.recent.tolist()]
            steps = range(self.checked_step + 1, step + 1)
            first = next((number for number in steps if not math.isfinite(recent[number % self.period])), step)
            raise TrainingError(
                f"The training loss of step {first} is {recent[first % self.period]}: lower the learning "
                "rates. The last good checkpoint is kept."
            )
        self.checked_step = step
        return totals
