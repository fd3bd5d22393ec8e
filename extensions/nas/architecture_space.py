"""Space of architecture search: a DLRM with a separate choice for each layer, for the interaction and for each table.

Where `shunter.search.space.settings` has one width and one depth, this space has a factor for each layer. Each table
with a sufficient share of all rows has its own width and its own number of rows (Krishna et al., arXiv 2110.14812,
which keeps the interaction fixed). Learning rates are not searched, so that only architectures are compared.
"""

import math
import operator
from collections.abc import Hashable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Self, get_args

from pydantic import Field, field_serializer, model_validator

from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.overrides import Overrides
from shunter.errors import RequestError
from shunter.frozen import Frozen
from shunter.models.families.dlrm import DlrmSpec
from shunter.models.interactions import DlrmInteraction
from shunter.models.spec import Features, ModelSpec, nearest, rows_kept
from shunter.search.protocol import Factors, Parameters
from shunter.search.space.parameter import nearest_choice

if TYPE_CHECKING:
    from optuna import Trial

INTERACTION = "interaction"
SEARCHED = ("interaction", "embedding_dim", "bottom_widths", "top_widths", "table_dims", "table_shares")
SHARES = (1.0, 0.1, 0.01, 0.001)  # Krishna et al., section 5.3
# Smaller tables save nothing by sharing rows; this is also the fewest rows that a table keeps.
LEAST_ROWS, LEAST_SHARED_ROWS = 1_000, 16
Widths = tuple[tuple[int, ...], ...]


class ArchitectureSpace(Frozen):
    """Search space in which every combination of factor values is a `ModelSpec` of the family dlrm.

    The factors are `interaction`; `bottom_0`, `bottom_1`, ... and `top_0`, ..., the hidden width of each layer, where 0
    omits the layer. Two more are `dim_<field>` and `share_<field>`, the width of a field's table and the share of its
    ids with their own row. A table without factors has the full width and a row for each id.
    """

    features: Features = Field(description="Features of the data set that the models use.")
    embedding_dim: int = Field(
        default=16, description="Width of the vectors that interact, and largest width of an embedding table."
    )
    interactions: tuple[DlrmInteraction, ...] = Field(
        default=get_args(DlrmInteraction),
        description="Kinds of interaction between embedding vectors, below the main MLP.",
    )
    bottom: Widths = Field(
        default=(),
        description="Hidden widths to choose from, for each layer over the dense features; 0 leaves the layer out.",
    )
    top: Widths = Field(
        default=((0, 64, 128),) * 2,
        description="Hidden widths to choose from, for each layer of the main MLP; 0 leaves the layer out.",
    )
    dims: dict[str, tuple[int, ...]] = Field(
        default={}, description="Widths to choose from for each embedding table, by the field that owns it."
    )
    shares: dict[str, tuple[float, ...]] = Field(
        default={}, description="Shares to choose from, for each table, of the ids that have a row of their own."
    )
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Dropout probability; not searched.")
    dense_learning_rate: float = Field(
        default=Hyperparameters.dense_learning_rate,
        gt=0,
        description="Learning rate of the dense layers; not searched.",
    )
    embedding_learning_rate: float = Field(
        default=Hyperparameters.embedding_learning_rate,
        gt=0,
        description="Learning rate of the embeddings; not searched.",
    )
    task_weights: tuple[float, ...] = Field(default=(), description="Loss weights of several tasks; not searched.")

    fixed_architecture: dict[str, Any] = Field(
        default={}, description="Settings of the DLRM that the user fixed; not searched.", exclude_if=operator.not_
    )
    fixed_learning: dict[str, Any] = Field(
        default={}, description="Hyperparameters that the user fixed; not searched.", exclude_if=operator.not_
    )

    @field_serializer("features")
    def _features_without_defaults(self, features: Features) -> dict[str, Any]:
        """Return the features as a dictionary, without an empty `number`, so that older studies keep their names."""
        values = asdict(features)
        return values if features.number else {name: value for name, value in values.items() if name != "number"}

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise if a factor has no values, or belongs to a missing table, or has a width that a table cannot have."""
        for name, values in self.factors().items():
            if not values:
                raise RequestError(f"The factor {name} of the architecture space is empty: give at least one value.")
        tables = self.tables
        for name in (*self.dims, *self.shares):
            if name not in tables:
                raise RequestError(f"The architecture space names the unknown table {name!r}: {nearest(name, tables)}.")
        for name, widths in self.dims.items():
            if any(width % 4 or not 4 <= width <= self.embedding_dim for width in widths):
                raise RequestError(
                    f"The factor dim_{name} of the architecture space has an impossible table width: use "
                    f"multiples of 4 up to {self.embedding_dim}."
                )
        for name, shares in self.shares.items():
            if any(not 0 < share <= 1 for share in shares):
                raise RequestError(
                    f"The factor share_{name} of the architecture space has a value outside of its range: "
                    "use numbers above 0 up to 1."
                )
        return self

    @classmethod
    def for_dataset(
        cls,
        dataset: Dataset,
        *,
        task_weights: tuple[float, ...] = (),
        least_table_share: float = 0.01,
        hyperparameters: Hyperparameters | None = None,
        overrides: Overrides = Overrides(),  # noqa: B008 - frozen
    ) -> Self:
        """Return a space that suits the size of the data: wide layers need much data, and cost time.

        The widest layer is the power of two below the square root of the number of training rows, from 64 to 512. The
        widest embedding rows grow with the data from 16 to 64 numbers. Only the tables with most of the rows have
        factors: others can save little, and too many factors are hard to learn.

        Args:
            dataset: Data set, which determines the widest layers and the tables with factors.
            task_weights: Weights of the losses of several tasks.
            least_table_share: Smallest share of all rows for which a table has factors; 0 searches every table.
            hyperparameters: Hyperparameters of all architectures; None for the defaults.
            overrides: Settings that the user fixed.

        Raises:
            RequestError: A fixed setting is one that this space searches.
        """
        for name in overrides.architecture:
            if name in SEARCHED:
                raise RequestError(
                    f"--search-space architecture searches {name} itself: leave out --set {name}, or use "
                    "another search space."
                )
        features, rows = dataset.features, dataset.splits["train"].rows
        widest = min(max(2 ** int(math.log2(max(rows, 1)) / 2), 64), 512)
        widths = (0, widest // 4, widest // 2, widest)
        dim = 64 if rows >= 10_000_000 else 32 if rows >= 1_000_000 else 16
        rates = hyperparameters or Hyperparameters()
        owners = {field.name: field.rows for field in features.categorical if field.table is None}
        large = {name: ids for name, ids in owners.items() if ids >= least_table_share * sum(owners.values())}
        shares = {name: shares_worth(ids) for name, ids in large.items()}
        return cls(
            features=features,
            embedding_dim=dim,
            bottom=(widths,) * 2 if features.dense else (),
            top=(widths,) * 3,
            dims=dict.fromkeys(large, tuple(width for width in (4, 8, 16, 32, 64) if width <= dim)),
            shares={name: found for name, found in shares.items() if len(found) > 1},
            dense_learning_rate=rates.dense_learning_rate,
            embedding_learning_rate=rates.embedding_learning_rate,
            task_weights=task_weights,
            fixed_architecture=overrides.architecture,
            fixed_learning=overrides.learning,
        )

    @property
    def tables(self) -> dict[str, int]:
        """Number of ids of each table, by the name of its field, in the order of `ModelSpec.table_dims`."""
        return {field.name: field.rows for field in self.features.categorical if field.table is None}

    def identity(self, parameters: Parameters) -> Hashable:
        """Return architecture and learning rates, see `shunter.search.protocol.Space`."""
        return self.build(parameters)

    def factors(self) -> Factors:
        """Return every parameter with its values, see `shunter.search.protocol.Space`."""
        return {
            INTERACTION: self.interactions,
            **{f"bottom_{layer}": widths for layer, widths in enumerate(self.bottom)},
            **{f"top_{layer}": widths for layer, widths in enumerate(self.top)},
            **{f"dim_{name}": widths for name, widths in self.dims.items()},
            **{f"share_{name}": shares for name, shares in self.shares.items()},
        }

    def suggest(self, trial: "Trial") -> Parameters:
        """Sample a point of the space."""
        return {name: trial.suggest_categorical(name, values) for name, values in self.factors().items()}

    def defaults(self) -> list[Parameters]:
        """Return the point to try first: the architecture nearest to the defaults of `ModelSpec`, with whole tables."""
        spec = DlrmSpec()
        widths = {f"bottom_{layer}": width for layer, width in enumerate(spec.bottom_widths)}
        widths |= {f"top_{layer}": width for layer, width in enumerate(spec.top_widths)}
        widths |= {f"dim_{name}": spec.embedding_dim for name in self.dims}
        shares = {f"share_{name}": max(shares) for name, shares in self.shares.items()}
        interaction = spec.interaction if spec.interaction in self.interactions else self.interactions[0]
        others = {name: of for name, of in self.factors().items() if name != INTERACTION and name not in shares}
        nearest_widths = {name: nearest_choice(widths.get(name, 0), of) for name, of in others.items()}
        return [{INTERACTION: interaction, **nearest_widths, **shares}]

    def build(self, parameters: Parameters) -> tuple[ModelSpec, Hyperparameters]:
        """Return the architecture at a point of the space, and the learning rates, which are constant."""
        widths = tuple(parameters.get(f"dim_{name}", self.embedding_dim) for name in self.tables)
        shares = tuple(parameters.get(f"share_{name}", 1.0) for name in self.tables)
        spec = DlrmSpec(
            embedding_dim=self.embedding_dim,
            bottom_widths=_layers(parameters, "bottom", len(self.bottom)),
            top_widths=_layers(parameters, "top", len(self.top)),
            dropout=self.dropout,
            interaction=parameters[INTERACTION],
            table_dims=widths if min(widths) < self.embedding_dim else (),
            table_shares=shares if min(shares) < 1 else (),
        )
        hyperparameters = Hyperparameters(
            dense_learning_rate=self.dense_learning_rate,
            embedding_learning_rate=self.embedding_learning_rate,
            task_weights=self.task_weights,
        )
        return replace(spec, **self.fixed_architecture), replace(hyperparameters, **self.fixed_learning)

    def parameter_bytes(self, parameters: Parameters) -> int:
        """Return the counted bytes of the weights of tables and layers: `shunter.models.counting.ModelCounts`."""
        from shunter.models.counting import count_parameter_bytes

        return count_parameter_bytes(self.build(parameters)[0], self.features)


def shares_worth(ids: int) -> tuple[float, ...]:
    """Return the candidate shares of a table: 1, and for a large table the `SHARES` that leave enough rows."""
    if ids < LEAST_ROWS:
        return (1.0,)
    return tuple(share for share in SHARES if rows_kept(ids, share) >= LEAST_SHARED_ROWS)


def _layers(parameters: Parameters, mlp: str, most: int) -> tuple[int, ...]:
    """Return the widths of the hidden layers, without omitted layers."""
    widths = (parameters[f"{mlp}_{layer}"] for layer in range(most))
    return tuple(width for width in widths if width)
