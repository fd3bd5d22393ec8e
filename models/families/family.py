"""What a model family is to the rest of the house."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from shunter.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model family: one file of this folder describes it, one line of `shunter.models.registry` makes it known.

    Tables, checkpoints, compilation, sharding, counting and serving are the same for all families.

    Attributes:
        spec: Class of its configuration: what all families share (`shunter.models.spec.ModelSpec`), and its own
            options.
        layers: Builder of all layers above the tables, from the configuration and the features. The module's
            `forward(dense [batch, dense features], pooled [batch, fields, dim])` returns logits in float32: `[batch]`,
            or `[batch, tasks]` where `Features.tasks` names several. A builder raises a `RequestError` for options
            beyond the family's limits.
        ranges: Values that a search tries for each of the family's own options.
        dims: Values that a search tries for `embedding_dim`; empty leaves them to the size of the data.
        learned_with: Settings that models of this family are learned with where nothing else is searched or asked for,
            by their names in `shunter.engine.config.Hyperparameters`.
        has_hidden_layers: Whether its models have MLPs, so that their widths and dropout can be searched.
        is_in_auto: Whether the model `auto` may become this family: it gives a probability, and takes any click log, or
            any with a history where it reads positions.
        mixes_widths: Whether its tables may differ in width (`ModelSpec.table_dims`).
        multiplies_numbers: Whether each dense feature may have a vector of its own (`ModelSpec.numeric_embedding`).
        reads_positions: Whether it reads histories id by id: then `pooled` has a bag for each position, and `forward`
            takes the lengths, int64 `[batch, histories]`, as well. To all others a history is a pooled bag.
        compiles_slowly: Whether compiling its layers takes longer than any training could win back.
    """

    spec: type[ModelSpec]
    layers: Callable[[Any, Any], nn.Module]
    ranges: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    dims: tuple[int, ...] = ()
    learned_with: Mapping[str, Any] = field(default_factory=dict)
    has_hidden_layers: bool = True
    is_in_auto: bool = False
    mixes_widths: bool = True
    multiplies_numbers: bool = True
    reads_positions: bool = False
    compiles_slowly: bool = False

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.spec.family
