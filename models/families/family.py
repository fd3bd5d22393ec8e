"""What a model family is to the rest of the house."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from shunter.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model family: one file describes it, one entry of `shunter.model_families.MODEL_FAMILIES` makes it known.

    Tables, checkpoints, compilation, sharding, counting and serving are the same for all families.

    Attributes:
        spec: Class of its configuration: what all families share (`shunter.models.spec.ModelSpec`), and its own
            options.
        layers: Builder of all layers above the tables, from the configuration and the features. The module's
            `forward(dense [batch, dense features], pooled [batch, fields, dim])` returns logits in float32: `[batch]`,
            or `[batch, tasks]` where `Features.tasks` names several. In a family that reads positions, `pooled` has a
            bag for each position of a history, and `forward` takes the lengths, int64 `[batch, histories]`, as well. A
            builder raises a `RequestError` for options beyond the family's limits.
        ranges: Values that a search tries for each of the family's own options.
        dims: Values that a search tries for `embedding_dim`; empty leaves them to the size of the data.
        learned_with: Settings that models of this family are learned with where nothing else is searched or asked for,
            by their names in `shunter.engine.config.Hyperparameters`.
    """

    spec: type[ModelSpec]
    layers: Callable[[Any, Any], nn.Module]
    ranges: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    dims: tuple[int, ...] = ()
    learned_with: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.spec.family
