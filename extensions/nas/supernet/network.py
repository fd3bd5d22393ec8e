"""Super-net of a DLRM: tables, MLPs and interactions in every form that an architecture may have."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shunter.extensions.nas.supernet.masks import Choices, Masks
from shunter.extensions.nas.supernet.space import (
    INPUT,
    INTERACTION,
    SKIP,
    Coding,
    MlpPaths,
    SupernetSpace,
)
from shunter.extensions.nas.supernet.tables import SuperTables
from shunter.models.embeddings.request import Kernel
from shunter.models.interactions import DlrmInteraction, dlrm_interaction, pair_count
from shunter.models.layers import initialise_linear
from shunter.models.output_layer import OutputLayer
from shunter.models.registry import check_spec
from shunter.models.spec import Features


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
