"""Compressed linear layers: their interface, pruned layers, 8-bit layers and lookup tables.

Pruned layers lack the hidden units of smallest weights (magnitude pruning: Han et al., NeurIPS 2015). Whole units are
removed, on both sides of their ReLU, which leaves a smaller dense layer. Single zero weights make no product faster on
CPUs and GPUs until nearly all weights are zero.

8-bit layers have 8-bit integer weights, with a scale for each output, and 7-bit integer inputs. Each row of the input
is divided by its own largest number. No calibration is needed. An outlier in one row does not affect other rows, and a
row's score depends on that row alone. Sums of products are 32-bit integers. They are exact in any order. Inputs have 7
bits because CPUs without VNNI add two products in 16 bits, which two 8-bit products could overflow. A model thus gives
equal scores on both kinds of CPUs.

Lookup tables are product quantisation (Jegou et al., PAMI 2011; PQA: arXiv 2305.18334). The input is divided into
sub-vectors, and the nearest of a few prototypes is found for each. The product of each prototype with the weights is
stored in a table, and the layer's output is the sum of the selected table rows. A layer of `inputs` by `outputs` thus
takes `inputs * prototypes` multiplications, and `inputs / length` additions per output.

Distances are integers: inputs are rounded to the grid of the prototypes. Every sum is therefore exact in float32 in any
order, and the score of a row depends on that row alone. Each distance is multiplied by the number of prototypes, and
the prototype's index is added. The minimum then gives the index: one matrix product and one minimum.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from shunter.models.altered_layers import AlteredLayers
from shunter.models.output_layer import OutputLayer, full_precision

WEIGHT_LEVELS, INPUT_LEVELS, ZERO = 127, 127, 64
SMALLEST = 1e-30  # divisor of a row of zeros
LENGTHS, PROTOTYPES, TABLE_BITS = (1, 256), (2, 64), (4, 8)
EXACT = 2**24  # integers up to here are exact in float32
MOST_LEVEL = 127


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


def grid_level(length: int, prototypes: int) -> int:
    """Return the largest grid value at which distances stay exact: at most 127, which is 8 bits with sign.

    A distance is `sum(c^2 - 2 c x)` over a sub-vector, times the number of prototypes, plus the prototype's index.
    """
    return min(MOST_LEVEL, int(((EXACT - prototypes) / (3 * prototypes * length)) ** 0.5))


class ProductLinear(CompressedLinear):
    """Linear layer as lookup tables.

    Args:
        inputs: Width of the input.
        outputs: Width of the output.
        length: Width of a sub-vector; the last one is padded with zeros.
        prototypes: Number of prototypes per sub-vector, a power of two.
        bits: Bits of a table entry, 8 or 4; each table row has a scale and a bias.

    Raises:
        ValueError: The sizes are invalid.
    """

    form = "product"
    scale: Tensor
    prototypes: Tensor
    table: Tensor

    def __init__(self, inputs: int, outputs: int, *, length: int, prototypes: int, bits: int) -> None:
        super().__init__()
        is_power = prototypes & (prototypes - 1) == 0
        within = LENGTHS[0] <= length <= LENGTHS[1] and PROTOTYPES[0] <= prototypes <= PROTOTYPES[1]
        if not (is_power and within and bits in TABLE_BITS):
            raise ValueError(
                f"a product-quantised layer cannot have length {length}, {prototypes} prototypes and {bits} bits"
            )
        self.inputs, self.outputs, self.length, self.count, self.bits = inputs, outputs, length, prototypes, bits
        self.parts = -(-inputs // length)
        self.level = grid_level(length, prototypes)
        self.register_buffer("scale", torch.ones(inputs))
        self.register_buffer("prototypes", torch.zeros(self.parts, prototypes, length, dtype=torch.int8))
        width = (outputs * bits + 7) // 8 + (8 if bits == 8 else 4)
        self.register_buffer("table", torch.zeros(self.parts * prototypes, width, dtype=torch.uint8))

    @classmethod
    def empty(cls, linear: nn.Linear, **options: int) -> Self:
        """Return a layer without weights that replaces a linear layer; see `CompressedLinear`."""
        if options.keys() != {"length", "prototypes", "bits"}:
            raise ValueError(
                "a product-quantised layer has the options length, prototypes and bits, but the saved layer "
                f"has {', '.join(options) or 'none'}"
            )
        return cls(linear.in_features, linear.out_features, **options)

    @property
    def options(self) -> dict[str, int]:
        """Return the layer's options, as stored in `model.json`."""
        return {"length": self.length, "prototypes": self.count, "bits": self.bits}

    @torch.no_grad()
    def fill(self, scale: Tensor, prototypes: Tensor, table: Tensor) -> Self:
        """Set the learned prototypes and table entries of the layer.

        Args:
            scale: Factor of each input before it is rounded to the grid, `[inputs]`.
            prototypes: Integers on the grid, `[parts, prototypes, length]`.
            table: Product of each prototype with the weights, `[parts, prototypes, outputs]`; the bias is added to the
                products of the first sub-vector.
        """
        self.scale.copy_(scale)
        self.prototypes.copy_(prototypes)
        entries = table.reshape(self.parts * self.count, self.outputs).float().contiguous()
        if self.bits == 8:
            self.table.copy_(torch.ops.quantized.embedding_bag_byte_prepack(entries))
        else:  # a zero column makes the number of outputs even
            entries = nn.functional.pad(entries, (0, self.outputs % 2))
            self.table.copy_(torch.ops.quantized.embedding_bag_4bit_prepack(entries))
        self._prepared = None
        return self

    def numbers(self, input: Tensor) -> Tensor:
        """Return the table row of the nearest prototype of each sub-vector, int32 `[parts, rows]`; -1 for NaN."""
        factors, offsets, first = self._prepare()
        grid = input.new_zeros(len(input), self.parts * self.length)
        within = grid[:, : self.inputs]
        torch.mul(input, self.scale, out=within)
        within.round_().clamp_(-self.level, self.level)
        parts = grid.view(len(input), self.parts, self.length).permute(1, 2, 0)
        with full_precision(input):
            nearest = torch.baddbmm(offsets, factors, parts).amin(1)
        rows = nearest.to(torch.int32).bitwise_and_(self.count - 1).add_(first)
        return rows.masked_fill_(nearest.isnan(), -1) if nearest.isnan().any() else rows

    def rows(self, input: Tensor) -> Tensor:
        """Map `[rows, inputs]` to `[rows, outputs]`."""
        numbers = self.numbers(input).t()
        is_lost = (numbers < 0).any(1)
        found = self._sums(numbers.clamp(min=0).contiguous() if is_lost.any() else numbers.contiguous())
        return found.masked_fill_(is_lost.unsqueeze(1), torch.nan) if is_lost.any() else found

    def _sums(self, numbers: Tensor) -> Tensor:
        """Return the sum of the table rows with these numbers, int32 `[rows, parts]`, as float32 `[rows, outputs]`."""
        if not len(numbers):
            return self.scale.new_zeros(0, self.outputs)
        kernels, kind = torch.ops.quantized, "byte" if self.bits == 8 else "4bit"
        if self.table.device.type != "cpu":  # without the kernel for few bits
            unpacked = getattr(kernels, f"embedding_bag_{kind}_unpack")(self.table.cpu())[:, : self.outputs]
            return nn.functional.embedding_bag(numbers, unpacked.to(self.table.device), mode="sum")
        ends = torch.arange(0, numbers.numel() + 1, numbers.shape[1], dtype=torch.int32)
        look_up = getattr(kernels, f"embedding_bag_{kind}_rowwise_offsets")
        return look_up(self.table, numbers.flatten(), ends, False, 0, False, None, None, True)[:, : self.outputs]

    def _prepare(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return factors and offsets that give the distances from inputs, and each part's first table row; cached."""
        if self._prepared is None:
            exact = self.prototypes.float()
            number = torch.arange(self.count, device=exact.device)
            offsets = (self.count * exact.square().sum(2) + number).unsqueeze(2)
            first = torch.arange(self.parts, dtype=torch.int32, device=exact.device).unsqueeze(1) * self.count
            self._prepared = ((-2 * self.count) * exact).contiguous(), offsets, first
        return self._prepared
