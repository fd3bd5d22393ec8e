"""A model of any family: tables of embeddings, and the layers above them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.positions import Positions
from shunter.models.spec import Features, ModelSpec

LabelLosses = Callable[[Tensor, Tensor], Tensor]  # of logits and labels, `[batch]` or `[batch, tasks]`


class Recommender(nn.Module):
    """A model over any mix of dense, single-valued and multi-valued features.

    Args:
        spec: The architecture.
        features: The input.
        embeddings: The tables of the categorical features.
        layers: All but the tables; from `[batch, dense features]` and `[batch, fields, dim]` to the logits.
        positions: For layers that read histories id by id, and take their lengths too: `shunter.models.positions`.

    Attributes:
        compiled_layers: Stands in for `layers` where it is set (`shunter.engine.loop.compile`); it shares their
            weights.
        compiled_step: Trains on full batches where it is set (`shunter.engine.loop.compiled_step`); it updates the same
        weights.
        loss: Loss of each label that a step minimises (`shunter.engine.loop.loss`); None: the log loss.
        around_step: Makes of `layers` a context of the forward and backward pass of each training step.
        around_forward: Makes a context of the forward pass of each training step.
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
        self._positions = positions

    def forward(self, dense: Tensor, values: Tensor, offsets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Score a batch.

        Args:
            dense: `[batch, dense features]` float32.
            values: Ids, field by field and sample by sample within a field.
            offsets: `[fields * batch + 1]`, where each bag starts in `values`, and the end.
            weights: `[ids]`, what each id counts in its bag; None is 1.

        Returns:
            Logits, `[batch]`, or `[batch, tasks]` where the features name several.
        """
        layers = self.compiled_layers or self.layers
        return layers(*self.layer_inputs(dense, values, offsets, weights))

    def layer_inputs(
        self, dense: Tensor, values: Tensor, offsets: Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """What the layers take of a batch: dense features, looked-up embeddings, and lengths of histories if asked."""
        if self._positions is None:
            return dense, self.embeddings(values, offsets, weights)
        laid_out = self._positions(values, offsets, weights)
        return dense, self.embeddings(laid_out.values, laid_out.offsets, laid_out.weights), laid_out.lengths

    def bags_of(self, values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and bounds of the bags that the tables are asked for of a batch; see `forward`."""
        if self._positions is None:
            return values, offsets
        laid_out = self._positions(values, offsets)
        return laid_out.values, laid_out.offsets

    def with_layers(self, layers: nn.Module) -> "Recommender":
        """A model of the same tables with other layers above them; both share the tables."""
        return Recommender(self.spec, self.features, self.embeddings, layers, self._positions).train(self.training)
