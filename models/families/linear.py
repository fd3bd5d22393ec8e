"""Families without hidden layers: logistic regression, and the second-order factorisation machine.

Logistic regression has one weight for each id and each dense feature (Richardson et al., WWW 2007). It is a baseline of
click prediction, which shows how much a deeper model gains. A factorisation machine adds a product for each pair
(Rendle, ICDM 2010).
"""

from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.layers import normal_parameter
from shunter.models.number_bins import NumberBins
from shunter.models.output_layer import full_precision
from shunter.models.spec import Features, ModelSpec

HIDDEN_OPTIONS = ("bottom_widths", "top_widths", "dropout", "batch_norm", "task_tower_width")


class LinearTerm(nn.Module):
    """Linear term for each task: a weight for each dense feature (or each share of its bins), and a bias.

    Weights and biases are initially zero, and stay in float32 under autocast.

    Args:
        spec: Configuration; only `numeric_bins` is used.
        features: Input features.
    """

    def __init__(self, spec: ModelSpec, features: Features) -> None:
        super().__init__()
        count = len(features.dense) * (1 + spec.numeric_bins)
        self.bins = NumberBins(len(features.dense), spec.numeric_bins) if count and spec.numeric_bins else None
        self.weight = nn.Parameter(torch.zeros(features.outputs, count)) if count else None
        self.bias = nn.Parameter(torch.zeros(features.outputs))

    def forward(self, dense: Tensor) -> Tensor:
        """Map `[batch, dense features]` to `[batch, tasks]`."""
        if self.weight is None:
            return self.bias.expand(dense.shape[0], -1)
        with full_precision(dense):
            numbers = dense.float() if self.bins is None else self.bins(dense)
            return nn.functional.linear(numbers, self.weight, self.bias)


def check_no_hidden_layers(spec: ModelSpec) -> None:
    """Raise if an option of hidden layers is set, so that no option is silently ignored.

    Raises:
        RequestError: An option of hidden layers differs from its default.
    """
    defaults = {option.name: option.default for option in fields(spec)}
    for name in HIDDEN_OPTIONS:
        if getattr(spec, name) != defaults[name]:
            raise RequestError(
                f"The option {name} has no effect in a model of family {spec.family!r}, which has no "
                "hidden layers: leave it out."
            )


@dataclass(frozen=True, kw_only=True)
class LrSpec(ModelSpec):
    """Configuration of logistic regression; only one number per task of a row of `embedding_dim` numbers is used."""

    family: ClassVar[str] = "lr"

    embedding_dim: int = 4
    bottom_widths: tuple[int, ...] = ()
    top_widths: tuple[int, ...] = ()


class LrLayers(nn.Module):
    """All layers of logistic regression above the tables: `logit = b + sum_d w_d x_d + sum_i w_i` over a sample's ids.

    The weight of an id is the first number of its row; several tasks, which are separate regressions, use the first few
    numbers. The kernels need rows of at least four numbers; the unused ones keep their initial values.
    """

    def __init__(self, spec: LrSpec, features: Features) -> None:
        super().__init__()
        check_no_hidden_layers(spec)
        self.tasks = features.outputs
        if self.tasks > spec.embedding_dim:
            raise RequestError(
                f"Embedding rows of {spec.embedding_dim} numbers are too narrow for one weight for each of "
                f"{self.tasks} labels: use embedding_dim = {-(-self.tasks // 4) * 4}."
            )
        self.linear = LinearTerm(spec, features)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """Map `[batch, dense features]` and `[batch, tables, dim]` to logits, see `models.families.family.Family`."""
        return (self.linear(dense) + pooled[:, :, : self.tasks].sum(1)).squeeze(1)


# The first number of a table row is a weight, so all tables must have the same width.
LR = Family(
    spec=LrSpec,
    layers=LrLayers,
    dims=(4,),
    learned_with={
        "dense_learning_rate": 0.01,
        "embedding_learning_rate": 0.03,
        "embedding_l2": 1e-4,
        "embedding_initial_bound": 1e-4,
    },
)


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
