"""The interactions of a super-net: all that a DLRM may have, side by side over the same vectors."""

from collections.abc import Sequence

from torch import Tensor, nn

from shunter.models.interactions import DlrmInteraction, dlrm_interaction, pair_count
from shunter.models.layers import initialise_linear
from shunter.models.supernet.mlp import mixed


class SuperInteraction(nn.Module):
    """The mixture of several interactions, each with weights of its own; all give a number for each pair of vectors.

    Args:
        dim: Width of the vectors.
        vectors: Vectors of a sample.
        names: Names of the interactions.

    Attributes:
        count: Numbers that go out.
    """

    def __init__(self, dim: int, vectors: int, names: Sequence[DlrmInteraction]) -> None:
        super().__init__()
        self.count = pair_count(vectors)
        self.candidates = nn.ModuleList(dlrm_interaction(name, dim, vectors) for name in names)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                initialise_linear(module.weight, module.bias)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """`[batch, vectors, dim]` and `[batch, interactions]` to `[batch, pairs]`."""
        return mixed([candidate(vectors) for candidate in self.candidates], mask)
