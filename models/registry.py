"""The model families, by name."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from models.dlrm import Dlrm
from models.embeddings import Kernel, PooledEmbeddings, build_embeddings
from models.spec import Features, ModelSpec
from models.tiered import EmbeddingCache, TieredEmbeddings
from shunter.errors import RequestError

Model = Dlrm
FAMILIES: dict[str, Callable[[ModelSpec, Features, PooledEmbeddings], Model]] = {"dlrm": Dlrm}


def build_model(
    spec: ModelSpec,
    features: Features,
    *,
    seed: int = 0,
    embedding_learning_rate: float = 0.02,
    device: str | torch.device = "cpu",
    kernel: Kernel = "auto",
    cache: EmbeddingCache | None = None,
) -> Model:
    """Build a model with its initial weights.

    The weights are drawn on the CPU, from the seed alone: equal on every device and with every kernel.

    Args:
        spec: the architecture.
        features: the input.
        seed: of the initial weights.
        embedding_learning_rate: of the row-wise Adagrad fused into the embeddings' backward.
        device: where the model shall lie.
        kernel: of the embeddings; `auto` picks the fastest that is installed.
        cache: keeps the tables in a file and as many rows in memory; None keeps all in memory.

    Raises:
        RequestError: the family is not known, the embedding width does not suit the kernels, there is no feature, or
            the cache cannot be built.
        HardwareError: there is no room for the file.
    """
    check_spec(spec, features)
    device = torch.device(device)
    rows = [field.rows for field in features.categorical]
    build = build_embeddings if cache is None else partial(TieredEmbeddings, cache=cache)
    embeddings = build(rows, spec.embedding_dim, learning_rate=embedding_learning_rate, device=device, kernel=kernel)
    return assemble_model(spec, features, embeddings, seed=seed, device=device)


def assemble_model(
    spec: ModelSpec, features: Features, embeddings: PooledEmbeddings, *, seed: int, device: str | torch.device
) -> Model:
    """Build a model around tables of any kind, and draw the initial weights; see `build_model`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = FAMILIES[spec.family](spec, features, embeddings)
        for module in model.layers.modules():
            if isinstance(module, nn.Linear):
                _initialise(module)
    embeddings.initialise(torch.Generator().manual_seed(seed))
    model.layers.to(device)
    return model


def check_spec(spec: ModelSpec, features: Features) -> None:
    """Raise a `RequestError` for a model that cannot be built; see `build_model`."""
    if spec.family not in FAMILIES:
        raise RequestError(
            f"Unknown model family {spec.family!r}: the known families are {', '.join(sorted(FAMILIES))}."
        )
    if spec.embedding_dim < 4 or spec.embedding_dim % 4:
        raise RequestError(
            f"The embedding width {spec.embedding_dim} does not suit the kernels: use a positive multiple of 4."
        )
    if not features.categorical:
        raise RequestError("A recommender needs at least one categorical field: name one in the schema.")


def _initialise(layer: nn.Linear) -> None:
    """Normal weights with variance 2 / (inputs + outputs), biases with 1 / outputs, as in facebookresearch/dlrm."""
    nn.init.xavier_normal_(layer.weight)
    nn.init.normal_(layer.bias, std=layer.out_features**-0.5)
