"""EASE (Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch

from shunter.models.graph.history_rankers import DenseHistoryRanker, Histories
from shunter.models.graph.propagation import ITEMS_AT_ONCE, co_counts
from shunter.models.graph.ranker import Ranker
from shunter.models.graph.solved import SolveCounts, SolvedModel
from shunter.models.graph.spec import Graph, GraphSpec, Range, Searched

# Items above which the solution is in fp32: float64 is exacter where sums over users differ much from the
# regularisation, which is so on dense logs of few items, and would take thrice the memory.
MOST_ITEMS_IN_FLOAT64 = 16_384
FLOAT_BYTES, DOUBLE_BYTES = 4, 8


@dataclass(frozen=True, kw_only=True)
class EaseSpec(GraphSpec):
    """Configuration of EASE; the defaults are the paper's model.

    Attributes:
        regularization: Factor of the squared weights in the loss, called lambda in the paper; above 0.
        dropout: Probability of dropping an item from the input that predicts the others, at least 0 and below 1
            (EDLAE); frequent items are regularised most.
        user_exponent: The weight of a user in the loss is proportional to `(number of items) ** -user_exponent`, with
            a mean of 1 over edges. At 0, users with long histories dominate, although a ranking is evaluated by the
            mean over users.
    """

    family: ClassVar[str] = "ease"
    searched: ClassVar[Searched] = {
        "regularization": Range(10.0, 10_000.0),
        "dropout": (0.0, 0.15, 0.3, 0.5),
        "user_exponent": (0.0, 0.25, 0.5, 0.75, 1.0),
    }
    points: ClassVar[tuple[Mapping[str, float], ...]] = tuple(
        {"regularization": regularization, "dropout": 0.3, "user_exponent": 0.5}
        for regularization in (500.0, 150.0, 1_500.0)
    )

    regularization: float = 500.0
    dropout: float = 0.0
    user_exponent: float = 0.0


class Ease(SolvedModel[EaseSpec]):
    """Linear map from the items of a user to scores of all items, where no item predicts itself.

    `B = argmin |X - X B|^2 + lambda |B|^2` with a zero diagonal has a closed form (section 3, equation 8): with
    `P = (X^T X + lambda)^-1`, the weight from item i to item j is `-P_ij / P_jj`. With user weights W, `X^T X` becomes
    `X^T W X`. Dropout with probability p adds `p / (1 - p)` times the diagonal of `X^T X` to lambda (Steck,
    "Autoencoders that don't overfit towards the Identity", NeurIPS 2020, section 3).
    """

    spec_class = EaseSpec
    sparse_form, low_rank_form = "itemknn", "ials"

    @classmethod
    def rankers(cls, spec: EaseSpec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """Yield one ranker, computed by one matrix inversion."""
        degrees = torch.from_numpy(graph.user_degrees()).double().clamp(min=1)
        weights = degrees**-spec.user_exponent
        weights = (weights * graph.edges / weights[torch.from_numpy(graph.edge_users)].sum()).float().to(device)
        dtype = torch.float64 if graph.items <= MOST_ITEMS_IN_FLOAT64 else torch.float32
        gram = torch.empty(graph.items, graph.items, dtype=dtype, device=device).mT  # in LAPACK's order: in place
        for some, counts in co_counts(graph, device, user_weights=weights):
            gram[:, some[0] : some[-1] + 1] = counts
        gram.diagonal().mul_(1 / (1 - spec.dropout)).add_(spec.regularization)
        torch.linalg.cholesky(gram, out=gram)
        inverse = torch.cholesky_inverse(gram, out=gram).mT  # symmetric
        del gram
        weights = inverse.div_(-inverse.diagonal().clone()).float()
        del inverse
        weights.fill_diagonal_(0.0)
        yield DenseHistoryRanker(weights, Histories.of(graph, device))

    @classmethod
    def counts(cls, spec: EaseSpec, graph: Graph) -> SolveCounts:
        """Count FLOPs, weights and memory: a matrix of all item pairs, its inversion in place, and an fp32 copy."""
        cells = graph.items**2
        solved_bytes = DOUBLE_BYTES if graph.items <= MOST_ITEMS_IN_FLOAT64 else FLOAT_BYTES
        block_bytes = 2 * FLOAT_BYTES * (graph.users + graph.items) * min(graph.items, ITEMS_AT_ONCE)
        return SolveCounts(
            flops=2.0 * graph.edges * graph.items + cells * graph.items,
            parameters=cells,
            peak_bytes=(solved_bytes + FLOAT_BYTES) * cells + block_bytes,
        )
