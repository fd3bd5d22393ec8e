"""Share of one process in the losses of a divided batch."""

from torch import Tensor, nn

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
        labels: Likewise.
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
