"""Item-based nearest neighbours (Deshpande and Karypis, "Item-Based Top-N Recommendation Algorithms", TOIS 2004)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from shunter.models.graph.history_rankers import Histories, SparseHistoryRanker
from shunter.models.graph.propagation import ITEMS_AT_ONCE
from shunter.models.graph.ranker import Ranker
from shunter.models.graph.solved import SolveCounts, SolvedModel
from shunter.models.graph.spec import Graph, GraphSpec, Searched

FLOAT_BYTES, ID_BYTES = 4, 8
PAIR_BYTES = 8 * ID_BYTES  # of a pair: count, similarity and ids, a copy without self-pairs, and the sort order


@dataclass(frozen=True, kw_only=True)
class ItemKnnSpec(GraphSpec):
    """Configuration of item-kNN.

    Attributes:
        neighbours: Number of most similar items that score an item.
        shrinkage: Value added to the denominator of the similarity, so that few common users count less.
    """

    family: ClassVar[str] = "itemknn"
    searched: ClassVar[Searched] = {"neighbours": (20, 50, 100, 200, 400), "shrinkage": (0.0, 10.0, 50.0, 200.0)}
    points: ClassVar[tuple[Mapping[str, float], ...]] = ({"neighbours": 400}, {"shrinkage": 50.0})

    neighbours: int = 100
    shrinkage: float = 0.0


class ItemKnn(SolvedModel[ItemKnnSpec]):
    """Scores an item by the sum of its similarities to those items of the user's history that are its neighbours.

    The similarity is the cosine, `users of both / (sqrt(users of one * users of the other) + shrinkage)`.
    """

    spec_class = ItemKnnSpec

    @classmethod
    def rankers(cls, spec: ItemKnnSpec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """Yield one ranker, from one count of common users."""
        from scipy.sparse import csr_array  # imported here, since it takes long to load

        ones = np.ones(graph.edges, np.float32)
        chosen = csr_array((ones, (graph.edge_users, graph.edge_items)), shape=(graph.users, graph.items))
        choosers = chosen.T.tocsr()
        roots = np.sqrt(graph.item_degrees().astype(np.float32))
        found = []
        for first in range(0, graph.items, ITEMS_AT_ONCE):
            common = choosers[first : first + ITEMS_AT_ONCE] @ chosen
            common.sort_indices()
            items, others = first + np.repeat(np.arange(common.shape[0]), np.diff(common.indptr)), common.indices
            similar = common.data / np.maximum(roots[items] * roots[others] + spec.shrinkage, 1.0)
            is_other = items != others
            found.append(_nearest(items[is_other], others[is_other], similar[is_other], spec.neighbours))
        items, sources, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(sources, kind="stable")
        counts = np.bincount(sources, minlength=graph.items)
        targets, kept, counts = (torch.from_numpy(one).to(device) for one in (items[order], weights[order], counts))
        yield SparseHistoryRanker(targets, kept, counts, Histories.of(graph, device))

    @classmethod
    def counts(cls, spec: ItemKnnSpec, graph: Graph) -> SolveCounts:
        """Count pairs of items of each user, block by block, and the kept pairs."""
        kept = graph.items * min(spec.neighbours, graph.items)
        meetings = float((graph.user_degrees().astype(float) ** 2).sum())
        pairs = int(min(ITEMS_AT_ONCE * graph.items, meetings))  # of a block
        return SolveCounts(
            flops=2.0 * meetings,
            parameters=kept,
            peak_bytes=pairs * PAIR_BYTES + kept * 2 * (FLOAT_BYTES + 2 * ID_BYTES),
        )


def _nearest(
    items: np.ndarray, others: np.ndarray, similar: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the `most` similar others of each item, equal ones by id; pairs must be in the order of the items."""
    order = np.argsort(items - 0.5 * similar.astype(np.float64), kind="stable")  # no similarity is above 1
    counts = np.bincount(items, minlength=1)
    rank = np.arange(len(items)) - np.repeat(counts.cumsum() - counts, counts)
    kept = order[rank < most]
    return items[kept], others[kept], similar[kept]
