"""Super-net of a DLRM: tables, MLPs and interactions in every form that an architecture may have.

All widths share one table of the largest width, truncated and padded with zeros, like the channels of FBNetV2 (Wan et
al., CVPR 2020, arXiv 2004.05565). A narrow table thus learns from the same samples as a wide one, and the gradient of a
truncated row affects its first columns only. Candidate numbers of rows share nothing: each has its own table, indexed
modulo its rows, because ids that collide in one table do not collide in another. This costs little more memory than the
largest table.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shunter.extensions.nas.supernet.space import (
    INPUT,
    INTERACTION,
    SKIP,
    Choices,
    Coding,
    Masks,
    MlpPaths,
    SupernetSpace,
    dim_choice,
    share_choice,
)
from shunter.models.embeddings.kinds import build_embeddings
from shunter.models.embeddings.request import Kernel
from shunter.models.interactions import DlrmInteraction, dlrm_interaction, pair_count
from shunter.models.layers import initialise_linear
from shunter.models.output_layer import OutputLayer
from shunter.models.registry import check_spec
from shunter.models.spec import Features, rows_kept


class _Lookup(NamedTuple):
    """Lookup of one bag in one candidate table: index of the candidate `number`, with `rows` rows, of a `table`."""

    table: int
    number: int
    bag: int
    rows: int


class SuperTables(nn.Module):
    """Pooled embeddings of all candidates from one lookup, mixed by the masks.

    The tables are updated in the backward pass, by the row-wise Adagrad of `shunter.models.embeddings.role`, because
    few optimisers support sparse gradients.

    Args:
        features: Input features.
        dims: Widths that each table may have.
        shares: Candidate shares of ids with a row of their own, of each table.
        dim: Width of the output vectors, at least that of the widest table.
        learning_rate: Step size of the row-wise Adagrad.
        device: Device of the tables; it cannot be changed.
        kernel: Library of the lookups.
    """

    columns: Tensor
    table_of: Tensor
    lookup_bags: Tensor
    lookup_tables: Tensor
    lookup_numbers: Tensor

    def __init__(
        self,
        features: Features,
        dims: Sequence[Sequence[int]],
        shares: Sequence[Sequence[float]],
        *,
        dim: int,
        learning_rate: float,
        device: str | torch.device = "cpu",
        kernel: Kernel = "auto",
    ) -> None:
        super().__init__()
        self.dim = dim
        ids, of_bag = features.table_rows, features.table_of
        self.lookups = [
            _Lookup(table, number, bag, rows_kept(ids[table], share))
            for table, of in enumerate(shares)
            for number, share in enumerate(of)
            for bag in range(len(of_bag))
            if of_bag[bag] == table
        ]
        tables = list(dict.fromkeys((lookup.table, lookup.number, lookup.rows) for lookup in self.lookups))
        self.embeddings = build_embeddings(
            [rows for *_, rows in tables],
            dim,
            learning_rate=learning_rate,
            device=torch.device(device),
            kernel=kernel,
            table_of=[tables.index((lookup.table, lookup.number, lookup.rows)) for lookup in self.lookups],
        )
        self._bags, self._shares_rows = len(of_bag), any(lookup.rows < ids[lookup.table] for lookup in self.lookups)
        columns = torch.zeros(len(dims), max(map(len, dims)), dim)
        for table, widths in enumerate(dims):
            for number, width in enumerate(widths):
                columns[table, number, :width] = 1.0
        indices = {
            "columns": columns,
            "table_of": of_bag,
            "lookup_bags": [lookup.bag for lookup in self.lookups],
            "lookup_tables": [lookup.table for lookup in self.lookups],
            "lookup_numbers": [lookup.number for lookup in self.lookups],
        }
        for name, values in indices.items():
            self.register_buffer(name, torch.as_tensor(values).to(device), persistent=False)

    def forward(self, values: Tensor, offsets: Tensor, masks: Masks) -> Tensor:
        """Look up one batch, as `shunter.models.embeddings.role.EmbeddingTables` does, and mix the candidates.

        Returns:
            `[batch, bags, dim]`; missing columns of a width are zero.
        """
        return self.mixed(self.embeddings(*self.expanded(values, offsets)), masks)

    def expanded(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids once for each candidate number of rows, modulo that number; unchanged for one candidate.

        The host reads the offsets, which synchronises a GPU once a step.
        """
        if not self._shares_rows and len(self.lookups) == self._bags:
            return values, offsets
        batch = (len(offsets) - 1) // self._bags
        bounds = offsets[::batch].tolist()
        ids = torch.cat([values[bounds[lookup.bag] : bounds[lookup.bag + 1]] % lookup.rows for lookup in self.lookups])
        lengths = offsets.diff().view(self._bags, batch)[self.lookup_bags].flatten()
        return ids, nn.functional.pad(lengths.cumsum(0), (1, 0)).to(offsets.dtype)

    def mixed(self, pooled: Tensor, masks: Masks) -> Tensor:
        """Map `[batch, lookups, dim]` of all candidates to `[batch, bags, dim]`."""
        if len(self.lookups) > self._bags:
            weights = masks.values[:, masks.places[share_choice(0)] + self.lookup_tables, self.lookup_numbers]
            mixed = pooled.new_zeros(len(pooled), self._bags, self.dim)
            pooled = mixed.index_add(1, self.lookup_bags, pooled * weights.unsqueeze(2))
        widest = self.columns.shape[1]
        first = masks.places[dim_choice(0)]
        dims = masks.values[:, first : first + len(self.columns), :widest]
        return pooled * torch.einsum("btk,tkc->btc", dims, self.columns)[:, self.table_of]


class Candidates(nn.Linear):
    """Linear layers of all candidate widths on one input, computed as one matrix product."""

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__(inputs, sum(widths))
        self.widths = tuple(widths)

    def reset_parameters(self) -> None:
        """Do nothing: `initialise` sets the weights."""

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise each candidate as a separate layer, by the rule of `shunter.models.registry`."""
        for weight, bias in zip(self.weight.split(self.widths), self.bias.split(self.widths), strict=True):
            initialise_linear(weight, bias)

    def split(self, input: Tensor) -> dict[int, Tensor]:
        """Map `[batch, inputs]` to the `[batch, width]` of each candidate, after ReLU."""
        rectified = super().forward(input).relu()
        return dict(zip(self.widths, rectified.split(self.widths, dim=1), strict=True))


class SuperMlp(nn.Module):
    """All hidden layers that an MLP may have, and an output layer for each width that may precede it.

    In each layer, each pair of widths has its own linear layer. The exception are layers on the MLP's input: all
    positions of the first layer share their weights, because the input is wide and these layers are expensive.

    Args:
        paths: Choices of the MLP.
        rectified: If True, apply a ReLU to the output, which is then an inner layer of a larger model.
    """

    def __init__(self, paths: MlpPaths, inputs: int, outputs: int, *, rectified: bool) -> None:
        super().__init__()
        self.paths, self.rectified = paths, rectified
        shapes = paths.linear_shapes()
        first = sorted({after for before, after in shapes if before == INPUT and after})
        self.first = Candidates(inputs, first) if first else None
        self.hidden = nn.ModuleList(
            nn.ModuleDict({str(width): Candidates(width, made) for width in before if made and width != INPUT})
            for before, made in zip(paths.widths, map(paths.made, range(len(paths.layers))), strict=False)
        )
        kind = nn.Linear if rectified else OutputLayer
        self.output = nn.ModuleDict({str(width): kind(width or inputs, outputs) for width in paths.widths[-1]})
        for module in self.modules():
            if isinstance(module, Candidates):
                module.initialise()
            elif isinstance(module, nn.Linear):
                initialise_linear(module.weight, module.bias)

    def forward(self, input: Tensor, masks: Masks) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        first = self.first.split(input) if self.first is not None else {}
        now = {INPUT: input}
        for layer in range(len(self.paths.layers)):
            now = self._layer(layer, now, first, masks)
        mask = masks[self.paths.output_choice]
        outputs = [self.output[str(width)](activations) for width, activations in now.items()]
        return mixed([output.relu() if self.rectified else output for output in outputs], mask)

    def _layer(
        self, layer: int, before: dict[int, Tensor], first: dict[int, Tensor], masks: Masks
    ) -> dict[int, Tensor]:
        """Return the activations of each width after a layer, given the activations before the layer."""
        modules: Any = self.hidden[layer]
        made = {INPUT: first, **{int(width): module.split(before[int(width)]) for width, module in modules.items()}}
        after: dict[int, Tensor] = {}
        for width in self.paths.widths[layer + 1]:
            name = self.paths.choice(layer, width)
            sources = self.paths.candidates[name]
            candidates = [before[width] if source == SKIP else made[source][width] for source in sources]
            after[width] = mixed(candidates, masks[name])
        return after


def mixed(candidates: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the sum of `[batch, width]` candidates weighted by `[batch, candidates]`; a single candidate unchanged."""
    if len(candidates) == 1:
        return candidates[0]
    mixed = candidates[0] * mask[:, :1]
    for position, candidate in enumerate(candidates[1:], start=1):
        mixed = torch.addcmul(mixed, candidate, mask[:, position : position + 1])
    return mixed


class SuperInteraction(nn.Module):
    """Mixture of several interactions with separate weights; each returns one number for each pair of vectors.

    Args:
        dim: Width of the vectors.
        vectors: Number of vectors of a sample.

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


class _Layers(nn.Module):
    """Layers of a super-net: everything except its tables and its choices."""

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
        """Map dense features `[batch, dense features]` and pooled embeddings `[batch, bags, dim]` to logits."""
        beside, vectors = pooled.flatten(1), pooled
        if self.bottom is not None:
            beside = self.bottom(dense, masks).float()
            vectors = torch.cat([beside.unsqueeze(1), pooled], dim=1)
        met = self.interaction(vectors, masks[INTERACTION])
        return self.top(torch.cat([beside, met], dim=1), masks).squeeze(1)
