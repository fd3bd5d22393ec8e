"""Rankers that score an item by what the user chose before: a weight between each of those items and this one."""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from shunter.models.graph.ranker import Ranker
from shunter.models.graph.spec import Graph

MOST_CELLS = 2**25  # of items times items, up to which a product with the whole matrix is faster than single sums


class Histories(NamedTuple):
    """What the users chose in training.

    Attributes:
        items: All users one after another, `[edges]`, as many of each user as its degree says.
        user_degrees: Edges of each user, `[users]`.
        item_degrees: Edges of each item, `[items]`.
    """

    items: Tensor
    user_degrees: Tensor
    item_degrees: Tensor

    @classmethod
    def of(cls, graph: Graph, device: torch.device) -> "Histories":
        """Those of a graph."""
        order = graph.edge_users.argsort(kind="stable")
        arrays = (graph.edge_items[order], graph.user_degrees(), graph.item_degrees())
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    @classmethod
    def empty(cls, users: int, items: int, edges: int) -> "Histories":
        """Room for those of so many."""
        return cls(*(torch.zeros(count, dtype=torch.int64) for count in (edges, users, items)))


class HistoryRanker(Ranker):
    """Scores `sum over the items j that the user chose of weight(j, item)`; no user has a vector.

    An item that nobody chose has no weight, so that it scores 0.

    Args:
        histories: What the users chose.
    """

    history: Tensor

    def __init__(self, histories: Histories) -> None:
        super().__init__(histories.user_degrees, histories.item_degrees)
        self.register_buffer("history", histories.items.int())

    @abstractmethod
    def add_up(self, rows: Tensor, items: Tensor, count: int) -> Tensor:
        """The weights of chosen items, summed by row: `[pairs]` rows and `[pairs]` items to `[count, items]`."""

    def known_scores(self, users: Tensor) -> Tensor:
        """By the histories of the users."""
        lengths = self.user_degrees[users]
        rows = torch.repeat_interleave(torch.arange(len(users), device=self.device), lengths)
        starts = self.user_degrees.cumsum(0)[users] - lengths
        return self.add_up(rows, self.history[spread(starts, lengths)].long(), len(users))


class DenseHistoryRanker(HistoryRanker):
    """With a weight for every two items.

    Args:
        weights: From each chosen item to each that is scored, `[items, items]`.
        histories: What the users chose.
    """

    kind = "dense"

    weights: Tensor

    def __init__(self, weights: Tensor, histories: Histories) -> None:
        super().__init__(histories)
        self.register_buffer("weights", weights)

    @classmethod
    def empty(cls, users: int, items: int, **shape: int) -> "DenseHistoryRanker":
        """Room for histories of so many `edges` together."""
        return cls(torch.zeros(items, items), Histories.empty(users, items, shape["edges"]))

    def shape(self) -> dict[str, int]:
        """The edges."""
        return {"edges": len(self.history)}

    def add_up(self, rows: Tensor, items: Tensor, count: int) -> Tensor:
        """By a product with the matrix."""
        return chosen_times(self.weights, rows, items, count)


class SparseHistoryRanker(HistoryRanker):
    """With weights to some items only.

    Args:
        targets: Items that have a weight, those of each chosen item one after another, `[weights]`.
        weights: The weights, `[weights]`.
        target_counts: How many each chosen item has, `[items]`.
        histories: What the users chose.
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
        """Room for histories of so many `edges` together, and so many `weights`."""
        weights = torch.zeros(shape["weights"])
        counts = torch.zeros(items, dtype=torch.int64)
        return cls(torch.zeros(shape["weights"]), weights, counts, Histories.empty(users, items, shape["edges"]))

    def shape(self) -> dict[str, int]:
        """The edges and the weights."""
        return {"edges": len(self.history), "weights": len(self.weights)}

    def add_up(self, rows: Tensor, items: Tensor, count: int) -> Tensor:
        """By adding each weight to its place; of few items by a product with the whole matrix."""
        if len(self.target_counts) ** 2 <= MOST_CELLS:
            return chosen_times(self._dense(), rows, items, count)
        lengths = self.target_counts[items]
        found = spread(self.target_counts.cumsum(0)[items] - lengths, lengths)
        width = len(self.target_counts)
        places = torch.repeat_interleave(rows * width, lengths) + self.targets[found]
        return torch.zeros(count * width, device=self.device).index_add_(0, places, self.weights[found]).view(count, -1)

    def _dense(self) -> Tensor:
        items = len(self.target_counts)
        matrix = torch.zeros(items, items, device=self.device)
        matrix[torch.repeat_interleave(self.target_counts), self.targets.long()] = self.weights
        return matrix


def chosen_times(weights: Tensor, rows: Tensor, items: Tensor, count: int) -> Tensor:
    """Chosen items as `[count, items]` zeros and ones, times `[items, items]` weights."""
    chosen = torch.zeros(count, len(weights), device=weights.device)
    chosen[rows, items] = 1.0
    return chosen @ weights


def spread(starts: Tensor, lengths: Tensor) -> Tensor:
    """All positions of ranges one after another: `[ranges]` and `[ranges]` to `[sum of lengths]`."""
    before = lengths.cumsum(0) - lengths
    total = int(lengths.sum())
    return torch.arange(total, device=starts.device) + torch.repeat_interleave(starts - before, lengths)
