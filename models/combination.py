"""Combination of several predicted log odds into one, for ensembles that need more than a weighted mean."""

from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from shunter.record import Record

CombineBy = Literal["logits", "probabilities", "ranks", "votes"]
# Limit of a share of ranks or votes: 0 or 1 would have infinite log odds.
LEAST_SHARE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Combination(Record):
    """Fitted combination of predictions; with several tasks only the weighted mean is supported.

    Attributes:
        by: Quantity whose weighted mean is taken: log odds, probabilities, ranks among the validation predictions, or
            votes (1 if a member's log odds exceed its threshold). The mean of ranks or votes is turned into log odds.
        slope: Factor of the combined log odds, positive.
        intercept: Value added to the scaled log odds.
        references: For ranks, the quantiles of each member's log odds in ascending order; for votes, one threshold for
            each member.
        knots: Points of a monotone piecewise linear calibration: log odds after slope and intercept in ascending order,
            with the calibrated values. The calibration is constant outside the knots; without knots there is no
            calibration.
        label: Name of the combination in the comparison that chose it.
    """

    by: CombineBy = "logits"
    slope: float = 1.0
    intercept: float = 0.0
    references: tuple[tuple[float, ...], ...] = ()
    knots: tuple[tuple[float, float], ...] = ()
    label: str = ""

    def __post_init__(self) -> None:
        if self.by not in get_args(CombineBy):  # from a file of another version
            raise ValueError(f"unknown method to combine models: {self.by!r}")
        numbers = [self.slope, self.intercept, *chain.from_iterable((*self.references, *self.knots))]
        if not all(isinstance(number, int | float) for number in numbers):
            raise ValueError("a combination of models consists of numbers")


class Combiner(nn.Module):
    """Module that combines the log odds of members as a `Combination` defines.

    Args:
        combination: Combination to compute.
    """

    references: Tensor
    knots: Tensor

    def __init__(self, combination: Combination) -> None:
        super().__init__()
        self.combination = combination
        # Not persistent: the values are stored in the description of the model, not also with the weights.
        self.register_buffer("references", torch.tensor(combination.references).float(), persistent=False)
        self.register_buffer("knots", torch.tensor(combination.knots).reshape(-1, 2).float().T, persistent=False)

    def forward(self, logits: Tensor, weights: Tensor) -> Tensor:
        """Combine the log odds of the members.

        Args:
            logits: Log odds, `[rows, members]`.
            weights: Weight of each member, none negative, with sum 1, `[members]`.

        Returns:
            Combined log odds, `[rows]`.
        """
        mixed = self._mean(logits, weights) * self.combination.slope + self.combination.intercept
        return _interpolated(mixed, *self.knots.to(mixed.dtype)) if self.knots.numel() else mixed

    def _mean(self, logits: Tensor, weights: Tensor) -> Tensor:
        by = self.combination.by
        if by == "logits":
            return logits @ weights
        if by == "probabilities":
            shares = weights.log()  # a weight of 0 adds nothing
            return torch.logsumexp(logsigmoid(logits) + shares, 1) - torch.logsumexp(logsigmoid(-logits) + shares, 1)
        references = self.references.to(logits.dtype)
        if by == "votes":
            share = (logits > references[:, 0]).to(logits.dtype) @ weights
        else:
            levels = torch.linspace(0, 1, references.shape[1], dtype=logits.dtype, device=logits.device)
            ranks = [_interpolated(logits[:, k].contiguous(), one, levels) for k, one in enumerate(references)]
            share = torch.stack(ranks, dim=1) @ weights
        return torch.logit(share.clamp(LEAST_SHARE, 1 - LEAST_SHARE))


def _interpolated(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Interpolate linearly between points with ascending `x`; the result is constant outside them."""
    if len(x) == 1:
        return y.expand_as(at)
    right = torch.searchsorted(x.contiguous(), at).clamp(1, len(x) - 1)
    left = right - 1
    width = (x[right] - x[left]).clamp_min(torch.finfo(at.dtype).tiny)
    return y[left] + ((at - x[left]) / width).clamp(0, 1) * (y[right] - y[left])
