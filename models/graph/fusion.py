"""Ensemble of several rankers: a sum of their standardised scores or of their reciprocal ranks, for each user."""

from typing import Any

import torch
from torch import Tensor, nn

from shunter.models.graph.history_rankers import DenseHistoryRanker, SparseHistoryRanker
from shunter.models.graph.ranker import UNKNOWN, Ranker, VectorRanker
from shunter.models.graph.spec import By

RANK_OFFSET = 60  # as in the paper, so that the first few ranks of one member do not decide alone
MEMBERS: dict[str, type[Ranker]] = {
    ranker.kind: ranker for ranker in (VectorRanker, DenseHistoryRanker, SparseHistoryRanker)
}


class FusedRanker(Ranker):
    """Sum of comparable scores of the members, with equal weights.

    By z-scores: a member's scores of all known items for a user are standardised by their mean and standard deviation.
    By reciprocal ranks: `1 / (60 + rank)` among all known items, with rank 1 for the best (Cormack, Clarke and
    Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009).

    Args:
        members: Rankers of the same users and items.
        by: Quantity that is summed.
    """

    kind = "fused"

    def __init__(self, members: list[Ranker], by: By) -> None:
        super().__init__(members[0].user_degrees.clone(), members[0].item_degrees.clone())
        self.members = nn.ModuleList(members)
        self.by: By = by

    @classmethod
    def empty(cls, users: int, items: int, **shape: Any) -> "FusedRanker":
        """Create a fusion (sum of several rankers' scores) of uninitialised rankers with these shapes."""
        members = []
        for one in shape["members"]:
            own = dict(one)
            members.append(MEMBERS[own.pop("kind")].empty(users, items, **own))
        return cls(members, shape["by"])

    def shape(self) -> dict[str, Any]:
        """Return the summed quantity, and the kind and shape of each member."""
        return {"by": self.by, "members": [{"kind": one.kind, **one.shape()} for one in self.rankers]}

    def known_scores(self, users: Tensor) -> Tensor:
        """Return the sum of the members' comparable scores."""
        added = [self._comparable(one.all_scores(users)[:, UNKNOWN + 1 :]) for one in self.rankers]
        return nn.functional.pad(torch.stack(added).sum(0), (UNKNOWN + 1, 0))

    @property
    def rankers(self) -> list[Ranker]:
        """Return the rankers that are combined."""
        return [one for one in self.members if isinstance(one, Ranker)]

    def _comparable(self, scores: Tensor) -> Tensor:
        """Turn a member's scores into z-scores or reciprocal ranks for each user; higher is better."""
        if self.by == "z-scores":
            centred = scores - scores.mean(1, keepdim=True)
            return centred / scores.std(1, keepdim=True, correction=0).clamp(min=1e-12)
        order = scores.argsort(dim=1, descending=True, stable=True)
        ranks = torch.empty_like(order).scatter_(
            1, order, torch.arange(1, scores.shape[1] + 1, device=scores.device).expand_as(order)
        )
        return 1 / (RANK_OFFSET + ranks.to(scores.dtype))


RANKERS: dict[str, type[Ranker]] = {**MEMBERS, FusedRanker.kind: FusedRanker}
