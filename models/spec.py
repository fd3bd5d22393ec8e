"""Configuration of a model: its input features and its architecture.

Plain dataclasses, so that a machine with only torch and numpy can build and train a model.
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
        rows: Number of ids, which is the number of rows of its embedding table; id 0 is the out-of-vocabulary and
            missing value.
        multi_valued: Whether a sample may have any number of ids (a pooled bag) instead of exactly one.
        length: Largest number of ids of a sample in a history, whose ids are ordered from oldest to newest; None for
            other fields.
        table: Field whose embedding table, and thus whose ids, this field shares; None if it has its own table.
        weights: Column of the weights of a bag's ids, by which their rows are multiplied before the sum; None if all
            weights are 1.
    """

    name: str
    rows: int
    multi_valued: bool = False
    length: int | None = None
    table: str | None = None
    weights: str | None = None

    @property
    def is_weighted(self) -> bool:
        """Return True if the ids of a bag have weights."""
        return self.weights is not None


@dataclass(frozen=True, kw_only=True)
class NumberLabel(Record):
    """Label that is a number instead of a click, on the scale of the training part.

    Attributes:
        loss: Loss by which the label is learned and evaluated, such as `huber:1` (`shunter.label_losses`).
        center: Mean of the labels.
        scale: Standard deviation of the labels.
        levels: Distinct labels in ascending order, for ordinal losses; empty for others.
        odds: For each level except the lowest, the log odds that a label is at least this level.
    """

    loss: str
    center: float = 0.0
    scale: float = 1.0
    levels: tuple[float, ...] = field(default=(), metadata=OPTIONAL)
    odds: tuple[float, ...] = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Features:
    """Input features of a model, in the order of the arrays, and its prediction targets.

    Fields that share a table must follow its owner directly, since the kernels look up the bags of a table together.

    Attributes:
        dense: Names of the dense columns.
        categorical: Categorical fields.
        tasks: Names of the labels if there are several, the main label first; empty for one label.
        number: Description of the label if it is a number; None for clicks, whose prediction is a probability.
    """

    dense: tuple[str, ...]
    categorical: tuple[CategoricalFeature, ...]
    tasks: tuple[str, ...] = ()
    number: NumberLabel | None = None

    @property
    def outputs(self) -> int:
        """Number of logits of a sample: one for each task."""
        return max(1, len(self.tasks))

    @property
    def score_name(self) -> str:
        """Name of the prediction of a single label."""
        return "probability" if self.number is None else "prediction"

    @property
    def is_weighted(self) -> bool:
        """Return True if the ids of any field have weights."""
        return any(field.is_weighted for field in self.categorical)

    @property
    def histories(self) -> tuple[CategoricalFeature, ...]:
        """Fields that are histories, with ids in order of time."""
        return tuple(field for field in self.categorical if field.length is not None)

    @property
    def table_rows(self) -> tuple[int, ...]:
        """Number of rows of each embedding table."""
        return tuple(field.rows for field in self.categorical if field.table is None)

    @property
    def table_of(self) -> tuple[int, ...]:
        """Number of the embedding table that each field uses.

        Raises:
            RequestError: A field does not follow the field whose table it shares, or has a different number of rows.
        """
        tables: list[int] = []
        owner: CategoricalFeature | None = None
        for feature in self.categorical:
            if feature.table is None:
                owner = feature
            elif owner is None or (owner.name, owner.rows) != (feature.table, feature.rows):
                raise RequestError(
                    f"The field {feature.name!r} shares the embedding table of {feature.table!r}: list it "
                    "directly after that field, with the same number of rows."
                )
            tables.append((tables[-1] if tables else -1) + (feature.table is None))
        return tuple(tables)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; missing properties of fields, and the tasks if there is one, are left out."""
        categorical = [{k: v for k, v in asdict(field).items() if v is not None} for field in self.categorical]
        tasks = {"tasks": list(self.tasks)} if self.tasks else {}
        number = {"number": self.number.to_dict()} if self.number else {}
        return {"dense": list(self.dense), "categorical": categorical, **tasks, **number}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Features":
        """Create features from the dictionary that `to_dict` returns."""
        categorical = tuple(CategoricalFeature(**field) for field in values["categorical"])
        number = NumberLabel.from_dict(values["number"]) if values.get("number") else None
        return cls(
            dense=tuple(values["dense"]), categorical=categorical, tasks=tuple(values.get("tasks", ())), number=number
        )


ROUNDING = 1e-9  # largest error of a share such as 0.1 as a binary number
DropoutKind = Literal["random", "structured"]
TablePrecision = Literal["fp32", "fp16"]
NUMBER_BYTES: dict[TablePrecision, int] = {"fp32": 4, "fp16": 2}


class TableShape(NamedTuple):
    """Shape of one embedding table.

    Attributes:
        ids: Number of ids of the table's field.
        rows: Number of rows; if there are fewer rows than ids, the row of an id is the id modulo the number of rows.
        width: Width of a row.
        number_bytes: Bytes of each number.
    """

    ids: int
    rows: int
    width: int
    number_bytes: int = 4


def rows_kept(ids: int, share: float) -> int:
    """Return the number of rows of a table, at least one, if `share` of its ids have rows of their own; rounded up."""
    return max(1, math.ceil(ids * share - ROUNDING * ids))


@dataclass(frozen=True, kw_only=True)
class ModelSpec(Record):
    """Architecture of one model: the options of all families. Each family adds its own options (`models.families`).

    `shunter.models.registry.model_spec` builds the spec of a family from its name and options as in files. A field with
    `is_optional` in its metadata is left out of files at its default.

    Attributes:
        family: Name in the registry (`shunter.models.registry`).
        embedding_dim: Width of every embedding row, and of the dense vector that interacts with them.
        bottom_widths: Hidden widths of the MLP over the dense features, without the last layer of `embedding_dim`.
        top_widths: Hidden widths of the main MLP, without the last layer of one logit.
        dropout: Dropout share of the activations of the main MLPs in training.
        dropout_kind: Whether each sample drops its own activations, or all samples of a batch the same, which then need
            not be computed (`shunter.models.structured_dropout`).
        batch_norm: Whether the activations of the main MLPs are normalised over the batch, before each ReLU.
        task_tower_width: Hidden width of the MLP that each of several tasks has above the shared body; None gives each
            task a linear layer.
        table_dims: Width of each table, in the order of `Features.table_rows`, at most `embedding_dim`, to which
            looked-up vectors are padded with zeros; empty is `embedding_dim` for all.
        table_shares: Share of the ids of each table that have rows of their own, in the same order; other ids share
            these rows by their remainder. Empty is 1 for all.
        table_precision: Precision in which rows are stored. They are multiplied and updated in fp32; for fp16 they are
            then rounded stochastically (`shunter.models.embeddings.half`).
        numeric_embedding: Encoding of the dense features. Either an MLP makes one vector of all of them, or each has a
            learned vector times its value and interacts with the other fields. The latter has no `bottom_widths`.
        numeric_bins: Number of bins, between quantiles of the training part, that encode each dense feature in addition
            to its value (`shunter.models.number_bins`); 0 uses the value alone.
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
        """Return True if tables differ in width, or have fewer rows than ids."""
        return bool(self.table_dims or self.table_shares)

    def tables(self, features: Features) -> tuple[TableShape, ...]:
        """Return the shape of each embedding table for these input features."""
        ids = features.table_rows
        widths = self.table_dims or (self.embedding_dim,) * len(ids)
        shares = self.table_shares or (1.0,) * len(ids)
        shapes = zip(ids, map(rows_kept, ids, shares), widths, strict=True)
        return tuple(TableShape(*shape, NUMBER_BYTES[self.table_precision]) for shape in shapes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the family and all options, except optional ones at their default."""
        return {"family": self.family, **super().to_dict()}


def nearest(name: str, known: Iterable[str]) -> str:
    """Return advice for an unknown name: first a known name that begins with or resembles it, then the others."""
    names = sorted(known)
    begun = [one for one in names if len(name) > 2 and one.startswith(name.lower())]
    similar = begun or get_close_matches(name.lower(), names, n=1)
    return f"use {similar[0]!r}, or another of {', '.join(names)}" if similar else f"use one of {', '.join(names)}"
