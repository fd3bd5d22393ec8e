"""Numbers cut into bins, each of which says how far a number has come through it.

The piecewise linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning"
(NeurIPS 2022, section 3.2). A layer above it may give each bin a slope of its own, so that what a number means need not
grow evenly with it; unlike ids of buckets, two numbers that are close stay close.
"""

import numpy as np
import torch
from torch import Tensor, nn

MOST_ROWS = 200_000  # from which the quantiles are taken
LEAST_WIDTH = 1e-5  # of a bin, relative to its ends: float32 tells no shares of a narrower one


class NumberBins(nn.Module):
    """Numbers, and beside each the share of each of its bins that lies below it.

    Where the bins lie is of the data (`begin`) and kept with the weights; it is not learned.

    Args:
        numbers: How many of them a sample has.
        bins: Bins of each.

    Attributes:
        slopes: `[numbers, bins]`, one through the width of each bin; 0 where there is none.
        starts: `[numbers, bins]`, what a number of 0 has of each bin, before it is cut to a share.
    """

    slopes: Tensor
    starts: Tensor

    def __init__(self, numbers: int, bins: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.zeros(numbers, bins))
        self.register_buffer("starts", torch.zeros(numbers, bins))

    @torch.no_grad()
    def begin(self, numbers: np.ndarray) -> None:
        """Lay the bins between quantiles of what training holds, so that each holds as many of its numbers.

        Where a value is so frequent that quantiles meet, bins are left out. One far outlier takes none from the
        others.

        Args:
            numbers: float32 `[rows, numbers]`.
        """
        bins = self.slopes.shape[1]
        edges = np.quantile(numbers.astype(np.float64), np.linspace(0, 1, bins + 1), axis=0).T
        lower, widths = edges[:, :-1], np.diff(edges)
        told_apart = widths > LEAST_WIDTH * np.maximum(np.abs(lower), np.abs(edges[:, 1:]))
        slopes = np.divide(1.0, widths, out=np.zeros_like(widths), where=told_apart)
        self.slopes.copy_(torch.from_numpy(slopes))
        self.starts.copy_(torch.from_numpy(-lower * slopes))

    def shares(self, numbers: Tensor) -> Tensor:
        """`[batch, numbers]` to `[batch, numbers, bins]`: how much of each bin lies below the number, in float32."""
        return torch.addcmul(self.starts, numbers.float().unsqueeze(2), self.slopes).clamp(0, 1)

    def forward(self, numbers: Tensor) -> Tensor:
        """Map `[batch, numbers]` to `[batch, numbers * (1 + bins)]`: all numbers, and behind them all shares."""
        return torch.cat([numbers.float(), self.shares(numbers).flatten(1)], dim=1)


@torch.no_grad()
def begin_bins(layers: nn.Module, numbers: np.ndarray) -> None:
    """Lay the bins of a model's layers, see `NumberBins.begin`.

    Args:
        layers: The layers of a model.
        numbers: float32 `[rows, numbers]` of the training part. At most `MOST_ROWS`, at even distances, are read.
    """
    known = numbers[:: -(-len(numbers) // MOST_ROWS)]
    for module in layers.modules():
        if isinstance(module, NumberBins):
            module.begin(known)
