"""Linear layers as lookup tables (product quantisation: Jegou et al., PAMI 2011; PQA: arXiv 2305.18334).

The input is divided into sub-vectors, and the nearest of a few prototypes is found for each. The product of each
prototype with the weights is stored in a table, and the layer's output is the sum of the selected table rows. A layer
of `inputs` by `outputs` thus takes `inputs * prototypes` multiplications, and `inputs / length` additions per output.

Distances are integers: inputs are rounded to the grid of the prototypes. Every sum is therefore exact in float32 in any
order, and the score of a row depends on that row alone. Each distance is multiplied by the number of prototypes, and
the prototype's index is added. The minimum then gives the index: one matrix product and one minimum.
"""

from typing import Self

import torch
from torch import Tensor, nn

from shunter.extensions.compression.compressed_linear import CompressedLinear
from shunter.models.output_layer import full_precision

LENGTHS, PROTOTYPES, TABLE_BITS = (1, 256), (2, 64), (4, 8)
EXACT = 2**24  # integers up to here are exact in float32
MOST_LEVEL = 127


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
