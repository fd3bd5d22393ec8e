"""The super-net of a DLRM: tables, MLPs and interactions in every form that an architecture may take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.embeddings import Kernel
from models.registry import check_spec
from models.spec import DlrmInteraction, Features, ModelSpec
from models.supernet.costs import CostTable
from models.supernet.interactions import SuperInteraction
from models.supernet.masks import Choices, Masks
from models.supernet.mlp import SuperMlp
from models.supernet.paths import MlpPaths
from models.supernet.tables import SuperTables, dim_choice, share_choice

INTERACTION = "interaction"
Layers = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One architecture of a super-net.

    Attributes:
        bottom: hidden width of each layer over the dense features, 0 where it is left out.
        top: the same of the layers over the interaction.
        interaction: name of what the vectors meet in.
        dims: width of each table.
        shares: share of the ids of each table that have a row of their own.
    """

    bottom: tuple[int, ...]
    top: tuple[int, ...]
    interaction: DlrmInteraction
    dims: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class SupernetSpace:
    """What a super-net chooses from; each attribute like that of `Architecture`, with candidates instead of a value.

    Attributes:
        base: what all architectures have in common: `embedding_dim`, the width of the vectors that meet, at least that
            of the widest table.
        bottom: widths of each layer over the dense features, with 0 where it may be left out; empty without any.
        top: the same of the layers over the interaction.
        interactions: names.
        dims: widths of each table.
        shares: shares of each table.
    """

    base: ModelSpec
    bottom: Layers
    top: Layers
    interactions: tuple[DlrmInteraction, ...]
    dims: tuple[tuple[int, ...], ...]
    shares: tuple[tuple[float, ...], ...]

    def spec(self, architecture: Architecture) -> ModelSpec:
        """The same architecture as a model that is trained by itself."""
        return replace(
            self.base,
            bottom_widths=tuple(width for width in architecture.bottom if width),
            top_widths=tuple(width for width in architecture.top if width),
            interaction=architecture.interaction,
            table_dims=architecture.dims,
            table_shares=architecture.shares,
        )


class Supernet(nn.Module):
    """Every architecture of a space in one model.

    Args:
        space: what is chosen from.
        features: the input.
        seed: of the initial weights.
        embedding_learning_rate: of the tables, which update themselves in the backward pass.
        device: where the model shall lie.
        kernel: of the embeddings.

    Attributes:
        choices: the logits theta.
        tables: the embeddings.
        layers: the other weights.
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
        self.bottom = MlpPaths("bottom", space.bottom if features.dense else ())
        self.top = MlpPaths("top", space.top)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.layers = _Layers(space, features, self.bottom, self.top).to(device)
            self.choices = Choices(self._sizes()).to(device)
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
        """Score a batch with the architectures that the masks mix; see `models.recommender.Recommender`."""
        return self.layers(dense, self.tables(values, offsets, masks), masks)

    def expected_cost(self, masks: Masks, costs: CostTable) -> Tensor:
        """Mean cost of the architectures that the masks mix, `[batch]`; of one-hot masks that of their architecture."""
        total = masks[INTERACTION] @ masks.values.new_tensor(costs.interactions) + costs.base
        if self.features.dense:
            total = total + self.bottom.expected_cost(masks, costs.bottom)
        total = total + self.top.expected_cost(masks, costs.top)
        for table, of_table in enumerate(costs.tables):
            of_share = masks[dim_choice(table)] @ masks.values.new_tensor(of_table).t()
            total = total + (of_share * masks[share_choice(table)]).sum(1)
        return total

    def cost(self, architecture: Architecture, costs: CostTable) -> float:
        """Exact cost of an architecture."""
        masks = self.choices.one_hot(self.encode(architecture))
        return float(self.expected_cost(replace(masks, values=masks.values.double()), costs))

    def decode(self, picked: Mapping[str, int]) -> Architecture:
        """The architecture of one candidate of each choice."""
        space, tables = self.space, range(len(self.space.dims))
        return Architecture(
            bottom=self.bottom.decode(picked) if self.features.dense else (),
            top=self.top.decode(picked),
            interaction=space.interactions[picked[INTERACTION]],
            dims=tuple(space.dims[table][picked[dim_choice(table)]] for table in tables),
            shares=tuple(space.shares[table][picked[share_choice(table)]] for table in tables),
        )

    def encode(self, architecture: Architecture) -> dict[str, int]:
        """Inverse of `decode`, for the choices that decide about it."""
        space = self.space
        return {
            **(self.bottom.encode(architecture.bottom) if self.features.dense else {}),
            **self.top.encode(architecture.top),
            INTERACTION: space.interactions.index(architecture.interaction),
            **{dim_choice(one): space.dims[one].index(width) for one, width in enumerate(architecture.dims)},
            **{share_choice(one): space.shares[one].index(share) for one, share in enumerate(architecture.shares)},
        }

    def _sizes(self) -> dict[str, int]:
        """Candidates of each choice; those of the widths of tables stand together, in the order of the tables."""
        space = self.space
        paths = {**(self.bottom.candidates if self.features.dense else {}), **self.top.candidates}
        return {
            **{name: len(sources) for name, sources in paths.items()},
            INTERACTION: len(space.interactions),
            **{dim_choice(table): len(dims) for table, dims in enumerate(space.dims)},
            **{share_choice(table): len(shares) for table, shares in enumerate(space.shares)},
        }


class _Layers(nn.Module):
    """All of a super-net but its tables and its choices."""

    def __init__(self, space: SupernetSpace, features: Features, bottom: MlpPaths, top: MlpPaths) -> None:
        super().__init__()
        dense, dim = len(features.dense), space.base.embedding_dim
        self.bottom = SuperMlp(bottom, dense, dim, rectified=True) if dense else None
        bags = len(features.categorical)
        self.interaction = SuperInteraction(space.base, bags + (1 if dense else 0), space.interactions)
        self.top_inputs = self.interaction.count + (dim if dense else bags * dim)
        self.top = SuperMlp(top, self.top_inputs, features.outputs, rectified=False)

    def forward(self, dense: Tensor, pooled: Tensor, masks: Masks) -> Tensor:
        """`[batch, dense features]` and `[batch, bags, dim]` to logits, as `models.dlrm.DlrmLayers`."""
        beside, vectors = pooled.flatten(1), pooled
        if self.bottom is not None:
            beside = self.bottom(dense, masks).float()
            vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        met = self.interaction(vectors, masks[INTERACTION])
        return self.top(torch.cat([beside, met], dim=1), masks).squeeze(1)
