"""Parsing, checking and building of models of any family; `shunter.model_families` lists the families."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, get_args

import torch
from torch import Tensor, nn

from shunter.errors import RequestError
from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS, reads_positions
from shunter.models.embeddings.kinds import build_tables
from shunter.models.embeddings.learning import EmbeddingLearning
from shunter.models.embeddings.mapped import MappedEmbeddings
from shunter.models.embeddings.request import EmbeddingCache, Kernel, TableRequest
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.families.family import Family
from shunter.models.layers import SelfInitialised, initialise_linear
from shunter.models.positions import Positions
from shunter.models.recommender import Recommender
from shunter.models.spec import NUMBER_BYTES, DropoutKind, Features, ModelSpec, nearest

Model = Recommender


def model_spec(family: str = "dlrm", **options: Any) -> ModelSpec:
    """Return the architecture of a family with some options, from a file or from a user.

    An option of other families must have its default, so that none is silently ignored.

    Raises:
        RequestError: The family or the option is unknown, or the option belongs to other families. The message has the
            nearest name, or these families.
    """
    chosen = family_of(family)
    own = _options(chosen.spec)
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name in own:
            values[name] = _as_tuple(value)
        else:
            _check_foreign_option(family, name, value)
    return chosen.spec(**values)


def family_of(name: str) -> Family:
    """Load a family by its name.

    Raises:
        RequestError: The family does not exist; the message has the nearest name.
        MissingExtensionError: The family belongs to an extension that is not installed.
    """
    if name not in MODEL_FAMILIES:
        known = (*MODEL_FAMILIES.names, *RANKING_MODELS.names)
        raise RequestError(f"Unknown model family {name!r}: {nearest(name, known)}.")
    return MODEL_FAMILIES.load(name)


def can_be_in_file(spec: ModelSpec) -> bool:
    """Return True if the embedding tables of a model may be in a file, with a cache of rows in memory."""
    return not spec.has_mixed_tables and spec.table_precision == "fp32" and not reads_positions(spec.family)


def build_layers(spec: ModelSpec, features: Features) -> nn.Module:
    """Build the layers above the tables, with torch's default initial weights; see `Family.layers`.

    Raises:
        RequestError: The model cannot be built.
    """
    check_spec(spec, features)
    return family_of(spec.family).layers(spec, features)


def build_model(
    spec: ModelSpec,
    features: Features,
    *,
    seed: int = 0,
    embedding_learning: EmbeddingLearning = EmbeddingLearning(),  # noqa: B008 - frozen
    device: str | torch.device = "cpu",
    kernel: Kernel = "auto",
    cache: EmbeddingCache | None = None,
    is_loaded_next: bool = False,
) -> Model:
    """Build a model with its initial weights.

    The weights are drawn on the CPU from the seed alone, so they are equal on every device and with every kernel.

    Args:
        spec: Architecture.
        features: Input features.
        seed: Seed of the initial weights.
        embedding_learning: Initialisation and training hyperparameters of the tables.
        device: Device of the model.
        kernel: Library of the lookups; `auto` uses the fastest installed one.
        cache: Cache in front of tables in a file; None keeps all tables in memory.
        is_loaded_next: Whether trained weights are loaded next. The tables, which may be large, are then not drawn.

    Raises:
        RequestError: The family is unknown, the embedding width does not suit the kernels, there is no feature, or the
            cache cannot be built or does not suit the family.
        HardwareError: There is not enough disk space for the file.
    """
    check_spec(spec, features)
    device = torch.device(device)
    if cache is not None and reads_positions(spec.family):
        raise RequestError(
            f"The embedding tables of a model of family {spec.family!r}, which reads positions of "
            "histories, cannot be stored in a file: leave out --embedding-memory."
        )
    wanted = TableRequest(
        shapes=spec.tables(features),
        dim=spec.embedding_dim,
        table_of=bag_tables(spec, features),
        learning_rate=embedding_learning.learning_rate,
        device=device,
        kernel=kernel,
        is_mixed=spec.has_mixed_tables,
        cache=cache,
        is_half=spec.table_precision == "fp16",
    )
    embeddings = build_tables(wanted)
    embeddings.l2, embeddings.initial_bound = embedding_learning.l2, embedding_learning.initial_bound
    return assemble_model(spec, features, embeddings, seed=seed, device=device, is_loaded_next=is_loaded_next)


def build_mapped_model(spec: ModelSpec, features: Features) -> Model:
    """Build a model for scoring; its tables get their memory by `load_state_dict(..., assign=True)`.

    Raises:
        RequestError: The family is unknown, or its tables cannot be in a file.
    """
    check_spec(spec, features)
    if not can_be_in_file(spec):
        raise RequestError(
            f"The embedding tables of this model of family {spec.family!r} cannot be read from a file: "
            "load the model into memory."
        )
    tables = MappedEmbeddings(spec.tables(features), spec.embedding_dim, bag_tables(spec, features))
    return build_scoring_model(spec, features, tables)


def build_scoring_model(spec: ModelSpec, features: Features, tables: EmbeddingTables) -> Model:
    """Build a model for scoring with trained tables; the weights of its layers must be loaded afterwards.

    Raises:
        RequestError: The family is unknown, or the model cannot be built.
    """
    check_spec(spec, features)
    return assemble_model(spec, features, tables, seed=0, device="cpu")


def assemble_model(
    spec: ModelSpec,
    features: Features,
    embeddings: EmbeddingTables,
    *,
    seed: int,
    device: str | torch.device,
    is_loaded_next: bool = False,
) -> Model:
    """Build a model around tables of any kind, and draw the initial weights; see `build_model`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        positions = Positions(features) if reads_positions(spec.family) else None
        model = Recommender(spec, features, embeddings, build_layers(spec, features), positions)
        for module in model.layers.modules():
            if isinstance(module, nn.Linear):
                initialise_linear(module.weight, module.bias)
        for module in model.layers.modules():
            if isinstance(module, SelfInitialised):
                module.initialise()
    if is_loaded_next:
        embeddings.await_weights()
    else:
        embeddings.initialise(torch.Generator().manual_seed(seed))
    model.layers.to(device)
    return model


def bag_tables(spec: ModelSpec, features: Features) -> tuple[int, ...]:
    """Return the table of each bag of a sample: one bag a field, or one a position in families that read positions."""
    return Positions(features).table_of if reads_positions(spec.family) else features.table_of


def layer_inputs(
    spec: ModelSpec, features: Features, batch_size: int, device: str | torch.device
) -> tuple[Tensor, ...]:
    """Return zeros in the shapes of the layers' inputs, as returned by `Recommender.layer_inputs`."""
    dense = torch.zeros(batch_size, len(features.dense), device=device)
    bags = len(bag_tables(spec, features))
    pooled = torch.zeros(batch_size, bags, spec.embedding_dim, device=device, requires_grad=True)
    if not reads_positions(spec.family):
        return dense, pooled
    return dense, pooled, torch.zeros(batch_size, len(features.histories), dtype=torch.int64, device=device)


def check_spec(spec: ModelSpec, features: Features) -> None:
    """Raise `RequestError` if a model cannot be built; see `build_model`."""
    family_of(spec.family)
    if spec.table_dims and not MODEL_FAMILIES.capability(spec.family, "mixes_widths"):
        raise _does_nothing("table_dims", spec.family, MODEL_FAMILIES.names_with(mixes_widths=True))
    if spec.numeric_embedding not in ("mlp", "vector"):
        raise RequestError(f"Unknown numeric_embedding {spec.numeric_embedding!r}: use mlp or vector.")
    if spec.dropout_kind not in get_args(DropoutKind):
        raise RequestError(f"Unknown dropout_kind {spec.dropout_kind!r}: use random or structured.")
    if spec.numeric_embedding != "mlp" and not MODEL_FAMILIES.capability(spec.family, "multiplies_numbers"):
        raise _does_nothing("numeric_embedding", spec.family, MODEL_FAMILIES.names_with(multiplies_numbers=True))
    if spec.numeric_bins < 0:
        raise RequestError(
            f"The number of buckets per numeric feature, numeric_bins, is {spec.numeric_bins}: use 0 for none, "
            "or a positive number."
        )
    if spec.embedding_dim < 4 or spec.embedding_dim % 4:
        raise RequestError(f"The embedding width is {spec.embedding_dim}, but must be a multiple of 4 above 0.")
    _check_tables(spec, features)
    if spec.task_tower_width is not None and (len(features.tasks) < 2 or spec.task_tower_width < 1):
        raise RequestError(
            f"The option task_tower_width = {spec.task_tower_width} needs several labels and a width of at least one: "
            f"leave it out, or name labels in the schema."
        )
    if not features.categorical:
        raise RequestError("A recommender needs at least one categorical field: name one in the schema.")


def _check_tables(spec: ModelSpec, features: Features) -> None:
    if spec.table_precision not in NUMBER_BYTES:
        known = " or ".join(NUMBER_BYTES)
        raise RequestError(f"Unknown table_precision {spec.table_precision!r}: use {known}.")
    if spec.has_mixed_tables and spec.table_precision != "fp32":
        raise RequestError(
            "Embedding tables in fp16 must have the same width and a row for each id: leave out table_precision, or "
            "table_dims and table_shares."
        )
    count = len(features.table_rows)
    for option in ("table_dims", "table_shares"):
        given = getattr(spec, option)
        if given and len(given) != count:
            raise RequestError(
                f"The option {option} has {len(given)} values, but the data has {count} embedding tables: "
                "give one value for each table, in the order of the fields that own them."
            )
    for width in spec.table_dims:
        if width % 4 or not 4 <= width <= spec.embedding_dim:
            raise RequestError(
                f"The width {width} in table_dims is not supported: use multiples of 4 up to the embedding "
                f"width {spec.embedding_dim}."
            )
    for share in spec.table_shares:
        if not 0 < share <= 1:
            raise RequestError(
                f"The value {share} in table_shares is not supported: use the number of rows per id, above "
                "0 and up to 1, where 1 is a row for each id."
            )


def _check_foreign_option(family: str, name: str, value: Any) -> None:
    """Raise if a family does not have an option, unless another family has it and the value is its default."""
    options = {other: _options(family_of(other).spec) for other in MODEL_FAMILIES.names}
    readers = [other for other, own in options.items() if name in own]
    if not readers:
        known = {option for own in options.values() for option in own} | {"family"}
        raise RequestError(f"The model has no option {name!r}: {nearest(name, known)}.")
    if _as_tuple(value) != options[readers[0]][name]:
        raise _does_nothing(name, family, readers)


def _does_nothing(option: str, family: str, readers: Sequence[str]) -> RequestError:
    return RequestError(
        f"The option {option} does nothing in a model of family {family!r}: leave it out, or use family "
        f"{' or '.join(readers)}."
    )


@lru_cache
def _options(spec: type[ModelSpec]) -> Mapping[str, Any]:
    """Return the options of a family with their defaults."""
    return {option.name: option.default for option in fields(spec)}


def _as_tuple(value: Any) -> Any:
    """Convert lists, as in JSON, into tuples."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value
