"""The model families, by name."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from models.embeddings.kinds import build_tables
from models.embeddings.request import EmbeddingCache, Kernel, TableRequest
from models.embeddings.role import EmbeddingTables
from models.families.dcnv2 import Dcnv2Layers
from models.families.deepfm import DeepfmLayers
from models.families.dhen import DhenLayers
from models.families.dlrm import DlrmLayers
from models.families.dmt import DmtLayers
from models.families.dnn import DnnLayers
from models.families.finalmlp import FinalmlpLayers
from models.families.sequence import SequenceLayers
from models.graph import GRAPH_FAMILIES
from models.layers import initialise_linear
from models.positions import Positions
from models.recommender import Recommender
from models.spec import Features, ModelSpec, nearest
from shunter.errors import RequestError

Model = Recommender
# What is above the tables: `forward(dense [batch, dense features], pooled [batch, fields, dim])` returns logits in
# float32: `[batch]`, or `[batch, tasks]` where `Features.tasks` names several. Tables, checkpoints, compilation,
# sharding, counting and serving are the same for all families.
FAMILIES: dict[str, Callable[[ModelSpec, Features], nn.Module]] = {
    "dlrm": DlrmLayers,
    "dnn": DnnLayers,
    "deepfm": DeepfmLayers,
    "dcnv2": Dcnv2Layers,
    "finalmlp": FinalmlpLayers,
    "dhen": DhenLayers,
    "dmt": DmtLayers,
    "sequence": SequenceLayers,
}
# Families that read histories id by id: their `pooled` has a bag for each position, and `forward` takes the lengths,
# int64 `[batch, histories]`, as well. To all others a history is a pooled bag.
POSITIONAL = frozenset(("sequence",))


def build_layers(spec: ModelSpec, features: Features) -> nn.Module:
    """Build the layers above the tables, with weights as torch draws them; see `FAMILIES`.

    Raises:
        RequestError: the model cannot be built.
    """
    check_spec(spec, features)
    return FAMILIES[spec.family](spec, features)


def build_model(
    spec: ModelSpec,
    features: Features,
    *,
    seed: int = 0,
    embedding_learning_rate: float = 0.02,
    device: str | torch.device = "cpu",
    kernel: Kernel = "auto",
    cache: EmbeddingCache | None = None,
    embedding_l2: float = 0.0,
    embedding_initial_bound: float | None = None,
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
        embedding_l2: weight decay of the embedding rows that a step touches, see `EmbeddingTables.l2`.
        embedding_initial_bound: of the initial embeddings; None gives each table its own, see `EmbeddingTables`.

    Raises:
        RequestError: the family is not known, the embedding width does not suit the kernels, there is no feature, or
            the cache cannot be built or does not suit the family.
        HardwareError: there is no room for the file.
    """
    check_spec(spec, features)
    device = torch.device(device)
    if cache is not None and spec.family in POSITIONAL:
        raise RequestError(
            f"The option embedding_cache_rows does not work for a model of family {spec.family!r}, which looks up "
            "positions of histories: leave it out."
        )
    wanted = TableRequest(
        shapes=spec.tables(features),
        dim=spec.embedding_dim,
        table_of=bag_tables(spec, features),
        learning_rate=embedding_learning_rate,
        device=device,
        kernel=kernel,
        is_mixed=spec.has_mixed_tables,
        cache=cache,
    )
    embeddings = build_tables(wanted)
    embeddings.l2, embeddings.initial_bound = embedding_l2, embedding_initial_bound
    return assemble_model(spec, features, embeddings, seed=seed, device=device)


def assemble_model(
    spec: ModelSpec, features: Features, embeddings: EmbeddingTables, *, seed: int, device: str | torch.device
) -> Model:
    """Build a model around tables of any kind, and draw the initial weights; see `build_model`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        positions = Positions(features) if spec.family in POSITIONAL else None
        model = Recommender(spec, features, embeddings, build_layers(spec, features), positions)
        for module in model.layers.modules():
            if isinstance(module, nn.Linear):
                initialise_linear(module.weight, module.bias)
    embeddings.initialise(torch.Generator().manual_seed(seed))
    model.layers.to(device)
    return model


def bag_tables(spec: ModelSpec, features: Features) -> tuple[int, ...]:
    """Table of each bag that a sample looks up: of each field, or of each position where the family reads positions."""
    return Positions(features).table_of if spec.family in POSITIONAL else features.table_of


def layer_inputs(
    spec: ModelSpec, features: Features, batch_size: int, device: str | torch.device
) -> tuple[Tensor, ...]:
    """Zeros in the shapes of what the layers of a model take, as `Recommender.layer_inputs` gives them."""
    dense = torch.zeros(batch_size, len(features.dense), device=device)
    bags = len(bag_tables(spec, features))
    pooled = torch.zeros(batch_size, bags, spec.embedding_dim, device=device, requires_grad=True)
    if spec.family not in POSITIONAL:
        return dense, pooled
    return dense, pooled, torch.zeros(batch_size, len(features.histories), dtype=torch.int64, device=device)


def check_spec(spec: ModelSpec, features: Features) -> None:
    """Raise a `RequestError` for a model that cannot be built; see `build_model`."""
    if spec.family not in FAMILIES:
        known = (*FAMILIES, *GRAPH_FAMILIES)
        raise RequestError(f"Unknown model family {spec.family!r}: {nearest(spec.family, known)}.")
    defaults = ModelSpec(family=spec.family)
    for option, families in spec.foreign_options().items():
        if getattr(spec, option) != getattr(defaults, option):
            raise RequestError(
                f"The option {option} does nothing in a model of family {spec.family!r}: leave it out, or use family "
                f"{' or '.join(families)}."
            )
    if spec.embedding_dim < 4 or spec.embedding_dim % 4:
        raise RequestError(
            f"The embedding width {spec.embedding_dim} does not suit the kernels: use a positive multiple of 4."
        )
    _check_tables(spec, features)
    if spec.task_tower_width is not None and (len(features.tasks) < 2 or spec.task_tower_width < 1):
        raise RequestError(
            f"The option task_tower_width = {spec.task_tower_width} needs several labels and a width of at least one: "
            f"leave it out, or name labels in the schema."
        )
    if not features.categorical:
        raise RequestError("A recommender needs at least one categorical field: name one in the schema.")


def _check_tables(spec: ModelSpec, features: Features) -> None:
    count = len(features.table_rows)
    for option in ("table_dims", "table_shares"):
        given = getattr(spec, option)
        if given and len(given) != count:
            raise RequestError(
                f"The option {option} has {len(given)} values and the data {count} embedding tables: give one for "
                "each, in the order of the fields that own them."
            )
    for width in spec.table_dims:
        if width % 4 or not 4 <= width <= spec.embedding_dim:
            raise RequestError(
                f"The width {width} in table_dims is none of a table: use multiples of 4 up to the embedding width "
                f"{spec.embedding_dim}."
            )
    for share in spec.table_shares:
        if not 0 < share <= 1:
            raise RequestError(
                f"The value {share} in table_shares is no share of ids: use numbers above 0 up to 1, which is a row "
                "for each id."
            )
