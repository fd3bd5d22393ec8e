"""Logistic regression: one weight for each id and each dense feature (Richardson et al., WWW 2007).

The baseline of click prediction: what a deeper model does not win over it, it does not win by its depth.
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
    """A logistic regression; of a row of `embedding_dim` numbers it uses one for each task."""

    family: ClassVar[str] = "lr"

    embedding_dim: int = 4
    bottom_widths: tuple[int, ...] = ()
    top_widths: tuple[int, ...] = ()


class LrLayers(nn.Module):
    """All of a logistic regression but its tables: `logit = b + sum_d w_d x_d + sum_i w_i` over the ids of a sample.

    The weight of an id is the first number of its row, and with several tasks, which are regressions of their own, the
    first few. The kernels have no rows of fewer than four numbers; the others stay as they were drawn.

    Args:
        spec: Width of the rows.
        features: Features that come in.
    """

    def __init__(self, spec: LrSpec, features: Features) -> None:
        super().__init__()
        check_no_hidden_layers(spec)
        self.tasks = features.outputs
        if self.tasks > spec.embedding_dim:
            raise RequestError(
                f"A row of {spec.embedding_dim} numbers has no weight for each of {self.tasks} labels: use "
                f"embedding_dim = {-(-self.tasks // 4) * 4}."
            )
        self.linear = LinearTerm(spec, features)

    def forward(self, dense: Tensor, pooled: Tensor) -> Tensor:
        """`[batch, dense features]` and `[batch, tables, dim]` to logits as `models.families.family.Family` says."""
        return (self.linear(dense) + pooled[:, :, : self.tasks].sum(1)).squeeze(1)


# In a row the first number has a meaning of its own, so the tables are all of one width.
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
