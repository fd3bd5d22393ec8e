"""Neighbours among items (Deshpande and Karypis, "Item-Based Top-N Recommendation Algorithms", TOIS 2004)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from models.graph.history_rankers import Histories, SparseHistoryRanker
from models.graph.propagation import ITEMS_AT_ONCE, co_counts
from models.graph.ranker import Ranker
from models.graph.solved import SolveCounts, SolvedModel
from models.graph.spec import Graph, GraphSpec, Searched

FLOAT_BYTES, ID_BYTES = 4, 8


@dataclass(frozen=True, kw_only=True)
class ItemKnnSpec(GraphSpec):
    """An item-kNN.

    Attributes:
        neighbours: Items that each item is scored by, the most similar ones.
        shrinkage: Added to the denominator of the similarity, so that few common users count less.
    """

    family: ClassVar[str] = "itemknn"
    searched: ClassVar[Searched] = {"neighbours": (20, 50, 100, 200, 400), "shrinkage": (0.0, 10.0, 50.0, 200.0)}
    points: ClassVar[tuple[Mapping[str, float], ...]] = ({"neighbours": 400}, {"shrinkage": 50.0})

    neighbours: int = 100
    shrinkage: float = 0.0


class ItemKnn(SolvedModel[ItemKnnSpec]):
    """An item scores the sum of its similarities to what the user chose, as far as those are among its neighbours.

    The similarity is the cosine, `users of both / (sqrt(users of one * users of the other) + shrinkage)`.
    """

    spec_class = ItemKnnSpec

    @classmethod
    def rankers(cls, spec: ItemKnnSpec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """One, from one count of common users."""
        histories = Histories.of(graph, device)
        roots = histories.item_degrees.float().sqrt()
        sources, targets, weights = [], [], []
        for items, common in co_counts(graph, device):
            similar = common / (roots[:, None] * roots[items] + spec.shrinkage).clamp(min=1.0)
            similar[items, torch.arange(len(items), device=device)] = 0.0
            values, found = similar.topk(min(spec.neighbours, graph.items), dim=0)
            place, column = (values > 0).nonzero(as_tuple=True)
            sources.append(found[place, column])
            targets.append(items[column])
            weights.append(values[place, column])
        source = torch.cat(sources)
        order = torch.argsort(source, stable=True)
        counts = torch.bincount(source, minlength=graph.items)
        yield SparseHistoryRanker(torch.cat(targets)[order], torch.cat(weights)[order], counts, histories)

    @classmethod
    def counts(cls, spec: ItemKnnSpec, graph: Graph) -> SolveCounts:
        """Common users of all pairs of items, block by block, and what is kept of them."""
        kept = graph.items * min(spec.neighbours, graph.items)
        block = ITEMS_AT_ONCE * (4 * graph.items + graph.users)
        return SolveCounts(
            flops=2.0 * graph.edges * graph.items,
            parameters=kept,
            peak_bytes=block * ID_BYTES + kept * 2 * (FLOAT_BYTES + 2 * ID_BYTES),
        )
