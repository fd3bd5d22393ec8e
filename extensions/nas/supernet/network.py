"""The super-net of a DLRM: tables, MLPs and interactions in every form that an architecture may take."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from shunter.extensions.nas.supernet.cost_table import CostTable
from shunter.extensions.nas.supernet.masks import Choices, Masks
from shunter.extensions.nas.supernet.mlp import SuperMlp, mixed
from shunter.extensions.nas.supernet.space import INTERACTION, Architecture, Coding, SupernetSpace
from shunter.extensions.nas.supernet.tables import SuperTables, dim_choice, share_choice
from shunter.models.embeddings.request import Kernel
from shunter.models.interactions import DlrmInteraction, dlrm_interaction, pair_count
from shunter.models.layers import initialise_linear
from shunter.models.registry import check_spec
from shunter.models.spec import Features


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


class Supernet(nn.Module):
    """Every architecture of a space in one model.

    Args:
        space: Space that is chosen from.
        features: Features that come in.
        seed: Seed of the initial weights.
        embedding_learning_rate: Step size of the tables, which update themselves in the backward pass.
        device: Device where the model shall lie.
        kernel: Library that does the lookups.

    Attributes:
        coding: Its choices by their names, and what they mean.
        choices: The logits theta.
        tables: The embeddings.
        layers: The other weights.
    """

    def __init__(
        self,
        space: SupernetSpace,
        features: Features,
        *,
        seed: int = 0,
        embedding_learning_rate: float = 0.02,
        device: str | torch.device = "cpu",
        kernel: Kernel = "auto",
    ) -> None:
        super().__init__()
        check_spec(space.base, features)
        self.space, self.features = space, features
        self.coding = Coding(space, features)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = _Layers(self.coding, features).to(device)
            self.choices = Choices(self.coding.sizes).to(device)
        self.tables = SuperTables(
            features,
            space.dims,
            space.shares,
            dim=space.base.embedding_dim,
            learning_rate=embedding_learning_rate,
            device=device,
            kernel=kernel,
        )
        self.tables.embeddings.initialise(torch.Generator().manual_seed(seed))

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor, masks: Masks) -> Tensor:
        """Score a batch with the architectures that the masks mix; see `shunter.models.recommender.Recommender`."""
        return self.layers(dense, self.tables(values, offsets, masks), masks)

    def expected_cost(self, masks: Masks, costs: CostTable) -> Tensor:
        """Mean cost of the architectures that the masks mix, `[batch]`; of one-hot masks that of their architecture."""
        return expected_cost(self.coding, masks, costs)

    def cost(self, architecture: Architecture, costs: CostTable) -> float:
        """Exact cost of an architecture."""
        return cost_of(architecture, self.coding, costs)


def expected_cost(coding: Coding, masks: Masks, costs: CostTable) -> Tensor:
    """As `Supernet.expected_cost`, without its weights."""
    total = masks[INTERACTION] @ masks.values.new_tensor(costs.interactions) + costs.base
    if coding.bottom:
        total = total + coding.bottom.expected_cost(masks, costs.bottom)
    total = total + coding.top.expected_cost(masks, costs.top)
    for table, of_table in enumerate(costs.tables):
        of_share = masks[dim_choice(table)] @ masks.values.new_tensor(of_table).t()
        total = total + (of_share * masks[share_choice(table)]).sum(1)
    return total


def cost_of(architecture: Architecture, coding: Coding, costs: CostTable) -> float:
    """As `Supernet.cost`, without its weights."""
    masks = Choices(coding.sizes).one_hot(coding.encode(architecture))
    return float(expected_cost(coding, replace(masks, values=masks.values.double()), costs))


class Inherited(nn.Module):
    """One architecture with the weights that it shares with all others of a super-net.

    Args:
        network: Super-net.
        architecture: An architecture of its space.
    """

    def __init__(self, network: Supernet, architecture: Architecture) -> None:
        super().__init__()
        self.network, self._picked = network, network.coding.encode(architecture)

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Score a batch; see `shunter.models.recommender.Recommender`."""
        return self.network(dense, values, offsets, self.network.choices.one_hot(self._picked, len(dense)))


class _Layers(nn.Module):
    """All of a super-net but its tables and its choices."""

    def __init__(self, coding: Coding, features: Features) -> None:
        super().__init__()
        space = coding.space
        dense, dim = len(features.dense), space.base.embedding_dim
        self.bottom = SuperMlp(coding.bottom, dense, dim, rectified=True) if coding.bottom else None
        bags = len(features.categorical)
        self.interaction = SuperInteraction(dim, bags + (1 if dense else 0), space.interactions)
        self.top_inputs = self.interaction.count + (dim if dense else bags * dim)
        self.top = SuperMlp(coding.top, self.top_inputs, features.outputs, rectified=False)

    def forward(self, dense: Tensor, pooled: Tensor, masks: Masks) -> Tensor:
        """`[batch, dense features]` and `[batch, bags, dim]` to logits, as `models.families.dlrm.DlrmLayers`."""
        beside, vectors = pooled.flatten(1), pooled
        if self.bottom is not None:
            beside = self.bottom(dense, masks).float()
            vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        met = self.interaction(vectors, masks[INTERACTION])
        return self.top(torch.cat([beside, met], dim=1), masks).squeeze(1)
