"""Compressed linear layers: their interface, pruned layers and 8-bit layers.

Pruned layers lack the hidden units of smallest weights (magnitude pruning: Han et al., NeurIPS 2015). Whole units are
removed, on both sides of their ReLU, which leaves a smaller dense layer. Single zero weights make no product faster on
CPUs and GPUs until nearly all weights are zero.

8-bit layers have 8-bit integer weights, with a scale for each output, and 7-bit integer inputs. Each row of the input
is divided by its own largest number. No calibration is needed. An outlier in one row does not affect other rows, and a
row's score depends on that row alone. Sums of products are 32-bit integers. They are exact in any order. Inputs have 7
bits because CPUs without VNNI add two products in 16 bits, which two 8-bit products could overflow. A model thus gives
equal scores on both kinds of CPUs.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from shunter.models.altered_layers import AlteredLayers
from shunter.models.output_layer import OutputLayer, full_precision


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

    def __init__(self) -> None:
        super().__init__()
        self._prepared: Any = None  # weights in the layout of the kernel, once they are needed
        self.register_load_state_dict_post_hook(_forget_prepared)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_prepared": None}  # packed tensors cannot be copied

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


def _forget_prepared(module: nn.Module, _: Any) -> None:
    module._prepared = None  # pyright: ignore[reportArgumentType]


class PrunedLinear(CompressedLinear):
    """Linear layer between some of the units of a larger one.

    Args:
        inputs: Number of inputs.
        outputs: Number of outputs.
        has_bias: True if the layer has a bias.
    """

    form = "pruned"
    weight: Tensor
    bias: Tensor | None

    def __init__(self, inputs: int, outputs: int, *, has_bias: bool) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.register_buffer("weight", torch.zeros(outputs, inputs))
        self.register_buffer("bias", torch.zeros(outputs) if has_bias else None)

    @classmethod
    def empty(cls, linear: nn.Linear, **options: int) -> Self:
        """Return a layer without weights that replaces a linear layer; see `CompressedLinear`."""
        if options.keys() != {"inputs", "outputs"}:
            raise ValueError(
                "a pruned layer has the options inputs and outputs, but the saved layer has "
                f"{', '.join(options) or 'none'}"
            )
        inputs, outputs = options["inputs"], options["outputs"]
        if not (1 <= inputs <= linear.in_features and 1 <= outputs <= linear.out_features):
            raise ValueError(f"a pruned layer with {inputs} inputs and {outputs} outputs is wider than the original")
        return cls(inputs, outputs, has_bias=linear.bias is not None)

    @classmethod
    @torch.no_grad()
    def of(cls, linear: nn.Linear) -> Self:
        """Return a layer with the weights of a narrow linear layer."""
        made = cls(linear.in_features, linear.out_features, has_bias=linear.bias is not None)
        made.weight.copy_(linear.weight)
        if made.bias is not None:
            made.bias.copy_(linear.bias)
        return made

    @property
    def options(self) -> dict[str, int]:
        """Return the layer's options, as stored in `model.json`."""
        return {"inputs": self.inputs, "outputs": self.outputs}

    def rows(self, input: Tensor) -> Tensor:
        """Map `[rows, inputs]` to `[rows, outputs]`, in float32."""
        return OutputLayer.product(input, self.weight, self.bias)


WEIGHT_LEVELS, INPUT_LEVELS, ZERO = 127, 127, 64
SMALLEST = 1e-30  # divisor of a row of zeros


class Int8Linear(CompressedLinear):
    """Linear layer with 8-bit integer weights and 7-bit integer inputs.

    Args:
        inputs: Width of the input.
        outputs: Width of the output.
        has_bias: True if the layer has a bias.
        is_signed: True if inputs may be negative; otherwise, such as after a ReLU, inputs have twice as many levels.
    """

    form = "int8"
    weight: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, inputs: int, outputs: int, *, has_bias: bool, is_signed: bool) -> None:
        super().__init__()
        self.inputs, self.outputs, self.is_signed = inputs, outputs, is_signed
        self.register_buffer("weight", torch.zeros(outputs, inputs, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(outputs))
        self.register_buffer("bias", torch.zeros(outputs) if has_bias else None)

    @classmethod
    def empty(cls, linear: nn.Linear, **options: int) -> Self:
        """Return a layer without weights that replaces a linear layer; see `CompressedLinear`."""
        if options.keys() != {"is_signed"}:
            raise ValueError(
                f"an int8 layer has the option is_signed, but the saved layer has {', '.join(options) or 'none'}"
            )
        has_bias = linear.bias is not None
        return cls(linear.in_features, linear.out_features, has_bias=has_bias, is_signed=bool(options["is_signed"]))

    @classmethod
    @torch.no_grad()
    def of(cls, linear: nn.Linear, *, is_signed: bool) -> Self:
        """Quantise the weights of a layer to the nearest of 255 levels, with one scale per output."""
        found = cls.empty(linear, is_signed=is_signed)
        weight = linear.weight.detach().float().cpu()
        found.scale.copy_(weight.abs().amax(1).clamp(min=SMALLEST) / WEIGHT_LEVELS)
        found.weight.copy_((weight / found.scale.unsqueeze(1)).round())
        if found.bias is not None:
            found.bias.copy_(linear.bias.detach())
        return found

    @property
    def options(self) -> dict[str, int]:
        """Return the layer's options, as stored in `model.json`."""
        return {"is_signed": int(self.is_signed)}

    def rows(self, input: Tensor) -> Tensor:
        """Map `[rows, inputs]` to `[rows, outputs]`."""
        size = input.abs().amax(1, keepdim=True) if self.is_signed else input.amax(1, keepdim=True)
        zero = ZERO if self.is_signed else 0
        unit = size.clamp(min=SMALLEST) / (INPUT_LEVELS - zero)
        codes = (input / unit).round_().add_(zero).clamp_(0, INPUT_LEVELS).to(torch.uint8)
        products = self._products(codes, zero)
        return products * unit if self.bias is None else torch.addcmul(self.bias, products, unit)

    def _products(self, codes: Tensor, zero: int) -> Tensor:
        """Multiply integer inputs `codes` by the integer weights, and scale each output."""
        if codes.device.type == "cpu" and len(codes) and _has_kernel():
            if self._prepared is None:
                self._prepared = torch.ops.onednn.qlinear_prepack(self.weight, None)
            zeros = torch.zeros(self.outputs, dtype=torch.int64)
            return torch.ops.onednn.qlinear_pointwise(
                codes, 1.0, zero, self._prepared, self.scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
            )
        with full_precision(codes):
            return nn.functional.linear(codes.float() - zero, self.weight.float()) * self.scale


def _has_kernel() -> bool:
    """Return True if oneDNN has an integer kernel for this CPU; otherwise the same products are computed as floats."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_pointwise")
