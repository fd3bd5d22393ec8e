"""Loader that splits each batch of the single-process order over the processes."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from shunter.engine.data.batch import Batch
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.loss import mean_losses
from shunter.models.recommender import LabelLosses


def own_losses(
    logits: Tensor,
    labels: Tensor,
    shares: Tensor | None,
    *,
    processes: int,
    samples: int,
    loss: LabelLosses | None = None,
) -> Tensor:
    """Return the share of this process's samples in the mean losses of the whole batch, times the number of processes.

    The mean of this value over the processes is the mean over the batch, because TorchRec averages gradients.

    Args:
        logits: Log odds of this process's own samples, `[own]` or `[own, tasks]`.
        labels: Labels of these samples, of the same shape.
        shares: See `shunter.engine.data.batch.Batch`.
        processes: Number of processes.
        samples: Samples of the whole batch.
        loss: Loss of each label; None: the log loss.
    """
    if shares is not None:
        return processes * mean_losses(logits, labels, shares, loss)
    if loss is not None:
        return loss(logits, labels).sum() * (processes / samples)
    total = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    return total * (processes / samples)


@dataclass(frozen=True, kw_only=True)
class BatchShare(Batch):
    """Part of a batch for one process.

    All parts have equal size, as TorchRec requires. If a batch cannot be divided, the last parts are padded with copies
    of the batch's last sample, which are looked up but not learned.

    Attributes:
        own: Number of leading samples that are not padding.
        samples_of_all: Number of samples of the whole batch.
    """

    own: int
    samples_of_all: int

    @property
    def samples(self) -> int:
        """Number of samples of the whole batch."""
        return self.samples_of_all


class ShareLoader(BatchLoader):
    """Loader that reads one process's part of each batch.

    Args:
        processes: Number of processes.
        arguments: Arguments of `BatchLoader`.
        options: Keyword arguments of `BatchLoader`.
    """

    def __init__(self, rank: int, processes: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.rank, self.processes = rank, processes

    def read(self, rows: slice | np.ndarray) -> BatchShare:
        """Read this process's share of one batch."""
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        size = math.ceil(len(numbers) / self.processes)
        positions = np.arange(self.rank * size, (self.rank + 1) * size)
        own = int((positions < len(numbers)).sum())
        batch = self._arrays.read(numbers[np.minimum(positions, len(numbers) - 1)], whole=rows)
        return BatchShare(**vars(batch), own=own, samples_of_all=len(numbers))
