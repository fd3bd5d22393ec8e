"""What a smaller form of a linear layer is to the rest of the house."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from torch import Tensor, nn

from shunter.models.altered_layers import AlteredLayers


class CompressedLinear(AlteredLayers, ABC):
    """A linear layer in fewer bytes, which scores and learns nothing.

    The score of a row must not depend on the rows beside it: whoever asks for one row gets what a file would.

    `empty` builds one without weights, from plain values that stand in `model.json`; `state_dict` and
    `load_state_dict` keep what it has learned.

    Attributes:
        form: Name in `shunter.extensions.compression.layer_forms` and in files.
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
        """One in the place of a layer, without its weights.

        Args:
            linear: The layer, of which the shape counts.
            options: As `options` gave them.

        Raises:
            ValueError: The options are none of this form.
        """

    @property
    @abstractmethod
    def options(self) -> dict[str, int]:
        """What `empty` needs beside the shape, as plain values."""

    @abstractmethod
    def rows(self, input: Tensor) -> Tensor:
        """`[rows, inputs]` float32 to `[rows, outputs]` float32."""

    def forward(self, input: Tensor) -> Tensor:
        """`[..., inputs]` to `[..., outputs]`, in float32."""
        return self.rows(input.float().reshape(-1, self.inputs)).view(*input.shape[:-1], self.outputs)
