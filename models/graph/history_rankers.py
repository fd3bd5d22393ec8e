"""Rankers that score an item by the sum of its weights with the items of the user's history."""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shunter.models.graph.ranker import Ranker
from shunter.models.graph.spec import Graph

MOST_CELLS = 2**25  # items x items up to which a product with the dense matrix is faster than single sums


class Histories(NamedTuple):
    """Interactions of the users in training.

    Attributes:
        items: Items of all users, user by user, `[edges]`; the degree of a user is the number of their items.
        user_degrees: Number of edges of each user, `[users]`.
        item_degrees: Number of edges of each item, `[items]`.
    """

    items: Tensor
    user_degrees: Tensor
    item_degrees: Tensor

    @classmethod
    def of(cls, graph: Graph, device: torch.device) -> "Histories":
        """Return the items of each user, from the edges of a graph."""
        order = graph.edge_users.argsort(kind="stable")
        arrays = (graph.edge_items[order], graph.user_degrees(), graph.item_degrees())
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    @classmethod
    def empty(cls, users: int, items: int, edges: int) -> "Histories":
        """Create uninitialised histories of these sizes."""
        return cls(*(torch.zeros(count, dtype=torch.int64) for count in (edges, users, items)))


class HistoryRanker(Ranker):
    """Ranker whose score is `sum over the items j of the user's history of weight(j, item)`; users have no vectors.

    An item without interactions has no weights, so its score is 0.

    Args:
        histories: Interactions of the users.
    """

    history: Tensor

    def __init__(self, histories: Histories) -> None:
        super().__init__(histories.user_degrees, histories.item_degrees)
        self.register_buffer("history", histories.items.int())

    @abstractmethod
    def add_up(self, rows: Tensor, items: Tensor, count: int) -> Tensor:
        """Sum, for each row, the weights of its history items: `[pairs]` rows and items to `[count, items]` scores."""

    def known_scores(self, users: Tensor) -> Tensor:
        """Return the scores of all items by the histories of the users, `[users]` to `[users, items]`."""
        lengths = self.user_degrees[users]
        rows = torch.repeat_interleave(torch.arange(len(users), device=self.device), lengths)
        starts = self.user_degrees.cumsum(0)[users] - lengths
        return self.add_up(rows, self.history[spread(starts, lengths)].long(), len(users))


class DenseHistoryRanker(HistoryRanker):
    """History ranker with a weight for every pair of items.

    Args:
        weights: Weight from each item of a history to each scored item, `[items, items]`.
        histories: Interactions of the users.
    """

    kind = "dense"

    weights: Tensor

    def __init__(self, weights: Tensor, histories: Histories) -> None:
        super().__init__(histories)
        self.register_buffer("weights", weights)

    @classmethod
    def empty(cls, users: int, items: int, **shape: int) -> "DenseHistoryRanker":
        """Create an uninitialised ranker for histories with `edges` interactions."""
        return cls(torch.zeros(items, items), Histories.empty(users, items, shape["edges"]))

    def shape(self) -> dict[str, int]:
        """Return the number of edges of the training graph."""
        return {"edges": len(self.history)}

    def add_up(self, rows: Tensor, items: Tensor, count: int) -> Tensor:
        """Sum the weights by a product with the weight matrix; for many items, sum rows of the matrix."""
        if len(self.weights) ** 2 <= MOST_CELLS:
            return chosen_times(self.weights, rows, items, count)
        starts = torch.searchsorted(rows, torch.arange(count, device=rows.device))
        return nn.functional.embedding_bag(items, self.weights, starts, mode="sum")


class SparseHistoryRanker(HistoryRanker):
    """History ranker with weights for some pairs of items only.

    Args:
        targets: Scored items with a weight, grouped by item of the history, `[weights]`.
        weights: Weights of these pairs, `[weights]`.
        target_counts: Number of weights of each item of a history, `[items]`.
        histories: Interactions of the users.
    """

    kind = "sparse"

    targets: Tensor
    weights: Tensor
    target_counts: Tensor

    def __init__(
        self,
        targets: Tensor,
        weights: Tensor,
        target_counts: Tensor,
        histories: Histories,
    ) -> None:
        super().__init__(histories)
        self.register_buffer("targets", targets.int())
        self.register_buffer("weights", weights)
        self.register_buffer("target_counts", target_counts.long())

    @classmethod
    def empty(cls, users: int, items: int, **shape: int) -> "SparseHistoryRanker":
        """Create an uninitialised ranker for histories with `edges` interactions and for `weights` weights."""
        weights = torch.zeros(shape["weights"])
        counts = torch.zeros(items, dtype=torch.int64)
        return cls(torch.zeros(shape["weights"]), weights, counts, Histories.empty(users, items, shape["edges"]))

    def shape(self) -> dict[str, int]:
        """Return the numbers of edges and weights."""
        return {"edges": len(self.history), "weights": len(self.weights)}

    @property
    def adds_positive_weights(self) -> bool:
        """Return True if scores are sums of single positive weights on the CPU, so that all other items score 0."""
        is_large = len(self.target_counts) ** 2 > MOST_CELLS
        return is_large and self.weights.device.type == "cpu" and bool((self.weights > 0).all())

    def add_up(self, rows: Tensor, items: Tensor, count: int) -> Tensor:
        """Add each weight to its score; with few items use a product with the dense matrix instead."""
        if len(self.target_counts) ** 2 <= MOST_CELLS:
            matrix = torch.zeros(len(self.target_counts), len(self.target_counts), device=self.device)
            matrix[torch.repeat_interleave(self.target_counts), self.targets.long()] = self.weights
            return chosen_times(matrix, rows, items, count)
        lengths = self.target_counts[items]
        found = spread(self.target_counts.cumsum(0)[items] - lengths, lengths)
        width = len(self.target_counts)
        places = torch.repeat_interleave(rows * width, lengths) + self.targets[found]
        return torch.zeros(count * width, device=self.device).index_add_(0, places, self.weights[found]).view(count, -1)


def chosen_times(weights: Tensor, rows: Tensor, items: Tensor, count: int) -> Tensor:
    """Return the product of the chosen items, as a 0/1 matrix `[count, items]`, and the weights `[items, items]`."""
    chosen = torch.zeros(count, len(weights), device=weights.device)
    chosen[rows, items] = 1.0
    return chosen @ weights


def spread(starts: Tensor, lengths: Tensor) -> Tensor:
    """Return all positions of ranges, one range after another: `[ranges]` and `[ranges]` to `[sum of lengths]`."""
    before = lengths.cumsum(0) - lengths
    total = int(lengths.sum())
    return torch.arange(total, device=starts.device) + torch.repeat_interleave(starts - before, lengths)
