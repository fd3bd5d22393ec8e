"""Linear layers with 8-bit integer weights, with a scale for each output, and 7-bit integer inputs.

Each row of the input is divided by its own largest number. No calibration is needed. An outlier in one row does not
affect other rows, and a row's score depends on that row alone. Sums of products are 32-bit integers. They are exact in
any order. Inputs have 7 bits because CPUs without VNNI add two products in 16 bits, which two 8-bit products could
overflow. A model thus gives equal scores on both kinds of CPUs.
"""

from typing import Any, Self

import torch
from torch import Tensor, nn

from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.models.output_layer import full_precision

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
        self._packed: Tensor | None = None
        self.register_load_state_dict_post_hook(_forget_packed)

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
            return torch.ops.onednn.qlinear_pointwise(
                codes, 1.0, zero, self._pack(), self.scale, _zeros(self.outputs), None, 1.0, 0, torch.float32,
                "none", [], "",
            )  # fmt: skip
        with full_precision(codes):
            return nn.functional.linear(codes.float() - zero, self.weight.float()) * self.scale

    def _pack(self) -> Tensor:
        """Return the weights in the layout of the kernel, cached."""
        packed = self._packed
        if packed is None:
            packed = self._packed = torch.ops.onednn.qlinear_prepack(self.weight, None)
        return packed

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_packed": None}  # packed tensors cannot be copied


def _zeros(outputs: int) -> Tensor:
    return torch.zeros(outputs, dtype=torch.int64)


def _has_kernel() -> bool:
    """Return True if oneDNN has an integer kernel for this CPU; otherwise the same products are computed as floats."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.onednn, "qlinear_pointwise")


def _forget_packed(module: nn.Module, _: Any) -> None:
    assert isinstance(module, Int8Linear)
    module._packed = None  # pyright: ignore[reportPrivateUsage]
