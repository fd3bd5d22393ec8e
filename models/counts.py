"""Resource demand of a model, as counted by `shunter.models.counting` and `shunter.models.graph.counting`."""

from dataclasses import dataclass
from typing import Literal, get_args

from shunter.models.trace import Phase

FLOAT_BYTES = 4
BatchAxis = Literal["count", "m", "n", "k"]
AXES: tuple[BatchAxis, ...] = get_args(BatchAxis)
LayerKind = Literal["matmul", "elementwise", "embedding", "optimizer"]


@dataclass(frozen=True, kw_only=True)
class MatmulCount:
    """One matrix product of a step, `[m, k] x [k, n]`, repeated `count` times; the batch axis has its size per sample.

    Attributes:
        batch_axis: Axis that is multiplied by the batch size, one of `count`, `m`, `n` and `k`; `none` if the product
            does not depend on the batch size.
        half: Whether the product is computed in bfloat16 if the placement uses it.
    """

    count: int
    m: int
    n: int
    k: int
    batch_axis: BatchAxis | Literal["none"]
    half: bool


@dataclass(frozen=True, kw_only=True)
class PrecisionCounts:
    """Counts that depend on the precision of the dense part, without its matrix products and the embeddings.

    Attributes:
        traffic_bytes_per_sample: Bytes read and written per sample by all operators other than matrix products.
        traffic_bytes_per_step: Bytes read and written per step, independent of the batch size: casts of weights, and
            their update.
        operators_per_step: Operators dispatched by forward, backward and update, views included. The embeddings count
            as one forward and one backward operator, the fused optimiser of the layers as one.
        activation_bytes_per_sample: Bytes stored from forward to backward.
        peak_bytes_per_sample: Peak bytes alive at a time, without weights and inputs.
        peak_bytes_per_step: Part of the peak that is independent of the batch size.
    """

    traffic_bytes_per_sample: float
    traffic_bytes_per_step: float = 0.0
    operators_per_step: int
    activation_bytes_per_sample: float = 0.0
    peak_bytes_per_sample: float = 0.0
    peak_bytes_per_step: float


@dataclass(frozen=True, kw_only=True)
class LayerCount:
    """Operations of one layer in one phase of a step, at one batch size.

    Attributes:
        name: Path of the module in the model; `interaction` for operators between modules; `embeddings`; `update`.
        kind: Matrix product, other operator of the dense part, embedding tables, or optimiser of the layers.
        phase: Forward, or backward with the update of the tables and the layers.
        dtype: Data type of the computation, `float32` or `bfloat16`.
        m: Rows of the left matrix of a product; 0 for other kinds.
        n: Columns of the right matrix.
        k: Length of the summed axis.
        count: Number of equal products; 1 for other kinds.
        flops: FLOPs, multiply and add counted as two; 0 for other kinds, which are memory-bound.
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
        """FLOPs per byte: the horizontal axis of a roofline plot."""
        return self.flops / (self.bytes_read + self.bytes_written)


@dataclass(frozen=True, kw_only=True)
class ModelCounts:
    """Resource demand of a model; in fp32 unless stated otherwise.

    Attributes:
        matmul_flops_per_sample: FLOPs of forward and backward, multiply and add counted as two.
        lookups_per_sample: Embedding rows read.
        lookup_bytes_per_sample: Bytes of the read rows; the update reads and writes as many bytes.
        input_bytes_per_sample: Bytes of dense values, ids, offsets and labels.
        parameter_bytes: Bytes of the weights of tables and layers.
        dense_parameter_bytes: Bytes of the weights of the layers alone.
        optimizer_bytes: Bytes of the optimiser states: one float per row of the tables, and those of the dense
            optimiser.
        tables: Bags that a sample looks up: one for each field, or for each position of a history read by position.
        embedding_dim: Width of the embedding vectors, which is that of the widest row.
        matmuls: Matrix products of a step.
        fp32: Counts that depend on the precision, in full precision.
        bf16: Counts that depend on the precision, under bfloat16 autocast.
        table_bytes: Bytes of weights and optimiser states of tables that may be stored in a file; 0 if none may.
        working_bytes_per_sample: Additional fp32 bytes of a sample's rows if the tables are stored in fp16.
    """

    matmul_flops_per_sample: float
    lookups_per_sample: float = 0.0
    lookup_bytes_per_sample: float = 0.0
    input_bytes_per_sample: float
    parameter_bytes: int
    dense_parameter_bytes: int
    optimizer_bytes: int
    tables: int = 0
    embedding_dim: int
    matmuls: tuple[MatmulCount, ...]
    fp32: PrecisionCounts
    bf16: PrecisionCounts
    table_bytes: int = 0
    working_bytes_per_sample: float = 0.0

    @property
    def activation_bytes_per_sample(self) -> float:
        """Bytes stored from forward to backward, in full precision."""
        return self.fp32.activation_bytes_per_sample

    @property
    def operators_per_step(self) -> int:
        """Operators dispatched in a step, in full precision."""
        return self.fp32.operators_per_step
