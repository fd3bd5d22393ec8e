"""Interface of a compressed linear layer."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from torch import Tensor, nn

from shunter.models.altered_layers import AlteredLayers


class CompressedLinear(AlteredLayers, ABC):
    """Linear layer in compressed form, for scoring only.

    The score of a row must not depend on the other rows of the batch, so that single rows and files give equal scores.

    `empty` builds a layer without weights from the plain values in `model.json`; `state_dict` and `load_state_dict`
    save and load its weights.

    Attributes:
        form: Name of the form in `shunter.extensions.compression.layer_forms` and in files.
        inputs: Width of the input.
        outputs: Width of the output.
    """

    alteration = "compression"
    form: ClassVar[str]
    inputs: int
    outputs: int

    @classmethod
    @abstractmethod
    def empty(cls, linear: nn.Linear, **options: int) -> Self:
        """Return a layer without weights that replaces a linear layer.

        Args:
            linear: Layer that gives the shape.
            options: Values from `options`.

        Raises:
            ValueError: The options are invalid for this form.
        """

    @property
    @abstractmethod
    def options(self) -> dict[str, int]:
        """Return the arguments of `empty` besides the shape, as plain values."""

    @abstractmethod
    def rows(self, input: Tensor) -> Tensor:
        """Map `[rows, inputs]` float32 to `[rows, outputs]` float32."""

    def forward(self, input: Tensor) -> Tensor:
        """Map `[..., inputs]` to `[..., outputs]`, in float32."""
        return self.rows(input.float().reshape(-1, self.inputs)).view(*input.shape[:-1], self.outputs)
