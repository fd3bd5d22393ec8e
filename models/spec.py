"""What a model is built from: the features that come in and the shape of the network.

Plain dataclasses, so that a machine with torch and numpy alone can build and train a model.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

from shunter.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class CategoricalFeature:
    """One categorical field, after its values have become ids.

    Attributes:
        name: column of the source.
        rows: number of ids, so the rows of its embedding table; id 0 is the out-of-vocabulary and missing value.
        multi_valued: whether a sample may hold any number of ids (a pooled bag) instead of exactly one.
        length: of a history, whose ids have an order, the oldest first: most ids of one sample; None for other fields.
        table: the field whose embedding table this one shares, so whose ids it holds; None: it has a table of its own.
    """

    name: str
    rows: int
    multi_valued: bool = False
    length: int | None = None
    table: str | None = None


@dataclass(frozen=True, kw_only=True)
class Features:
    """What comes into a model, in the order of the arrays, and what it shall predict.

    Fields that share a table stand right behind its owner, since the kernels take the bags of a table together.

    Attributes:
        dense: names of the dense columns.
        categorical: the categorical fields.
        tasks: names of the labels where there are several, the main one first; empty where there is one.
    """

    dense: tuple[str, ...]
    categorical: tuple[CategoricalFeature, ...]
    tasks: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        """Logits of a sample: one for each task."""
        return max(1, len(self.tasks))

    @property
    def histories(self) -> tuple[CategoricalFeature, ...]:
        """The fields whose ids have an order."""
        return tuple(field for field in self.categorical if field.length is not None)

    @property
    def table_rows(self) -> tuple[int, ...]:
        """Rows of each embedding table."""
        return tuple(field.rows for field in self.categorical if field.table is None)

    @property
    def table_of(self) -> tuple[int, ...]:
        """Table of each field.

        Raises:
            RequestError: a field does not stand behind the one whose table it shares, or is of another size.
        """
        tables: list[int] = []
        owner: CategoricalFeature | None = None
        for feature in self.categorical:
            if feature.table is None:
                owner = feature
            elif owner is None or (owner.name, owner.rows) != (feature.table, feature.rows):
                raise RequestError(
                    f"The field {feature.name!r} shares the table of {feature.table!r}: put it right behind that "
                    "field, with as many rows."
                )
            tables.append((tables[-1] if tables else -1) + (feature.table is None))
        return tuple(tables)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; what a field does not have, and the tasks where there is one, are left out."""
        categorical = [{k: v for k, v in asdict(field).items() if v is not None} for field in self.categorical]
        tasks = {"tasks": list(self.tasks)} if self.tasks else {}
        return {"dense": list(self.dense), "categorical": categorical, **tasks}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Features":
        """Inverse of `to_dict`."""
        categorical = tuple(CategoricalFeature(**field) for field in values["categorical"])
        return cls(dense=tuple(values["dense"]), categorical=categorical, tasks=tuple(values.get("tasks", ())))


Interaction = Literal["dot", "attention", "cross", "linear", "convolution"]
DlrmInteraction = Literal["dot", "linear", "fm", "cross", "attention"]
ROUNDING = 1e-9  # what a share such as 0.1 may be off as a binary number


class TableShape(NamedTuple):
    """One embedding table.

    Attributes:
        ids: of its field.
        rows: that it has; where they are fewer, an id has the row of its remainder.
        width: numbers of a row.
    """

    ids: int
    rows: int
    width: int


def rows_kept(ids: int, share: float) -> int:
    """Rows of a table of which a share of the ids keep one of their own: rounded up, at least one."""
    return max(1, math.ceil(ids * share - ROUNDING * ids))


def _option(default: Any, *families: str) -> Any:
    """A field that only some families read."""
    return field(default=default, metadata={"families": families})


# In a row of a DeepFM the last number has a meaning of its own, so its tables are all of one width.
_ANY_WIDTH = ("dlrm", "dnn", "dcnv2", "finalmlp", "dhen", "dmt", "sequence")


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The architecture of one model: one value for every family, of which each reads what concerns it.

    An option of other families must keep its default, so that none is silently ignored (`models.registry.check_spec`).

    Attributes:
        family: name in the registry (`models.registry`).
        embedding_dim: width of every embedding row, and of the dense vector that meets them in the interaction.
        bottom_widths: hidden widths of the MLP over the dense features, without the last layer of `embedding_dim`.
        top_widths: hidden widths of the main MLP, without the last layer of one logit: in a DLRM over the interactions,
            in `deepfm` the deep part, in `dcnv2` the deep network, in `finalmlp` the first stream.
        dropout: share of activations dropped in the main MLPs while training.
        batch_norm: normalises the activations of the main MLPs over the batch, before each ReLU.
        interaction: `dlrm`: what the vectors of a sample become below the main MLP (`models.interactions`).
        table_dims: width of each table, in the order of `Features.table_rows`, up to `embedding_dim`, to which what is
            looked up is filled up with zeros; empty is `embedding_dim` for all.
        table_shares: share of the ids of each table that keep a row of their own, in the same order; the others share
            theirs by the remainder. Empty is 1 for all.
        task_tower_width: hidden width of the MLP that each of several tasks has for itself above the body they share;
            None leaves each a linear layer.
        cross_layers: `dcnv2`: cross layers, each of which raises the degree of the interactions by one.
        cross_rank: `dcnv2`: rank of each cross layer's matrix; None is full rank.
        cross_structure: `dcnv2`: the deep network beside the cross layers or on top of them.
        second_widths: `finalmlp`: hidden widths of the second stream; empty is those of the first.
        gate_widths: `finalmlp`: hidden widths of the MLP that weighs the input of a stream.
        first_gate: `finalmlp`: names of the fields that decide what the first stream sees; empty is the same for all.
        second_gate: `finalmlp`: the same for the second stream.
        fusion_heads: `finalmlp`: parts in which the streams meet in bilinear products; divides their last widths.
        interactions: `dhen`: modules of every layer, each name once.
        interaction_layers: `dhen`: how many layers are stacked.
        interaction_ensemble: `dhen`: how the modules of a layer become one: beside each other, added, or added with
            learned weights.
        interaction_vectors: `dhen`: vectors that each module of a layer gives.
        attention_heads: `dhen`: heads of the self-attention; divides `embedding_dim`.
        convolution_channels: `dhen`: filters of the convolution.
        encoder: `sequence`: what reads the histories, position by position.
        encoder_widths: `sequence`: hidden width of each of the encoder's layers.
        encoder_output: `sequence`: what of the last layer goes on: its state after the newest position, or the mean
            of its states.
        towers: `dmt`: groups of fields, in the order of the data (`models.towers.towers_of`).
        tower_fields: `dmt`: names of the fields of each tower instead: the partition, as a checkpoint keeps it.
        tower_kind: `dmt`: module of a tower: linear maps, or a small cross network, which keeps what the fields of a
            tower tell together.
        tower_vectors: `dmt`: vectors that a tower makes of all its fields together.
        tower_field_vectors: `dmt`: vectors that a tower of kind `dlrm` makes of each of its fields besides.
        tower_dim: `dmt`: width of these vectors; None is `embedding_dim`.
        tower_cross_layers: `dmt`: cross layers of a tower of kind `dcn`.
    """

    family: str = "dlrm"
    embedding_dim: int = 16
    bottom_widths: tuple[int, ...] = (64,)
    top_widths: tuple[int, ...] = (128, 64)
    dropout: float = 0.0
    batch_norm: bool = False
    task_tower_width: int | None = field(default=None, metadata={"is_optional": True})
    interaction: DlrmInteraction = field(default="dot", metadata={"families": ("dlrm",), "is_optional": True})
    table_dims: tuple[int, ...] = field(default=(), metadata={"families": _ANY_WIDTH, "is_optional": True})
    table_shares: tuple[float, ...] = field(default=(), metadata={"is_optional": True})
    cross_layers: int = _option(3, "dcnv2")
    cross_rank: int | None = _option(None, "dcnv2")
    cross_structure: Literal["parallel", "stacked"] = _option("parallel", "dcnv2")
    second_widths: tuple[int, ...] = _option((), "finalmlp")
    gate_widths: tuple[int, ...] = _option((64,), "finalmlp")
    first_gate: tuple[str, ...] = _option((), "finalmlp")
    second_gate: tuple[str, ...] = _option((), "finalmlp")
    fusion_heads: int = _option(1, "finalmlp")
    interactions: tuple[Interaction, ...] = _option(("dot", "linear"), "dhen")
    interaction_layers: int = _option(2, "dhen")
    interaction_ensemble: Literal["concat", "sum", "weighted"] = _option("concat", "dhen")
    interaction_vectors: int = _option(8, "dhen")
    attention_heads: int = _option(2, "dhen")
    convolution_channels: int = _option(4, "dhen")
    encoder: Literal["gru", "lstm"] = _option("gru", "sequence")
    encoder_widths: tuple[int, ...] = _option((32,), "sequence")
    encoder_output: Literal["last", "mean"] = _option("last", "sequence")
    towers: int | None = _option(None, "dmt")
    tower_fields: tuple[tuple[str, ...], ...] = _option((), "dmt")
    tower_kind: Literal["dlrm", "dcn"] = _option("dcn", "dmt")
    tower_vectors: int = _option(2, "dmt")
    tower_field_vectors: int = _option(0, "dmt")
    tower_dim: int | None = _option(None, "dmt")
    tower_cross_layers: int = _option(1, "dmt")

    @property
    def has_mixed_tables(self) -> bool:
        """Whether tables differ in width, or have fewer rows than ids."""
        return bool(self.table_dims or self.table_shares)

    def tables(self, features: Features) -> tuple[TableShape, ...]:
        """The embedding tables over some features."""
        ids = features.table_rows
        widths = self.table_dims or (self.embedding_dim,) * len(ids)
        shares = self.table_shares or (1.0,) * len(ids)
        shapes = zip(ids, map(rows_kept, ids, shares), widths, strict=True)
        return tuple(TableShape(*shape) for shape in shapes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; what not every model of the family reads is left out at its default."""
        foreign = self.foreign_options()
        return {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if not (option.name in foreign or option.metadata.get("is_optional"))
            or getattr(self, option.name) != option.default
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ModelSpec":
        """Inverse of `to_dict`, and what reads options that a person wrote.

        Raises:
            RequestError: a key is no option; the message names the nearest one.
        """
        known = {option.name for option in fields(cls)}
        for name in values:
            if name not in known:
                raise RequestError(f"The model has no option {name!r}: {nearest(name, known)}.")
        return cls(**{name: _as_tuple(value) for name, value in values.items()})

    def foreign_options(self) -> dict[str, tuple[str, ...]]:
        """Options that this family does not read, each with the families that do."""
        readers = {option.name: option.metadata.get("families") for option in fields(self)}
        return {name: families for name, families in readers.items() if families and self.family not in families}


def _as_tuple(value: Any) -> Any:
    """Lists, as JSON has them, as tuples."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list | tuple) else value


def nearest(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: use the one most like it, or another."""
    names = sorted(known)
    similar = get_close_matches(name, names, n=1)
    return f"use {similar[0]!r}, or another of {', '.join(names)}" if similar else f"use one of {', '.join(names)}"
