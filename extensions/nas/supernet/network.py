"""Super-net of a DLRM: tables, MLPs and interactions in every form that an architecture may have."""

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
    """Mixture of several interactions with separate weights; each returns one number for each pair of vectors.

    Args:
        dim: Width of the vectors.
        vectors: Number of vectors of a sample.
        names: Names of the interactions.

    Attributes:
        count: Number of outputs.
    """

    def __init__(self, dim: int, vectors: int, names: Sequence[DlrmInteraction]) -> None:
        super().__init__()
        self.count = pair_count(vectors)
        self.candidates = nn.ModuleList(dlrm_interaction(name, dim, vectors) for name in names)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                initialise_linear(module.weight, module.bias)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Map `[batch, vectors, dim]` and `[batch, interactions]` to `[batch, pairs]`."""
        return mixed([candidate(vectors) for candidate in self.candidates], mask)


class Supernet(nn.Module):
    """All architectures of a space in one model.

    Args:
        space: Space of the choices.
        features: Input features.
        seed: Seed of the initial weights.
        embedding_learning_rate: Step size of the tables, which are updated in the backward pass.
        device: Device of the model.
        kernel: Library of the lookups.

    Attributes:
        coding: Choices by name, and their meaning.
        choices: Logits theta.
        tables: Embedding tables.
        layers: All other weights.
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
        """Score a batch with the mixture given by the masks; see `shunter.models.recommender.Recommender`."""
        return self.layers(dense, self.tables(values, offsets, masks), masks)

    def expected_cost(self, masks: Masks, costs: CostTable) -> Tensor:
        """Return the mean cost of the mixed architectures, `[batch]`; for one-hot masks that of the architecture."""
        return expected_cost(self.coding, masks, costs)

    def cost(self, architecture: Architecture, costs: CostTable) -> float:
        """Return the exact cost of an architecture."""
        return cost_of(architecture, self.coding, costs)


def expected_cost(coding: Coding, masks: Masks, costs: CostTable) -> Tensor:
    """Return the same as `Supernet.expected_cost`, without needing its weights."""
    total = masks[INTERACTION] @ masks.values.new_tensor(costs.interactions) + costs.base
    if coding.bottom:
        total = total + coding.bottom.expected_cost(masks, costs.bottom)
    total = total + coding.top.expected_cost(masks, costs.top)
    for table, of_table in enumerate(costs.tables):
        of_share = masks[dim_choice(table)] @ masks.values.new_tensor(of_table).t()
        total = total + (of_share * masks[share_choice(table)]).sum(1)
    return total


def cost_of(architecture: Architecture, coding: Coding, costs: CostTable) -> float:
    """Return the same as `Supernet.cost`, without needing its weights."""
    masks = Choices(coding.sizes).one_hot(coding.encode(architecture))
    return float(expected_cost(coding, replace(masks, values=masks.values.double()), costs))


class Inherited(nn.Module):
    """One architecture with the super-net's shared weights.

    Args:
        network: Super-net.
        architecture: Architecture of its space.
    """

    def __init__(self, network: Supernet, architecture: Architecture) -> None:
        super().__init__()
        self.network, self._picked = network, network.coding.encode(architecture)

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Score a batch; see `shunter.models.recommender.Recommender`."""
        return self.network(dense, values, offsets, self.network.choices.one_hot(self._picked, len(dense)))


class _Layers(nn.Module):
    """All of a super-net except its tables and its choices."""

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
        """Map `[batch, dense features]` and `[batch, bags, dim]` to logits, as `models.families.dlrm.DlrmLayers`."""
        beside, vectors = pooled.flatten(1), pooled
        if self.bottom is not None:
            beside = self.bottom(dense, masks).float()
            vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        met = self.interaction(vectors, masks[INTERACTION])
        return self.top(torch.cat([beside, met], dim=1), masks).squeeze(1)
