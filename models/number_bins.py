"""Numbers divided into bins, with the share of each bin that is below the number as encoding.

This is the piecewise linear encoding of Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep
Learning" (NeurIPS 2022, section 3.2). A layer above can give each bin its own slope, so the effect of a number need not
be linear. Unlike with ids of buckets, similar numbers have similar encodings.
"""

import numpy as np
import torch
from torch import Tensor, nn

MOST_ROWS = 200_000  # rows from which the quantiles are computed
LEAST_WIDTH = 1e-5  # of a bin, relative to its ends: float32 cannot resolve shares of a narrower bin


class NumberBins(nn.Module):
    """Module that appends to each number the share of each of its bins that is below the number.

    The bins depend on the data (`begin`) and are stored with the weights; they are not trained.

    Args:
        numbers: Number of dense features of a sample.
        bins: Bins of each feature.

    Attributes:
        slopes: `[numbers, bins]`, one over the width of each bin; 0 for a bin that is left out.
        starts: `[numbers, bins]`, share of each bin below the number 0, before clipping.
    """

    slopes: Tensor
    starts: Tensor

    def __init__(self, numbers: int, bins: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.zeros(numbers, bins))
        self.register_buffer("starts", torch.zeros(numbers, bins))

    @torch.no_grad()
    def begin(self, numbers: np.ndarray) -> None:
        """Place the bin edges at quantiles of the training part, so that each bin has equally many numbers.

        If a value is so frequent that quantiles coincide, bins are left out. An outlier does not affect the other bins.

        Args:
            numbers: Dense features, float32 `[rows, numbers]`.
        """
        bins = self.slopes.shape[1]
        edges = np.quantile(numbers.astype(np.float64), np.linspace(0, 1, bins + 1), axis=0).T
        lower, widths = edges[:, :-1], np.diff(edges)
        told_apart = widths > LEAST_WIDTH * np.maximum(np.abs(lower), np.abs(edges[:, 1:]))
        slopes = np.divide(1.0, widths, out=np.zeros_like(widths), where=told_apart)
        self.slopes.copy_(torch.from_numpy(slopes))
        self.starts.copy_(torch.from_numpy(-lower * slopes))

    def shares(self, numbers: Tensor) -> Tensor:
        """Return the share of each bin below the number: `[batch, numbers]` to `[batch, numbers, bins]` in float32."""
        return torch.addcmul(self.starts, numbers.float().unsqueeze(2), self.slopes).clamp(0, 1)

    def forward(self, numbers: Tensor) -> Tensor:
        """Map `[batch, numbers]` to `[batch, numbers * (1 + bins)]`: all numbers, followed by all shares."""
        return torch.cat([numbers.float(), self.shares(numbers).flatten(1)], dim=1)


@torch.no_grad()
def begin_bins(layers: nn.Module, numbers: np.ndarray) -> None:
    """Place the bins of a model's layers, see `NumberBins.begin`.

    Args:
        layers: Layers of a model.
        numbers: Dense features of the training part, float32 `[rows, numbers]`; at most `MOST_ROWS` evenly spaced rows
            are used.
    """
    known = numbers[:: -(-len(numbers) // MOST_ROWS)]
    for module in layers.modules():
        if isinstance(module, NumberBins):
            module.begin(known)
