"""Model of any family: embedding tables, and the layers above them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.positions import Positions
from shunter.models.spec import Features, ModelSpec

# Arguments: logits and labels, `[batch]` or `[batch, tasks]`; groups `[batch]` of a loss that compares groups.
LabelLosses = Callable[..., Tensor]


class Recommender(nn.Module):
    """Model over any mix of dense, single-valued and multi-valued features.

    Args:
        spec: The architecture.
        features: Input features.
        embeddings: Tables of the categorical features.
        layers: Layers above the tables: `[batch, dense features]` and `[batch, fields, dim]` to the logits.
        positions: Rearrangement for layers that read histories id by id, which also take the lengths of histories
            (`shunter.models.positions`).

    Attributes:
        compiled_layers: Compiled replacement of `layers`, if set (`shunter.engine.loop.compile`); it shares their
            weights.
        compiled_step: Compiled training step for full batches, if set (`shunter.engine.loop.compiled_step`); it updates
            the same weights.
        positions: The given rearrangement; None if the layers read no history id by id.
        loss: Loss of each label that a step minimises (`shunter.engine.loop.loss`); None is the log loss.
        around_step: Makes, from `layers`, a context for the forward and backward pass of each training step.
        around_forward: Makes a context for the forward pass of each training step.
    """

    around_step: Callable[[nn.Module], AbstractContextManager[Any]] | None = None
    around_forward: Callable[[], AbstractContextManager[Any]] | None = None
    compiled_layers: Callable[..., Tensor] | None = None
    compiled_step: Any = None
    loss: LabelLosses | None = None

    def __init__(
        self,
        spec: ModelSpec,
        features: Features,
        embeddings: EmbeddingTables,
        layers: nn.Module,
        positions: Positions | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.features = features
        self.embeddings = embeddings
        self.layers = layers
        self.positions = positions

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the logits of a batch.

        Args:
            dense: Dense features, `[batch, dense features]` float32.
            values: Ids, ordered by field and then by sample.
            offsets: `[fields * batch + 1]`, start of each bag in `values`, and the end.
            weights: Weight of each id in its bag, `[ids]`; None is 1.

        Returns:
            Logits, `[batch]`, or `[batch, tasks]` if the features name several tasks.
        """
        layers = self.compiled_layers or self.layers
        return layers(*self.layer_inputs(dense, values, offsets, weights))

    def layer_inputs(
        self, dense: Tensor, values: Tensor, offsets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Return the inputs of the layers: dense features, looked-up embeddings, and lengths of histories if needed."""
        if self.positions is None:
            return dense, self.embeddings(values, offsets, weights)
        laid_out = self.positions(values, offsets, weights)
        return dense, self.embeddings(laid_out.values, laid_out.offsets, laid_out.weights), laid_out.lengths

    def bags_of(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Return ids and bounds of the bags that are looked up for a batch; see `forward`."""
        if self.positions is None:
            return values, offsets
        laid_out = self.positions(values, offsets)
        return laid_out.values, laid_out.offsets

    def with_layers(self, layers: nn.Module) -> "Recommender":
        """Return a model with other layers above the same tables, which both models share."""
        return Recommender(self.spec, self.features, self.embeddings, layers, self.positions).train(self.training)
