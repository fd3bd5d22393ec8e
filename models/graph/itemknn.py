"""Item-based nearest neighbours (Deshpande and Karypis, "Item-Based Top-N Recommendation Algorithms", TOIS 2004)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch

from shunter.models.graph.history_rankers import Histories, SparseHistoryRanker
from shunter.models.graph.ranker import Ranker
from shunter.models.graph.solved import SolveCounts, SolvedModel
from shunter.models.graph.spec import Graph, GraphSpec, Searched

# Pairs of items that meet in a user's history, of a block of items whose similarities are computed together.
MEETINGS_AT_ONCE = 4_000_000
SAMPLED_ITEMS = 256  # whose pairs are counted to estimate the memory
# Bytes, as measured: of a pair of a block, with what selects the nearest; of a kept pair while blocks are computed, and
# when all are put together and ordered; of an edge.
BLOCK_PAIR_BYTES, KEPT_PAIR_BYTES, ORDERED_PAIR_BYTES, EDGE_BYTES = 33, 12, 42, 16


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
    """Model that scores an item by the sum of its similarities to those of its neighbours that the user has chosen.

    The similarity is the cosine, `users of both / (sqrt(users of one * users of the other) + shrinkage)`.
    """

    spec_class = ItemKnnSpec

    @classmethod
    def rankers(cls, spec: ItemKnnSpec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """Yield one ranker, computed from the number of common users of each pair of items."""
        chosen, choosers = _incidence(graph)
        roots = np.sqrt(graph.item_degrees().astype(np.float32))
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for first, last in pairwise(_blocks(graph)):
            common = choosers[first:last] @ chosen
            common.sort_indices()
            items, others, lengths = np.arange(first, last, dtype=np.int32), common.indices, np.diff(common.indptr)
            scale = roots[others]
            scale *= np.repeat(roots[first:last], lengths)
            scale += np.float32(spec.shrinkage)
            similar = np.divide(common.data, np.maximum(scale, 1.0, out=scale), out=common.data)
            similar[np.repeat(items, lengths) == others] = -1.0  # an item is no neighbour of itself
            del scale
            is_kept = _nearest(similar, common.indptr, spec.neighbours)
            found.append((np.repeat(items, lengths)[is_kept], others[is_kept], similar[is_kept]))
        targets, sources, weights = (np.concatenate(parts) for parts in zip(*found, strict=True))
        del found
        order = np.argsort(sources, kind="stable")
        counts = np.bincount(sources, minlength=graph.items)
        targets, weights, counts = (
            torch.from_numpy(one).to(device) for one in (targets[order], weights[order], counts)
        )
        yield SparseHistoryRanker(targets, weights, counts, Histories.of(graph, device))

    @classmethod
    def counts(cls, spec: ItemKnnSpec, graph: Graph) -> SolveCounts:
        """Count FLOPs by the item pairs of each user; estimate memory and kept pairs from sampled items."""
        meetings = _meetings(graph)
        sample = np.linspace(0, graph.items - 1, min(SAMPLED_ITEMS, graph.items)).astype(np.int64)
        chosen, choosers = _incidence(graph)
        distinct = np.diff((choosers[sample] @ chosen).indptr)
        share = distinct.sum() / max(1, np.minimum(meetings[sample], graph.items).sum())
        bounds = np.append(0, np.minimum(meetings, graph.items).cumsum())
        pairs = share * max(bounds[last] - bounds[first] for first, last in pairwise(_blocks(graph)))
        kept = int(np.minimum(np.maximum(distinct - 1, 0), spec.neighbours).mean() * graph.items)
        return SolveCounts(
            flops=2.0 * float(meetings.sum()),
            parameters=kept,
            peak_bytes=max(int(pairs * BLOCK_PAIR_BYTES) + kept * KEPT_PAIR_BYTES, kept * ORDERED_PAIR_BYTES)
            + graph.edges * EDGE_BYTES,
        )


def _incidence(graph: Graph) -> tuple[Any, Any]:
    """Return the user-item matrix of interactions and its transpose, as scipy sparse matrices of ones."""
    from scipy.sparse import csr_array  # imported here, since it takes long to load

    ones = np.ones(graph.edges, np.float32)
    chosen = csr_array((ones, (graph.edge_users, graph.edge_items)), shape=(graph.users, graph.items))
    return chosen, chosen.T.tocsr()


def _meetings(graph: Graph) -> np.ndarray:
    """Return for each item the sum of its users' numbers of items, an upper limit of its item pairs, `[items]`."""
    degrees = graph.user_degrees()[graph.edge_users]
    return np.bincount(graph.edge_items, weights=degrees, minlength=graph.items).astype(np.int64)


def _blocks(graph: Graph) -> list[int]:
    """Divide the items into blocks with about equal numbers of pairs; return each first item, and the item count."""
    before = np.minimum(_meetings(graph), graph.items).cumsum()
    numbers = np.append(0, before[:-1]) // MEETINGS_AT_ONCE
    return [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), graph.items]


def _nearest(similar: np.ndarray, starts: np.ndarray, most: int) -> np.ndarray:
    """Return the mask of the `most` most similar pairs `[pairs]` of each item; among equal pairs, the first ones.

    `starts` has the first pair of each item and the number of pairs, `[items + 1]`. No negative similarity is kept.
    """
    lengths = np.diff(starts)
    least = np.zeros(len(lengths), np.float32)
    for item in np.flatnonzero(lengths > most).tolist():
        least[item] = np.partition(similar[starts[item] : starts[item + 1]], -most)[-most]
    bound = np.repeat(np.maximum(least, 0.0), lengths)
    is_above, is_equal = similar > bound, similar == bound
    left = most - np.add.reduceat(np.append(is_above, False), starts[:-1], dtype=np.int32) * (lengths > 0)
    equals = np.cumsum(is_equal, dtype=np.int32)
    before = np.append(np.int32(0), equals)[starts[:-1]]
    return is_above | (is_equal & (equals - np.repeat(before, lengths) <= np.repeat(left.astype(np.int32), lengths)))
