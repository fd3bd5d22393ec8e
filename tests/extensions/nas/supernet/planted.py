"""A small super-net over features of every kind, and its architectures as models of their own."""

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shunter.extensions.nas.supernet.network import Candidates, SuperMlp, Supernet
from shunter.extensions.nas.supernet.space import INPUT, Architecture, SupernetSpace
from shunter.models.embeddings.mixed import MixedEmbeddings
from shunter.models.families.dlrm import DlrmLayers, DlrmSpec
from shunter.models.recommender import Recommender
from shunter.models.registry import build_model
from shunter.models.spec import CategoricalFeature, Features

FEATURES = Features(
    dense=("age", "price"),
    categorical=(
        CategoricalFeature(name="user", rows=37),
        CategoricalFeature(name="tags", rows=23, multi_valued=True),
        CategoricalFeature(name="item", rows=20),
        CategoricalFeature(name="liked", rows=20, multi_valued=True, table="item"),
    ),
)
SPACE = SupernetSpace(
    base=DlrmSpec(embedding_dim=8),
    bottom=((4, 8, 0), (4, 0)),
    top=((8, 16), (8, 0), (4, 16, 0)),
    interactions=("dot", "linear", "fm", "cross", "attention"),
    dims=((4, 8), (4, 8), (8,)),
    shares=((1.0, 0.1), (1.0,), (1.0, 0.5, 0.1)),
)


class Inherited(nn.Module):
    """Model of one architecture, with the shared weights of the super-net."""

    def __init__(self, network: Supernet, architecture: Architecture) -> None:
        super().__init__()
        self.network, self._picked = network, network.coding.encode(architecture)

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        return self.network(dense, values, offsets, self.network.choices.one_hot(self._picked, len(dense)))


def batch(samples: int, features: Features = FEATURES, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Random samples, of which a multi-valued field has none to three ids."""
    random = torch.Generator().manual_seed(seed)
    lengths = [
        torch.randint(0, 4, (samples,), generator=random) if field.multi_valued else torch.ones(samples).long()
        for field in features.categorical
    ]
    ids = [
        torch.randint(0, field.rows, (int(length.sum()),), generator=random)
        for field, length in zip(features.categorical, lengths, strict=True)
    ]
    offsets = torch.nn.functional.pad(torch.cat(lengths).cumsum(0), (1, 0))
    dense = torch.randn(samples, len(features.dense), generator=random)
    return dense, torch.cat(ids).int(), offsets.int()


def architectures(space: SupernetSpace = SPACE) -> Iterator[Architecture]:
    """All of them."""
    parts = (
        itertools.product(*space.bottom),
        itertools.product(*space.top),
        space.interactions,
        itertools.product(*space.dims),
        itertools.product(*space.shares),
    )
    for bottom, top, interaction, dims, shares in itertools.product(*parts):
        yield Architecture(bottom=bottom, top=top, interaction=interaction, dims=dims, shares=shares)


def alone(network: Supernet, architecture: Architecture) -> Recommender:
    """The architecture as a model of its own, with the weights that it has in the super-net."""
    model = build_model(network.space.spec(architecture), network.features, kernel="torch")
    layers, source = model.layers, network.layers
    assert isinstance(layers, DlrmLayers)
    if source.bottom is not None:
        assert layers.bottom is not None
        _copy(list(_linear_layers(layers.bottom)), _weights(source.bottom, architecture.bottom))
    _copy(list(_linear_layers(layers.top)), _weights(source.top, architecture.top))
    number = network.space.interactions.index(architecture.interaction)
    layers.interaction.load_state_dict(source.interaction.candidates[number].state_dict())
    assert isinstance(model.embeddings, MixedEmbeddings)
    starts = [0, *itertools.accumulate(network.tables.embeddings.rows)]
    numbers = itertools.count()
    for table, (shares, width) in enumerate(zip(network.space.shares, architecture.dims, strict=True)):
        for share in shares:
            position = next(numbers)
            if share == architecture.shares[table]:
                rows = network.tables.embeddings.weight[starts[position] : starts[position + 1], :width]
                model.embeddings.tables[table].copy_(rows)
    return model.eval()


def _linear_layers(mlp: torch.nn.Sequential) -> Iterator[torch.nn.Linear]:
    return (layer for layer in mlp if isinstance(layer, torch.nn.Linear))


@torch.no_grad()
def _copy(layers: list[torch.nn.Linear], weights: list[tuple[Tensor, Tensor]]) -> None:
    for layer, (weight, bias) in zip(layers, weights, strict=True):
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)


def _weights(mlp: SuperMlp, widths: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Weights and biases along a path."""
    found, now = [], INPUT
    for layer, width in enumerate(widths):
        if width:
            module = mlp.first if now == INPUT else _child(mlp.hidden[layer], str(now))
            assert isinstance(module, Candidates)
            place = module.widths.index(width)
            found.append((module.weight.split(module.widths)[place], module.bias.split(module.widths)[place]))
            now = width
    output = _child(mlp.output, str(now))
    assert isinstance(output, torch.nn.Linear)
    return [*found, (output.weight, output.bias)]


def _child(parent: torch.nn.Module, name: str) -> torch.nn.Module:
    assert isinstance(parent, torch.nn.ModuleDict)
    return parent[name]
