"""EASE (Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from models.graph.history_rankers import DenseHistoryRanker, Histories
from models.graph.propagation import co_counts
from models.graph.ranker import Ranker
from models.graph.solved import SolveCounts, SolvedModel
from models.graph.spec import Graph, GraphSpec, Range, Searched

BYTES = 8  # of a number while it is solved: the sums of many users are far from the regularisation


@dataclass(frozen=True, kw_only=True)
class EaseSpec(GraphSpec):
    """An EASE.

    Attributes:
        regularization: Share of the squared weights in the loss, called lambda in the paper; above 0.
    """

    family: ClassVar[str] = "ease"
    searched: ClassVar[Searched] = {"regularization": Range(10.0, 10_000.0)}
    points: ClassVar[tuple[Mapping[str, float], ...]] = ({"regularization": 150.0}, {"regularization": 1_500.0})

    regularization: float = 500.0


class Ease(SolvedModel[EaseSpec]):
    """The linear map from what a user chose to what they chose, in which no item may name itself.

    `B = argmin |X - X B|^2 + lambda |B|^2` with a zero diagonal has a closed form (section 3, equation 8): with
    `P = (X^T X + lambda)^-1`, the weight from item i to item j is `-P_ij / P_jj`.
    """

    spec_class = EaseSpec
    cheaper = "itemknn, which keeps some neighbours of each item, or ials, which keeps vectors"

    @classmethod
    def rankers(cls, spec: EaseSpec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """One, from one inversion."""
        gram = torch.cat([block.double() for _, block in co_counts(graph, device)], dim=1)
        gram.diagonal().add_(spec.regularization)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        del gram
        weights = (inverse / -inverse.diagonal()).float()
        del inverse
        weights.fill_diagonal_(0.0)
        yield DenseHistoryRanker(weights, Histories.of(graph, device))

    @classmethod
    def counts(cls, spec: EaseSpec, graph: Graph) -> SolveCounts:
        """A factorisation and an inversion of items times items; three such matrices at a time."""
        cells = graph.items**2
        return SolveCounts(
            flops=2.0 * graph.edges * graph.items + cells * graph.items,
            parameters=cells,
            peak_bytes=3 * cells * BYTES,
        )
