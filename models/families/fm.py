"""Second-order factorisation machine (Rendle, ICDM 2010): logistic regression plus a product for each pair."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.families.linear import LinearTerm, check_no_hidden_layers
from shunter.models.layers import normal_parameter
from shunter.models.output_layer import full_precision
from shunter.models.spec import Features, ModelSpec


@dataclass(frozen=True, kw_only=True)
class FmSpec(ModelSpec):
    """Configuration of a factorisation machine; a row of `embedding_dim` numbers has an id's factors and weights."""

    family: ClassVar[str] = "fm"

    bottom_widths: tuple[int, ...] = ()
    top_widths: tuple[int, ...] = ()


class FmLayers(nn.Module):
    """All layers of a factorisation machine above the tables.

    Equation 1 of the paper is `logit = b + sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j`, over the ids of a sample,
    with `x` = 1, and the dense features. A table row contains the factors `v` of an id, followed by its weight `w`, or
    by one weight for each of several tasks. The sum over pairs is that of lemma 3.1,
    `((sum_i v_i)^2 - sum_i v_i^2) / 2` summed over the factors. The vectors of a bag of ids are summed, so a bag counts
    as one feature.

    Several tasks share the factors; each multiplies them by its own learned weights, which are initially 1.

    Args:
        spec: Width of the rows.
        features: Input features.
    """

    def __init__(self, spec: FmSpec, features: Features) -> None:
        super().__init__()
        check_no_hidden_layers(spec)
        self.tasks = features.outputs
        factors = spec.embedding_dim - self.tasks
        if factors < 1:
            raise RequestError(
                f"Embedding rows of {spec.embedding_dim} numbers leave no factors beside one weight for "
                f"each of {self.tasks} labels: use a larger embedding_dim."
            )
        self.linear = LinearTerm(spec, features)
        self.pairs = PairSum(len(features.dense), factors, self.tasks)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        factors, weights = pooled[:, :, : -self.tasks], pooled[:, :, -self.tasks :]
        return (self.linear(dense) + weights.sum(1) + self.pairs(dense, factors)).squeeze(1)


class PairSum(nn.Module):
    """Sum of the products of all pairs of features: the second-order term of a factorisation machine.

    Args:
        dense: Number of dense features. Each has a factor vector of its own, initialised from a normal distribution
            with standard deviation 0.01.
        factors: Length of a factor vector.
        tasks: Number of tasks that share the factor vectors.
    """

    def __init__(self, dense: int, factors: int, tasks: int) -> None:
        super().__init__()
        self.factors = normal_parameter(dense, factors, deviation=0.01) if dense else None
        self.task_weights = nn.Parameter(torch.ones(tasks, factors)) if tasks > 1 else None

    def forward(self, dense: Tensor, factors: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, factors]` to `[batch, tasks]`."""
        with full_precision(factors):
            total, squares = factors.sum(1), factors.square().sum(1)
            if self.factors is not None:
                total = total + dense.float() @ self.factors
                squares = squares + dense.float().square() @ self.factors.square()
            pairs = (total.square() - squares) / 2
            return pairs.sum(1, keepdim=True) if self.task_weights is None else pairs @ self.task_weights.t()


FM = Family(
    spec=FmSpec,
    layers=FmLayers,
    learned_with={
        "dense_learning_rate": 0.01,
        "embedding_learning_rate": 0.02,
        "embedding_l2": 1e-4,
        "embedding_initial_bound": 0.02,
    },
)
