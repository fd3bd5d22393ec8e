"""Exact search for the best items of users among the scores of all items, for every kind of ranker."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from shunter.models.graph.ranker import Ranker, VectorRanker

MOST_USERS = 256  # users in one block of scores in memory
MOST_CELLS = 2**24  # scores (users times items) in one block


@dataclass(frozen=True)
class Best:
    """Best items of some users: one row for each user, the best item first.

    Attributes:
        places: Positions among the searched items, int64 `[users, most]`; -1 if there is no further item.
        scores: Scores of these items, float64 `[users, most]`; minus infinity if there is no further item.
    """

    places: np.ndarray
    scores: np.ndarray

    @classmethod
    def nothing(cls, users: int, most: int) -> Self:
        """Return a result without items for every user."""
        return cls(np.full((users, most), -1, np.int64), np.full((users, most), -np.inf))

    def put(self, rows: np.ndarray | slice, found: "Best") -> None:
        """Set the rows `rows` to the results `found`, in place."""
        self.places[rows, : found.places.shape[1]] = found.places
        self.scores[rows, : found.scores.shape[1]] = found.scores

    def beside(self, others: "Best") -> "Best":
        """Merge both results into a result with as many items per user as this one, whose items come first on ties."""
        most = self.places.shape[1]
        scores = np.concatenate([self.scores, others.scores], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :most]
        places = np.concatenate([self.places, others.places], axis=1)
        return Best(np.take_along_axis(places, order, axis=1), np.take_along_axis(scores, order, axis=1))


class Search(ABC):
    """Search of the best items for users, among items that the model was trained on.

    Args:
        ranker: Ranking model, on the CPU.
        items: Ids of the items; on ties the earlier item comes first.
    """

    def __init__(self, ranker: Ranker, items: np.ndarray) -> None:
        self.ranker = ranker
        self.items = torch.tensor(items, dtype=torch.int64)  # a copy, since arrays of polars are read-only

    def is_known(self, users: np.ndarray) -> np.ndarray:
        """Return for each user whether the training data has interactions of the user, bool `[users]`."""
        return (self.ranker.user_degrees[torch.tensor(users)] > 0).numpy()

    @abstractmethod
    def best(self, users: np.ndarray, most: int, without: Sequence[np.ndarray]) -> Best:
        """Return the items with the highest scores for each user.

        Args:
            users: Ids of the users, int64 `[users]`.
            most: Number of items for each user.
            without: For each user the items to exclude, as positions in `items`.
        """


class AllScores(Search):
    """Exact search that compares the scores of all items.

    For a ranker with vectors this object stores a copy of the item vectors. Users without interactions get the items in
    order of popularity.
    """

    def __init__(self, ranker: Ranker, items: np.ndarray) -> None:
        super().__init__(ranker, items)
        self._vectors = ranker.item_vectors[self.items] if isinstance(ranker, VectorRanker) else None
        self._popularity: tuple[np.ndarray, np.ndarray] | None = None

    @torch.inference_mode()
    def best(self, users: np.ndarray, most: int, without: Sequence[np.ndarray]) -> Best:
        """Return the items with the highest scores for each user."""
        found = Best.nothing(len(users), most)
        if not len(self.items):
            return found
        is_known = self.is_known(users)
        known = np.flatnonzero(is_known)
        at_once = min(max(MOST_CELLS // len(self.items), 1), MOST_USERS)
        for start in range(0, len(known), at_once):
            rows = known[start : start + at_once]
            asked = torch.tensor(users[rows])
            if isinstance(self.ranker, VectorRanker) and self._vectors is not None:
                scores = self.ranker.user_vectors[asked] @ self._vectors.T
            else:
                scores = self.ranker.all_scores(asked)[:, self.items]
            places = [torch.tensor(without[row]) for row in rows.tolist()]
            lengths = torch.tensor([len(one) for one in places])
            scores[torch.repeat_interleave(torch.arange(len(rows)), lengths), torch.cat(places)] = -torch.inf
            found.put(rows, highest(scores, most))
        for row in np.flatnonzero(~is_known).tolist():
            found.put(slice(row, row + 1), self._popular(most, without[row]))
        return found

    def _popular(self, most: int, without: np.ndarray) -> Best:
        """Return the most popular items, for a user without interactions."""
        if self._popularity is None:
            scores, order = self.ranker.popularity()[self.items].sort(descending=True, stable=True)
            self._popularity = order.numpy(), scores.double().numpy()
        places, scores = (one[: most + len(without)] for one in self._popularity)
        kept = np.flatnonzero(~np.isin(places, without))[:most]
        return Best(places[kept][None], scores[kept][None])


def highest(scores: Tensor, most: int) -> Best:
    """Return the items with the highest scores of each user, on ties the first; minus infinity excludes an item.

    Args:
        scores: Scores, `[users, items]`.
        most: Number of items for each user.
    """
    width = scores.shape[1]
    count = min(most, width)
    values, places = scores.topk(min(count + 1, width))
    # Among scores that tie with the last one, topk returns arbitrary items.
    is_cut = (values[:, count - 1] == values[:, -1]) & (values[:, -1] > -torch.inf) & (width > count)
    values, places = values[:, :count].contiguous(), places[:, :count].contiguous()
    for row in is_cut.nonzero().flatten().tolist():
        candidates = (scores[row] >= values[row, -1]).nonzero().flatten()
        places[row] = candidates[scores[row, candidates].argsort(descending=True, stable=True)[:count]]
    places = places.sort(1).values
    values, order = scores.gather(1, places).sort(dim=1, descending=True, stable=True)
    places = places.gather(1, order)
    return Best(torch.where(values > -torch.inf, places, -1).numpy(), values.double().numpy())
