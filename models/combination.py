"""How several predicted log odds become one: what an ensemble does beside the weighted mean of its members."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from shunter.record import Record

CombineBy = Literal["logits", "probabilities", "ranks", "votes"]
# A share of ranks or votes of 0 or 1 would be infinitely sure.
LEAST_SHARE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Combination(Record):
    """A way to combine, fitted and ready to be stored; with several tasks there is only the weighted mean.

    Attributes:
        by: What the weighted mean is taken of: log odds, probabilities, ranks among the predictions of validation, or
            votes (1 where a member's log odds lie above its threshold). Of the last two the log odds of the mean are
            what is calibrated.
        slope: Factor of the combined log odds, positive.
        intercept: Added to them after that.
        references: Of ranks the quantiles of each member's log odds, from the lowest to the highest; of votes one
            threshold for each member.
        knots: Log odds in ascending order, and beside them what they become after slope and intercept, never falling,
            in a straight line between two of them and level beyond; empty changes nothing.
        label: What it was called where it was chosen.
    """

    by: CombineBy = "logits"
    slope: float = 1.0
    intercept: float = 0.0
    references: tuple[tuple[float, ...], ...] = ()
    knots: tuple[tuple[float, float], ...] = ()
    label: str = ""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Combination":
        """Inverse of `to_dict`.

        Raises:
            ValueError: The values are none that `Combiner` can compute with.
        """
        found = cls(
            **{
                **values,
                "references": tuple(tuple(map(float, one)) for one in values["references"]),
                "knots": tuple((float(one[0]), float(one[1])) for one in values["knots"]),
            }
        )
        if found.by not in ("logits", "probabilities", "ranks", "votes"):
            raise ValueError(f"there is no combination by {found.by!r}")
        return found


class Combiner(nn.Module):
    """Combines the log odds of members as a `Combination` says.

    Args:
        combination: What to compute.
    """

    references: Tensor
    knots: Tensor

    def __init__(self, combination: Combination) -> None:
        super().__init__()
        self.combination = combination
        # Beside the weights they are in the description of the model, not twice in its files.
        self.register_buffer("references", torch.tensor(combination.references).float(), persistent=False)
        self.register_buffer("knots", torch.tensor(combination.knots).reshape(-1, 2).float().T, persistent=False)

    def forward(self, logits: Tensor, weights: Tensor) -> Tensor:
        """Combine.

        Args:
            logits: Log odds, `[rows, members]`.
            weights: One for each member, none negative, their sum one, `[members]`.

        Returns:
            Log odds, `[rows]`.
        """
        mixed = self._mean(logits, weights) * self.combination.slope + self.combination.intercept
        return _interpolated(mixed, *self.knots.to(mixed.dtype)) if self.knots.numel() else mixed

    def _mean(self, logits: Tensor, weights: Tensor) -> Tensor:
        by = self.combination.by
        if by == "logits":
            return logits @ weights
        if by == "probabilities":
            shares = weights.log()  # of no weight nothing is added
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
    """The line through points with ascending `x`, level beyond the outermost."""
    if len(x) == 1:
        return y.expand_as(at)
    right = torch.searchsorted(x.contiguous(), at).clamp(1, len(x) - 1)
    left = right - 1
    width = (x[right] - x[left]).clamp_min(torch.finfo(at.dtype).tiny)
    return y[left] + ((at - x[left]) / width).clamp(0, 1) * (y[right] - y[left])
