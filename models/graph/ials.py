"""Implicit ALS (Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008).

Loss and defaults follow Rendle, Krichene, Zhang and Koren, "Revisiting the Performance of iALS on Item Recommendation
Benchmarks", RecSys 2022.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from shunter.models.graph.ranker import Ranker, VectorRanker
from shunter.models.graph.solved import SolveCounts, SolvedModel
from shunter.models.graph.spec import Graph, GraphSpec, Range, Searched

INITIAL_DEVIATION = 0.1  # standard deviation of an initial score; a vector's values have this over root of the width
SOLVED_AT_ONCE = 1_024  # nodes whose matrices are in memory at the same time
GATHERED_AT_ONCE = 2**17  # vectors of the other side gathered for a batch of more than one node
FLOAT_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class IalsSpec(GraphSpec):
    """Configuration of implicit ALS.

    Attributes:
        embedding_dim: Width of the vectors.
        relative_regularization: Factor of the squared vectors in the loss. It is multiplied by the total weight of each
            node's terms and by the `strength` of the graph, so that one value suits dense and sparse logs. The default
            was chosen on Amazon Video Games, its 10-core subset, and the positive rows of Frappe.
        unobserved_weight: Weight of every (user, item) pair in the loss as a negative.
    """

    family: ClassVar[str] = "ials"
    searched: ClassVar[Searched] = {
        "embedding_dim": (32, 64, 128),
        "relative_regularization": Range(0.002, 0.2),
        "unobserved_weight": Range(0.03, 3.0),
    }
    points: ClassVar[tuple[Mapping[str, float], ...]] = (
        {"relative_regularization": 0.02, "unobserved_weight": 0.3},
        {"relative_regularization": 0.01, "unobserved_weight": 0.03},
    )

    embedding_dim: int = 64
    relative_regularization: float = 0.015
    unobserved_weight: float = 0.1


class Ials(SolvedModel[IalsSpec]):
    """A vector for each user and item, found by alternating least squares.

    The loss is `sum over chosen (u, i) of (w_u h_i - 1)^2 + a * sum over all (u, i) of (w_u h_i)^2 + regularisation`
    (equations 1 to 4). In the regularisation, the square of a user's vector has the weight
    `regularization * (chosen items + a * items)`, and that of an item likewise (equation 5 with exponent 1).
    `regularization` is `relative_regularization` times the `strength` of the graph.
    """

    spec_class = IalsSpec
    is_iterative = True

    @classmethod
    def rankers(cls, spec: IalsSpec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """Yield a ranker after each pass over users and items, endlessly."""
        weight = spec.unobserved_weight
        regularization = spec.relative_regularization * strength(graph, weight)
        random = torch.Generator().manual_seed(seed)
        deviation = INITIAL_DEVIATION / spec.embedding_dim**0.5
        items = deviation * torch.randn(graph.items, spec.embedding_dim, generator=random)
        items[0] = 0.0  # the unknown item has no information
        items = items.to(device)
        degrees = [torch.from_numpy(counts).to(device) for counts in (graph.user_degrees(), graph.item_degrees())]
        of_users = _neighbours(graph.edge_users, graph.edge_items, device)
        of_items = _neighbours(graph.edge_items, graph.edge_users, device)
        while True:
            users = solve_side(items, of_users, degrees[0], unobserved_weight=weight, regularization=regularization)
            items = solve_side(users, of_items, degrees[1], unobserved_weight=weight, regularization=regularization)
            yield VectorRanker(users, items, *degrees)

    @classmethod
    def counts(cls, spec: IalsSpec, graph: Graph) -> SolveCounts:
        """Count one pass: each node solves a linear system of size min(its edges, `embedding_dim`) by factorisation."""
        nodes, width = graph.users + graph.items, spec.embedding_dim
        degrees = np.concatenate([graph.user_degrees(), graph.item_degrees()]).astype(float)
        sizes = np.minimum(degrees, width)
        gathered = max(GATHERED_AT_ONCE, graph.users, graph.items)
        return SolveCounts(
            flops=float((2 * degrees * sizes * width + sizes**3 / 3).sum()),
            parameters=nodes * width,
            peak_bytes=FLOAT_BYTES * (4 * nodes * width + 3 * SOLVED_AT_ONCE * width**2 + gathered * width)
            + 32 * (graph.edges + gathered),
        )


def strength(graph: Graph, unobserved_weight: float) -> float:
    """Return an upper limit of the regularisation, beyond which nothing is learned from a graph.

    For small vectors, a pass multiplies the vectors by a matrix M and divides them by the regularisation. M is the
    adjacency matrix, normalised by the square roots of the total term weights of user and item. A singular direction of
    M is therefore learned only if its singular value exceeds the regularisation. The result is the Frobenius norm of M,
    which is an upper bound of all singular values.

    Args:
        graph: Users, items and edges.
        unobserved_weight: Weight of every (user, item) pair in the loss as a negative.
    """
    users = graph.user_degrees() + unobserved_weight * graph.items
    items = graph.item_degrees() + unobserved_weight * graph.users
    return float(np.sqrt((1 / (users[graph.edge_users] * items[graph.edge_items])).sum()))


def solve_side(
    others: Tensor, neighbours: Tensor, degrees: Tensor, *, unobserved_weight: float, regularization: float
) -> Tensor:
    """Return the vectors of one side that minimise the loss with the other side fixed; zero without edges.

    Args:
        others: Vectors of the other side, `[others, dim]`; those of unknown nodes are zero.
        neighbours: Neighbours of each node on the other side, node by node, `[edges]`.
        degrees: Number of neighbours of each node, `[nodes]`.
        unobserved_weight: Weight of every (user, item) pair in the loss as a negative.
        regularization: Factor of the squared vectors in the loss, times the total weight of each node's terms.
    """
    all_pairs = unobserved_weight * (others.T @ others)
    spectrum, axes = (part.to(others.dtype) for part in torch.linalg.eigh(all_pairs.double()))
    decay = regularization * (degrees + unobserved_weight * len(others))
    nothing = len(others)  # index of a zero vector that pads the histories of a batch
    others = torch.cat([others @ axes, others.new_zeros(1, others.shape[1])])
    found = others.new_zeros(len(degrees), others.shape[1])
    starts = degrees.cumsum(0) - degrees
    for nodes in _batches(degrees):
        places = torch.arange(int(degrees[nodes[0]]), device=others.device)
        is_own = places < degrees[nodes, None]
        rows = (starts[nodes, None] + places)[is_own]
        chosen = torch.full(is_own.shape, nothing, device=others.device).masked_scatter_(is_own, neighbours[rows])
        found[nodes] = _least_squares(others[chosen], spectrum.clamp(min=0.0) + decay[nodes, None])
    return found @ axes.T


def _least_squares(vectors: Tensor, diagonals: Tensor) -> Tensor:
    """Compute `(diagonal + V^T V)^-1 V^T 1` of each node: `[nodes, edges, dim]` and `[nodes, dim]` to `[nodes, dim]`.

    With fewer edges than dimensions the Woodbury identity gives the same result from a smaller matrix:
    `diagonal^-1 V^T (1 + V diagonal^-1 V^T)^-1 1`.
    """
    if vectors.shape[1] >= vectors.shape[2]:
        factors = torch.linalg.cholesky(torch.baddbmm(diagonals.diag_embed(), vectors.mT, vectors))
        return torch.cholesky_solve(vectors.sum(1, keepdim=True).mT, factors).squeeze(2)
    scaled = vectors / diagonals[:, None]
    ones = vectors.new_ones(*vectors.shape[:2], 1)
    factors = torch.linalg.cholesky(torch.baddbmm(ones.squeeze(2).diag_embed(), scaled, vectors.mT))
    return (scaled.mT @ torch.cholesky_solve(ones, factors)).squeeze(2)


def _batches(degrees: Tensor) -> Iterator[Tensor]:
    """Yield batches of nodes with edges, in descending order of edges, so that a batch has similar numbers of edges."""
    order = degrees.argsort(descending=True, stable=True)
    counts = degrees[order].tolist()
    first = 0
    while first < len(counts) and counts[first]:
        size = min(SOLVED_AT_ONCE, max(1, GATHERED_AT_ONCE // counts[first]))
        batch = order[first : first + size]
        yield batch[degrees[batch] > 0]
        first += size


def _neighbours(own: np.ndarray, others: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(others[np.argsort(own, kind="stable")]).to(device)
