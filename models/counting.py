"""What a model asks of a machine: counted from a step traced on fake tensors, without any of its memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Literal, get_args

import torch

from models.registry import bag_tables, build_layers, check_spec, layer_inputs
from models.spec import Features, ModelSpec
from models.trace import Operator, Phase, StepTrace, trace_step

# Two sizes at which the step is traced: what grows between them is of the samples, the rest of the step. They are so
# large that the peak of the memory lies where it lies for every larger batch.
BATCHES = (512, 1024)
FLOAT_BYTES = 4
ID_BYTES = 4
# Floats of optimiser state for each parameter of the dense part. Shampoo keeps two beside two square matrices for each
# dimension of a block: six where blocks are square.
DENSE_STATES = {"adam": 2, "adagrad": 1, "sgd": 0, "shampoo": 6}

BatchAxis = Literal["count", "m", "n", "k"]
AXES: tuple[BatchAxis, ...] = get_args(BatchAxis)
LayerKind = Literal["matmul", "elementwise", "embedding", "optimizer"]


@dataclass(frozen=True, kw_only=True)
class MatmulCount:
    """One matrix product of a step, `[m, k] x [k, n]`, done `count` times; the batch axis is given for one sample.

    Attributes:
        batch_axis: which of `count`, `m`, `n` and `k` is to be multiplied by the batch size; `none` for a product that
            is of the step.
        half: whether it is computed in bfloat16 where the placement says so.
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
        traffic_bytes_per_sample: read and written by all operators that are no matrix product.
        traffic_bytes_per_step: the same, whatever the batch size: casts of weights, and their update.
        operators_per_step: dispatched by forward, backward and update, views included; the embeddings count as one
            forward and one backward, the fused optimiser of the layers as one.
        activation_bytes_per_sample: kept from forward to backward.
        peak_bytes_per_sample: most that is alive at a time, beyond weights and inputs.
        peak_bytes_per_step: the same, whatever the batch size.
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
        name: path of the module in the model, `interaction` for what is done between modules, `embeddings`, `update`.
        kind: matrix products; everything else of the dense part; the tables; the optimiser of the layers.
        phase: forward, or backward with the update of the tables and the layers.
        dtype: in which it is computed, `float32` or `bfloat16`.
        m: rows of the left side of a matrix product, 0 for other kinds.
        n: columns of the right side.
        k: what is summed over.
        count: number of such products, 1 for other kinds.
        flops: multiply and add counted as two; 0 for other kinds, which are bound by memory.
        bytes_read: of all operands.
        bytes_written: of all results.
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
        matmul_flops_per_sample: forward and backward, multiply and add counted as two.
        lookups_per_sample: embedding rows read.
        lookup_bytes_per_sample: their bytes; the update reads and writes as much.
        input_bytes_per_sample: dense values, ids, offsets and labels.
        parameter_bytes: weights of tables and layers.
        dense_parameter_bytes: of the layers alone.
        optimizer_bytes: one float a row for the tables, and what the dense optimiser keeps.
        tables: bags that a sample looks up: one for each field, or for each position of a history that is read so.
        embedding_dim: width of the vectors, so of the widest row.
        matmuls: the products of a step.
        fp32: what depends on the precision, in full precision.
        bf16: the same under bfloat16 autocast.
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

    @property
    def activation_bytes_per_sample(self) -> float:
        """Kept from forward to backward, in full precision."""
        return self.fp32.activation_bytes_per_sample

    @property
    def operators_per_step(self) -> int:
        """Dispatched in a step in full precision."""
        return self.fp32.operators_per_step


def count_model(
    spec: ModelSpec,
    features: Features,
    *,
    ids_per_sample: Mapping[str, float] | None = None,
    dense_optimizer: str = "adam",
) -> ModelCounts:
    """Count what a model asks for.

    Args:
        spec: the architecture.
        features: the input.
        ids_per_sample: mean number of ids of each field; 1 for a field that is not named.
        dense_optimizer: `adam`, `adagrad`, `sgd` or `shampoo`.

    Raises:
        RequestError: the model cannot be built.
    """
    check_spec(spec, features)
    full, half = ([_trace(spec, features, size, half=half) for size in BATCHES] for half in (False, True))
    matmuls = _matmuls(full[0], full[1], half[0])
    tables = spec.tables(features)
    rows, numbers = sum(table.rows for table in tables), sum(table.rows * table.width for table in tables)
    lookups = _lookups(features, ids_per_sample)
    fields, bags = len(features.categorical), len(bag_tables(spec, features))
    parameters = full[0].parameters
    return ModelCounts(
        matmul_flops_per_sample=sum(2 * one.count * one.m * one.n * one.k for one in matmuls),
        lookups_per_sample=lookups,
        lookup_bytes_per_sample=_lookup_bytes(spec, features, ids_per_sample),
        input_bytes_per_sample=(len(features.dense) + features.outputs) * FLOAT_BYTES + (lookups + fields) * ID_BYTES,
        parameter_bytes=(numbers + parameters) * FLOAT_BYTES,
        dense_parameter_bytes=parameters * FLOAT_BYTES,
        optimizer_bytes=(rows + parameters * DENSE_STATES[dense_optimizer]) * FLOAT_BYTES,
        tables=bags,
        embedding_dim=spec.embedding_dim,
        matmuls=matmuls,
        fp32=_precision_counts(full, dense_optimizer),
        bf16=_precision_counts(half, dense_optimizer),
    )


def count_layers(
    spec: ModelSpec,
    features: Features,
    *,
    batch_size: int = 512,
    half: bool = False,
    ids_per_sample: Mapping[str, float] | None = None,
    dense_optimizer: str = "adam",
) -> tuple[LayerCount, ...]:
    """Count each layer of a model, for a picture of where a step spends its time.

    Args:
        spec: the architecture.
        features: the input.
        batch_size: samples of the step.
        half: under bfloat16 autocast.
        ids_per_sample: mean number of ids of each field; 1 for a field that is not named.
        dense_optimizer: as for `count_model`.

    Raises:
        RequestError: the model cannot be built.
    """
    check_spec(spec, features)
    trace = _trace(spec, features, batch_size, half=half)
    lookups = _lookups(features, ids_per_sample) * batch_size
    rows_bytes = _lookup_bytes(spec, features, ids_per_sample) * batch_size
    pooled_bytes = len(bag_tables(spec, features)) * batch_size * spec.embedding_dim * FLOAT_BYTES
    forward = [one for one in trace.operators if one.phase == "forward"]
    backward = [one for one in trace.operators if one.phase == "backward"]
    states = DENSE_STATES[dense_optimizer]
    weights = trace.parameters * FLOAT_BYTES
    return (
        _embedding_layer("forward", read=rows_bytes + lookups * ID_BYTES, written=pooled_bytes),
        *_layers(forward),
        *_layers(backward),
        # Rows and their one float of state are read and written; the gradient of each bag is read.
        _embedding_layer(
            "backward",
            read=pooled_bytes + rows_bytes + lookups * (FLOAT_BYTES + ID_BYTES),
            written=rows_bytes + lookups * FLOAT_BYTES,
        ),
        LayerCount(
            name="update",
            kind="optimizer",
            phase="backward",
            dtype="float32",
            bytes_read=(2 + states) * weights,
            bytes_written=(1 + states) * weights,
        ),
    )


def count_parameter_bytes(spec: ModelSpec, features: Features) -> int:
    """Weights of tables and layers, as `count_model` has them, without tracing a step.

    Raises:
        RequestError: the model cannot be built.
    """
    with torch.device("meta"):
        layers = build_layers(spec, features)
    tables = sum(table.rows * table.width for table in spec.tables(features))
    return (tables + sum(parameter.numel() for parameter in layers.parameters())) * FLOAT_BYTES


def count_flops_per_sample(spec: ModelSpec, features: Features) -> float:
    """`matmul_flops_per_sample` as `count_model` has it, from one traced step instead of four.

    Raises:
        RequestError: the model cannot be built.
    """
    trace = _trace(spec, features, BATCHES[0], half=False)
    return sum(one.flops for one in trace.operators if one.product) / BATCHES[0]


def _trace(spec: ModelSpec, features: Features, batch_size: int, *, half: bool) -> StepTrace:
    with torch.device("meta"):
        layers = build_layers(spec, features)
    return trace_step(
        layers, partial(layer_inputs, spec, features, batch_size, "cpu"), half=half, tasks=features.outputs
    )


def _lookups(features: Features, ids_per_sample: Mapping[str, float] | None) -> float:
    return sum((ids_per_sample or {}).get(field.name, 1.0) for field in features.categorical)


def _lookup_bytes(spec: ModelSpec, features: Features, ids_per_sample: Mapping[str, float] | None) -> float:
    """Bytes of the rows that a sample looks up, each as wide as its table."""
    tables = spec.tables(features)
    widths = zip(features.categorical, features.table_of, strict=True)
    return sum(
        (ids_per_sample or {}).get(field.name, 1.0) * tables[table].width * FLOAT_BYTES for field, table in widths
    )


def _matmuls(small: StepTrace, large: StepTrace, half: StepTrace) -> tuple[MatmulCount, ...]:
    """The products of a step, by comparing two batch sizes and two precisions."""
    products = [[one for one in trace.operators if one.product] for trace in (small, large, half)]
    return tuple(_matmul(one, larger, lower) for one, larger, lower in zip(*products, strict=True))


def _matmul(small: Operator, large: Operator, half: Operator) -> MatmulCount:
    assert small.product is not None
    assert large.product is not None
    sizes: dict[BatchAxis, int] = dict(zip(AXES, small.product, strict=True))
    growing: list[BatchAxis] = [
        axis for axis, here, there in zip(AXES, small.product, large.product, strict=True) if here != there
    ]
    assert len(growing) == 1, f"a product of {small.module or 'the model'} does not grow with the batch along one axis"
    axis = growing[0]
    sizes[axis] //= BATCHES[0]
    return MatmulCount(
        count=sizes["count"],
        m=sizes["m"],
        n=sizes["n"],
        k=sizes["k"],
        batch_axis=axis,
        half=half.dtype == torch.bfloat16,
    )


def _precision_counts(traces: Sequence[StepTrace], dense_optimizer: str) -> PrecisionCounts:
    """From the traces at the two batch sizes."""
    small, large = traces
    traffic = [_traffic_bytes(trace) for trace in traces]
    grown = BATCHES[1] - BATCHES[0]
    traffic_per_sample = (traffic[1] - traffic[0]) / grown
    peak_per_sample = (large.peak_bytes - small.peak_bytes) / grown
    update_bytes = (3 + 2 * DENSE_STATES[dense_optimizer]) * small.parameters * FLOAT_BYTES
    return PrecisionCounts(
        traffic_bytes_per_sample=traffic_per_sample,
        traffic_bytes_per_step=traffic[0] - traffic_per_sample * BATCHES[0] + update_bytes,
        operators_per_step=len(small.operators) + 3,
        activation_bytes_per_sample=(large.kept_bytes - small.kept_bytes) / grown,
        peak_bytes_per_sample=peak_per_sample,
        peak_bytes_per_step=max(0.0, small.peak_bytes - peak_per_sample * BATCHES[0]),
    )


def _traffic_bytes(trace: StepTrace) -> int:
    return sum(one.bytes_read + one.bytes_written for one in trace.operators if not one.product)


def _layers(operators: Sequence[Operator]) -> Iterator[LayerCount]:
    """Each matrix product by itself; what else a module does between two of them as one."""
    moving = [one for one in operators if one.bytes_read + one.bytes_written]
    for (module, is_product), group in groupby(moving, key=lambda one: (one.module, one.product is not None)):
        name = module or "interaction"
        if is_product:
            yield from (_product_layer(name, one) for one in group)
            continue
        same = list(group)
        yield LayerCount(
            name=name,
            kind="elementwise",
            phase=same[0].phase,
            dtype=str(same[-1].dtype).removeprefix("torch."),
            bytes_read=sum(one.bytes_read for one in same),
            bytes_written=sum(one.bytes_written for one in same),
        )


def _product_layer(name: str, operator: Operator) -> LayerCount:
    assert operator.product is not None
    count, m, n, k = operator.product
    return LayerCount(
        name=name,
        kind="matmul",
        phase=operator.phase,
        dtype=str(operator.dtype).removeprefix("torch."),
        count=count,
        m=m,
        n=n,
        k=k,
        flops=operator.flops,
        bytes_read=operator.bytes_read,
        bytes_written=operator.bytes_written,
    )


def _embedding_layer(phase: Phase, *, read: float, written: float) -> LayerCount:
    return LayerCount(
        name="embeddings", kind="embedding", phase=phase, dtype="float32", bytes_read=read, bytes_written=written
    )
