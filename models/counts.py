"""The demand of a model on a machine, as `shunter.models.counting` and `shunter.models.graph.counting` find it."""

from dataclasses import dataclass
from typing import Literal, get_args

from shunter.models.trace import Phase

FLOAT_BYTES = 4
BatchAxis = Literal["count", "m", "n", "k"]
AXES: tuple[BatchAxis, ...] = get_args(BatchAxis)
LayerKind = Literal["matmul", "elementwise", "embedding", "optimizer"]


@dataclass(frozen=True, kw_only=True)
class MatmulCount:
    """One matrix product of a step, `[m, k] x [k, n]`, done `count` times; the batch axis is given for one sample.

    Attributes:
        batch_axis: Which of `count`, `m`, `n` and `k` is to be multiplied by the batch size; `none` for a product that
            is of the step.
        half: Whether it is computed in bfloat16 where the placement says so.
    """

    count: int
    m: int
    n: int
    k: int
    batch_axis: BatchAxis | Literal["none"]
    half: bool


@dataclass(frozen=True, kw_only=True)
class PrecisionCounts:
    """What depends on the precision of the dense part, beyond its matrix products and the embeddings.

    Attributes:
        traffic_bytes_per_sample: Read and written by all operators that are no matrix product.
        traffic_bytes_per_step: The same, whatever the batch size: casts of weights, and their update.
        operators_per_step: Dispatched by forward, backward and update, views included; the embeddings count as one
            forward and one backward, the fused optimiser of the layers as one.
        activation_bytes_per_sample: Kept from forward to backward.
        peak_bytes_per_sample: Most that is alive at a time, beyond weights and inputs.
        peak_bytes_per_step: The same, whatever the batch size.
    """

    traffic_bytes_per_sample: float
    traffic_bytes_per_step: float
    operators_per_step: int
    activation_bytes_per_sample: float
    peak_bytes_per_sample: float
    peak_bytes_per_step: float


@dataclass(frozen=True, kw_only=True)
class LayerCount:
    """What one layer does in one phase of a step, at one batch size.

    Attributes:
        name: Path of the module in the model, `interaction` for what is done between modules, `embeddings`, `update`.
        kind: Matrix products; everything else of the dense part; the tables; the optimiser of the layers.
        phase: Forward, or backward with the update of the tables and the layers.
        dtype: Type in which it is computed, `float32` or `bfloat16`.
        m: Rows of the left side of a matrix product, 0 for other kinds.
        n: Columns of the right side.
        k: Length of what is summed over.
        count: Number of such products, 1 for other kinds.
        flops: Multiply and add counted as two; 0 for other kinds, which are bound by memory.
        bytes_read: Bytes of all operands.
        bytes_written: Bytes of all results.
    """

    name: str
    kind: LayerKind
    phase: Phase
    dtype: str
    m: int = 0
    n: int = 0
    k: int = 0
    count: int = 1
    flops: float = 0.0
    bytes_read: float
    bytes_written: float

    @property
    def intensity(self) -> float:
        """FLOPs for each byte: the horizontal axis of a roofline."""
        return self.flops / (self.bytes_read + self.bytes_written)


@dataclass(frozen=True, kw_only=True)
class ModelCounts:
    """The demand of a model; in fp32 where nothing else is said.

    Attributes:
        matmul_flops_per_sample: Forward and backward, multiply and add counted as two.
        lookups_per_sample: Embedding rows read.
        lookup_bytes_per_sample: Their bytes; the update reads and writes as much.
        input_bytes_per_sample: Dense values, ids, offsets and labels.
        parameter_bytes: Weights of tables and layers.
        dense_parameter_bytes: Weights of the layers alone.
        optimizer_bytes: One float a row for the tables, and what the dense optimiser keeps.
        tables: Bags that a sample looks up: one for each field, or for each position of a history that is read so.
        embedding_dim: Width of the vectors, so of the widest row.
        matmuls: The products of a step.
        fp32: Counts that depend on the precision, in full precision.
        bf16: Counts that depend on the precision, under bfloat16 autocast.
        table_bytes: Of weights and optimiser's state, those of tables whose rows may lie in a file; 0 where none may.
        working_bytes_per_sample: What a step takes of a sample's rows in fp32 beside tables that are kept in fp16.
    """

    matmul_flops_per_sample: float
    lookups_per_sample: float
    lookup_bytes_per_sample: float
    input_bytes_per_sample: float
    parameter_bytes: int
    dense_parameter_bytes: int
    optimizer_bytes: int
    tables: int
    embedding_dim: int
    matmuls: tuple[MatmulCount, ...]
    fp32: PrecisionCounts
    bf16: PrecisionCounts
    table_bytes: int = 0
    working_bytes_per_sample: float = 0.0

    @property
    def activation_bytes_per_sample(self) -> float:
        """Kept from forward to backward, in full precision."""
        return self.fp32.activation_bytes_per_sample

    @property
    def operators_per_step(self) -> int:
        """Dispatched in a step in full precision."""
        return self.fp32.operators_per_step
