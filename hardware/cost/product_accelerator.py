"""Simulated accelerator for product-quantised layers, beside one of multipliers: cycles, area, performance an area.

PQA (AbouElhamayed et al., ACM TRETS 2024, arXiv 2305.18334): lanes look for the nearest prototype of sub-vectors while
others add up the rows of tables that were found before; both halves work at the same time, and the tables of the next
layer are read while one is computed. Cycles are the paper's closed form; areas are those of operators in 45 nm that
Horowitz gave (ISSCC 2014), with memory by the bit. Nothing here was measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Square micrometres in 45 nm: Horowitz, "Computing's Energy Problem", ISSCC 2014, figure 1.1.9; the cell of a static
# memory of that process has about .35, and as much again for what addresses and reads it.
ADDER_8_BITS, ADDER_16_BITS, ADDER_32_BITS, MULTIPLIER_8_BITS = 36.0, 67.0, 137.0, 282.0
MEMORY_BIT = 0.7
MEMORY_BYTES_PER_SECOND, MEMORY_EFFICIENCY, CLOCK_HERTZ = 35.2e9, 0.8, 300e6  # DDR and clock of the paper's defaults


@dataclass(frozen=True, kw_only=True)
class MatrixLayer:
    """A layer as a product of matrices.

    Attributes:
        inputs: Width of a column that comes in; of a convolution, its window times the channels.
        outputs: Width of a column that goes out.
        columns: Columns of one sample: 1 for a linear layer, the pixels for a convolution.
    """

    inputs: int
    outputs: int
    columns: int = 1


@dataclass(frozen=True, kw_only=True)
class ProductForm:
    """How a layer is quantised.

    Attributes:
        length: Numbers of a sub-vector.
        prototypes: Prototypes of each.
        prototype_bits: Bits of a number of a prototype.
        table_bits: Bits of a number of the tables.
    """

    length: int
    prototypes: int
    prototype_bits: int = 6
    table_bits: int = 5


@dataclass(frozen=True, kw_only=True)
class ProductAccelerator:
    """Lanes of an accelerator of tables.

    Attributes:
        part_lanes: Sub-vectors at a time.
        prototype_lanes: Prototypes of each at a time.
        length_lanes: Numbers of each at a time.
        output_lanes: Outputs of each sub-vector at a time.
    """

    part_lanes: int
    prototype_lanes: int
    length_lanes: int
    output_lanes: int

    def compute_cycles(self, layer: MatrixLayer, form: ProductForm) -> int:
        """Cycles of a layer's columns, when the search and the sums of different sub-vectors overlap."""
        parts = math.ceil(layer.inputs / form.length)
        search = math.ceil(form.length / self.length_lanes) * math.ceil(form.prototypes / self.prototype_lanes)
        add = math.ceil(layer.outputs / self.output_lanes)
        return max(search, add) * math.ceil(parts / self.part_lanes) * layer.columns

    def table_bits(self, layer: MatrixLayer, form: ProductForm) -> int:
        """Bits of a layer's prototypes and tables."""
        parts = math.ceil(layer.inputs / form.length)
        numbers = form.length * form.prototype_bits + layer.outputs * form.table_bits
        return parts * form.prototypes * numbers

    def seconds(self, layers: Sequence[MatrixLayer], form: ProductForm) -> float:
        """Time of all layers of a sample; of each the longer of computing it and reading its tables."""
        return sum(
            max(self.compute_cycles(layer, form) / CLOCK_HERTZ, load_seconds(self.table_bits(layer, form)))
            for layer in layers
        )

    def area(self, layers: Sequence[MatrixLayer], form: ProductForm) -> float:
        """Square micrometres: of the lanes, and of memory for the largest layer twice, since the next is read too."""
        difference = 2 * ADDER_8_BITS + ADDER_16_BITS  # |a - b|, added to the sum of the sub-vector
        search = self.part_lanes * self.prototype_lanes * self.length_lanes * difference
        sums = self.part_lanes * self.output_lanes * ADDER_16_BITS
        return search + sums + 2 * max(self.table_bits(layer, form) for layer in layers) * MEMORY_BIT


@dataclass(frozen=True, kw_only=True)
class MultiplierArray:
    """An accelerator that multiplies numbers of 8 bits.

    Attributes:
        input_lanes: Inputs at a time.
        output_lanes: Outputs at a time.
    """

    input_lanes: int
    output_lanes: int

    def compute_cycles(self, layer: MatrixLayer) -> int:
        """Cycles of a layer's columns."""
        return math.ceil(layer.inputs / self.input_lanes) * math.ceil(layer.outputs / self.output_lanes) * layer.columns

    def seconds(self, layers: Sequence[MatrixLayer]) -> float:
        """Time of all layers of a sample, as `ProductAccelerator.seconds`."""
        return sum(
            max(self.compute_cycles(layer) / CLOCK_HERTZ, load_seconds(8 * layer.inputs * layer.outputs))
            for layer in layers
        )

    def area(self, layers: Sequence[MatrixLayer]) -> float:
        """Square micrometres, as `ProductAccelerator.area`."""
        lanes = self.input_lanes * self.output_lanes * (MULTIPLIER_8_BITS + ADDER_32_BITS)
        return lanes + 2 * max(8 * layer.inputs * layer.outputs for layer in layers) * MEMORY_BIT


def load_seconds(bits: int) -> float:
    """Time to read what a layer keeps from outside."""
    return bits / 8 / (MEMORY_BYTES_PER_SECOND * MEMORY_EFFICIENCY)


def performance_per_area(
    layers: Sequence[MatrixLayer], form: ProductForm, tables: ProductAccelerator, multipliers: MultiplierArray
) -> float:
    """Samples a second and square micrometre of the accelerator of tables, over those of the one of multipliers."""
    own = tables.seconds(layers, form) * tables.area(layers, form)
    return multipliers.seconds(layers) * multipliers.area(layers) / own


def resnet20() -> tuple[MatrixLayer, ...]:
    """The convolutions of ResNet20 for CIFAR-10 (He et al., CVPR 2016) that PQA quantises: all but the first."""
    layers: list[MatrixLayer] = []
    channels = 16
    for width, pixels in ((16, 32 * 32), (32, 16 * 16), (64, 8 * 8)):
        for _ in range(6):
            layers.append(MatrixLayer(inputs=9 * channels, outputs=width, columns=pixels))
            channels = width
    return tuple(layers)


# One that comes near to the paper's 3.1 with its form (9, 8), and the array of multipliers beside it. The ratio depends
# on the lanes and the prototypes: `benchmarks.efficiency.parts.product_accelerator` shows how much.
REFERENCE_FORM = ProductForm(length=9, prototypes=8)
REFERENCE_TABLES = ProductAccelerator(part_lanes=4, prototype_lanes=4, length_lanes=9, output_lanes=16)
REFERENCE_MULTIPLIERS = MultiplierArray(input_lanes=16, output_lanes=16)
