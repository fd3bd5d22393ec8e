"""What a model is built from: the features that come in and the shape of the network.

Plain dataclasses, so that a machine with torch and numpy alone can build and train a model.
"""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, NamedTuple

from shunter.errors import RequestError
from shunter.record import OPTIONAL, Record


@dataclass(frozen=True, kw_only=True)
class CategoricalFeature:
    """One categorical field, after its values have become ids.

    Attributes:
        name: Column of the source.
        rows: Number of ids, so the rows of its embedding table; id 0 is the out-of-vocabulary and missing value.
        multi_valued: Whether a sample may hold any number of ids (a pooled bag) instead of exactly one.
        length: Most ids of one sample in a history, whose ids have an order, the oldest first; None for other fields.
        table: Field whose embedding table this one shares, so whose ids it holds; None: it has a table of its own.
        weights: Column of the weights of a bag's ids, which multiply their rows before they are summed; None: all count
            alike.
    """

    name: str
    rows: int
    multi_valued: bool = False
    length: int | None = None
    table: str | None = None
    weights: str | None = None

    @property
    def is_weighted(self) -> bool:
        """Whether single ids have weights."""
        return self.weights is not None


@dataclass(frozen=True, kw_only=True)
class Features:
    """What comes into a model, in the order of the arrays, and what it shall predict.

    Fields that share a table stand right behind its owner, since the kernels take the bags of a table together.

    Attributes:
        dense: Names of the dense columns.
        categorical: Categorical fields.
        tasks: Names of the labels where there are several, the main one first; empty where there is one.
    """

    dense: tuple[str, ...]
    categorical: tuple[CategoricalFeature, ...]
    tasks: tuple[str, ...] = ()

    @property
    def outputs(self) -> int:
        """Logits of a sample: one for each task."""
        return max(1, len(self.tasks))

    @property
    def is_weighted(self) -> bool:
        """Whether single ids have weights."""
        return any(field.is_weighted for field in self.categorical)

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
            RequestError: A field does not stand behind the one whose table it shares, or is of another size.
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


ROUNDING = 1e-9  # what a share such as 0.1 may be off as a binary number
DropoutKind = Literal["random", "structured"]
TablePrecision = Literal["fp32", "fp16"]
NUMBER_BYTES: dict[TablePrecision, int] = {"fp32": 4, "fp16": 2}


class TableShape(NamedTuple):
    """One embedding table.

    Attributes:
        ids: Number of ids of its field.
        rows: Number of rows; where they are fewer than the ids, an id has the row of its remainder.
        width: Numbers of a row.
        number_bytes: Bytes of each of them.
    """

    ids: int
    rows: int
    width: int
    number_bytes: int = 4


def rows_kept(ids: int, share: float) -> int:
    """Rows of a table of which a share of the ids keep one of their own: rounded up, at least one."""
    return max(1, math.ceil(ids * share - ROUNDING * ids))


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Record):
    """The architecture of one model: what all families share. Each family adds its own options (`models.families`).

    `shunter.models.registry.model_spec` builds the spec of a family from its name and options, as they are written in
    files. A field with `is_optional` in its metadata is left out of files at its default.

    Attributes:
        family: Name in the registry (`shunter.models.registry`).
        embedding_dim: Width of every embedding row, and of the dense vector that meets them in the interaction.
        bottom_widths: Hidden widths of the MLP over the dense features, without the last layer of `embedding_dim`.
        top_widths: Hidden widths of the main MLP, without the last layer of one logit.
        dropout: Share of activations dropped in the main MLPs while training.
        dropout_kind: Whether each sample drops its own activations, or all samples of a batch the same, which need not
            be computed then (`shunter.models.structured_dropout`).
        batch_norm: Whether the activations of the main MLPs are normalised over the batch, before each ReLU.
        task_tower_width: Hidden width of the MLP that each of several tasks has for itself above the body they share;
            None leaves each a linear layer.
        table_dims: Width of each table, in the order of `Features.table_rows`, up to `embedding_dim`, to which what is
            looked up is filled up with zeros; empty is `embedding_dim` for all.
        table_shares: Share of the ids of each table that keep a row of their own, in the same order; the others share
            theirs by the remainder. Empty is 1 for all.
        table_precision: In what the rows of the tables are kept while they learn and afterwards; they are multiplied
            and updated in fp32, and from there rounded by chance to fp16 (`shunter.models.embeddings.half`).
        numeric_embedding: What the dense features become: one vector by an MLP over all of them, or each a learned
            vector times its value, so that they meet the other fields one by one. The latter has no `bottom_widths`.
        numeric_bins: Bins between quantiles of the training part into which each dense feature is cut beside its value
            (`shunter.models.number_bins`); 0 leaves its value alone.
    """

    family: ClassVar[str]

    embedding_dim: int = 16
    bottom_widths: tuple[int, ...] = (64,)
    top_widths: tuple[int, ...] = (128, 64)
    dropout: float = 0.0
    batch_norm: bool = False
    dropout_kind: DropoutKind = field(default="random", metadata=OPTIONAL)
    task_tower_width: int | None = field(default=None, metadata=OPTIONAL)
    table_dims: tuple[int, ...] = field(default=(), metadata=OPTIONAL)
    table_shares: tuple[float, ...] = field(default=(), metadata=OPTIONAL)
    numeric_embedding: Literal["mlp", "vector"] = field(default="mlp", metadata=OPTIONAL)
    numeric_bins: int = field(default=0, metadata=OPTIONAL)
    table_precision: TablePrecision = field(default="fp32", metadata=OPTIONAL)

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
        return tuple(TableShape(*shape, NUMBER_BYTES[self.table_precision]) for shape in shapes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: the family and all options, but for optional ones at their default."""
        return {"family": self.family, **super().to_dict()}


def nearest(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: use the one that it begins, or else the one most like it, or another."""
    names = sorted(known)
    begun = [one for one in names if len(name) > 2 and one.startswith(name.lower())]
    similar = begun or get_close_matches(name.lower(), names, n=1)
    return f"use {similar[0]!r}, or another of {', '.join(names)}" if similar else f"use one of {', '.join(names)}"
