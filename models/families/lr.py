"""Logistic regression: one weight for each id and each dense feature (Richardson et al., WWW 2007).

A baseline of click prediction: it shows how much a deeper model gains.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.models.families.family import Family
from shunter.models.families.linear import LinearTerm, check_no_hidden_layers
from shunter.models.spec import Features, ModelSpec


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

    Args:
        spec: Width of the rows.
        features: Input features.
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
