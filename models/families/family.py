"""Description of a model family for the rest of the project."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from shunter.models.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class Family:
    """Model family: one module describes it, and an entry of `shunter.model_families.MODEL_FAMILIES` registers it.

    Tables, checkpoints, compilation, sharding, counting and serving are the same for all families.

    Attributes:
        spec: Class of the configuration: options of all families (`shunter.models.spec.ModelSpec`), and the family's
            own options.
        layers: Builder of all layers above the tables, from the configuration and the features. The module's
            `forward(dense [batch, dense features], pooled [batch, fields, dim])` returns logits in float32: `[batch]`,
            or `[batch, tasks]` if `Features.tasks` names several tasks. In a family that reads positions, `pooled` has
            a bag for each position of a history, and `forward` also takes the lengths, int64 `[batch, histories]`. A
            builder raises a `RequestError` for options beyond the family's limits.
        ranges: Values that a search tries for each of the family's own options.
        dims: Values that a search tries for `embedding_dim`; if empty, they depend on the size of the data.
        learned_with: Default training hyperparameters of this family, by their names in
            `shunter.engine.config.Hyperparameters`.
    """

    spec: type[ModelSpec]
    layers: Callable[[Any, Any], nn.Module]
    ranges: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    dims: tuple[int, ...] = ()
    learned_with: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the model family."""
        return self.spec.family
