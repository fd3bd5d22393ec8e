"""Resource demand of a model, counted from a training step that is traced on fake tensors, which take no memory."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import torch

from shunter.models.altered_layers import AlteredLayers, prepare
from shunter.models.counts import AXES, FLOAT_BYTES, BatchAxis, LayerCount, MatmulCount, ModelCounts, PrecisionCounts
from shunter.models.embeddings.role import EmbeddingTables
from shunter.models.optimizers import states_of
from shunter.models.registry import bag_tables, build_layers, can_be_in_file, check_spec, layer_inputs
from shunter.models.spec import NUMBER_BYTES, Features, ModelSpec
from shunter.models.trace import Operator, Phase, StepTrace, cached_trace, trace_step

# Batch sizes of the traced steps: the difference is the demand per sample, the rest the demand per step. Both are so
# large that memory peaks at the same point of the step as for every larger batch.
BATCHES = (512, 1024)
ID_BYTES = 4


def count_model(
    spec: ModelSpec,
    features: Features,
    *,
    ids_per_sample: Mapping[str, float] | None = None,
    dense_optimizer: str = "adam",
) -> ModelCounts:
    """Count the resource demand of a model.

    Args:
        spec: The architecture.
        features: The input features.
        ids_per_sample: Mean number of ids of each field; 1 for a field that is not named.
        dense_optimizer: Name in `shunter.models.optimizers`.

    Raises:
        RequestError: The model cannot be built.
    """
    check_spec(spec, features)
    full, half = ([_trace(spec, features, size, half=half) for size in BATCHES] for half in (False, True))
    # From a comparison of two batch sizes and two precisions.
    products = [[one for one in trace.operators if one.product] for trace in (full[0], full[1], half[0])]
    matmuls = tuple(_matmul(*same) for same in zip(*products, strict=True))
    tables = EmbeddingTables.count_bytes(spec.tables(features))
    lookups = _lookups(features, ids_per_sample)
    fields, bags = len(features.categorical), len(bag_tables(spec, features))
    parameters = full[0].parameters
    return ModelCounts(
        matmul_flops_per_sample=sum(2 * product.count * product.m * product.n * product.k for product in matmuls),
        lookups_per_sample=lookups,
        lookup_bytes_per_sample=_lookup_bytes(spec, features, ids_per_sample),
        input_bytes_per_sample=(len(features.dense) + features.outputs) * FLOAT_BYTES + (lookups + fields) * ID_BYTES,
        parameter_bytes=tables.weights + parameters * FLOAT_BYTES,
        dense_parameter_bytes=parameters * FLOAT_BYTES,
        optimizer_bytes=tables.optimizer + parameters * states_of(dense_optimizer) * FLOAT_BYTES,
        tables=bags,
        embedding_dim=spec.embedding_dim,
        matmuls=matmuls,
        fp32=_precision_counts(full, dense_optimizer),
        bf16=_precision_counts(half, dense_optimizer),
        table_bytes=tables.weights + tables.optimizer if can_be_in_file(spec) else 0,
        working_bytes_per_sample=_working_bytes(spec, features, lookups),
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
    """Count the operations of each layer of a model, to show where a step spends its time.

    Args:
        spec: The architecture.
        features: The input features.
        batch_size: Samples of the step.
        half: Whether the step runs under bfloat16 autocast.
        ids_per_sample: Mean number of ids of each field; 1 for a field that is not named.
        dense_optimizer: Name in `shunter.models.optimizers`.

    Raises:
        RequestError: The model cannot be built.
    """
    check_spec(spec, features)
    trace = _trace(spec, features, batch_size, half=half)
    lookups = _lookups(features, ids_per_sample) * batch_size
    rows_bytes = _lookup_bytes(spec, features, ids_per_sample) * batch_size
    pooled_bytes = len(bag_tables(spec, features)) * batch_size * spec.embedding_dim * FLOAT_BYTES
    forward = [operator for operator in trace.operators if operator.phase == "forward"]
    backward = [operator for operator in trace.operators if operator.phase == "backward"]
    states = states_of(dense_optimizer)
    weights = trace.parameters * FLOAT_BYTES
    return (
        _embedding_layer("forward", read=rows_bytes + lookups * ID_BYTES, written=pooled_bytes),
        *_layers(forward),
        *_layers(backward),
        # Each row and its one float of optimiser state are read and written; the gradient of each bag is read.
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


def count_parameter_bytes(spec: ModelSpec, features: Features, alterations: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of the weights of tables and layers, without tracing a training step.

    Args:
        spec: The architecture.
        features: The input features.
        alterations: Descriptions of altered layers (`shunter.models.altered_layers`).

    Raises:
        RequestError: The model cannot be built.
        ValueError: A description is not valid for these layers.
    """
    with torch.device("meta"):
        layers = build_layers(spec, features)
        prepare(layers, alterations or {})
    altered = [module for module in layers.modules() if isinstance(module, AlteredLayers)]
    tensors = [*layers.parameters(), *(buffer for module in altered for buffer in module.buffers())]
    tables = EmbeddingTables.count_bytes(spec.tables(features))
    return tables.weights + sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def count_flops_per_sample(spec: ModelSpec, features: Features) -> float:
    """Count the FLOPs per sample of the matrix products in forward and backward pass, from one traced step.

    Raises:
        RequestError: The model cannot be built.
    """
    trace = _trace(spec, features, BATCHES[0], half=False)
    return sum(operator.flops for operator in trace.operators if operator.product) / BATCHES[0]


@lru_cache(maxsize=64)  # a run needs the same few shapes in several steps: placement, training, model card
def _trace(spec: ModelSpec, features: Features, batch_size: int, *, half: bool) -> StepTrace:
    with torch.device("meta"):
        layers = build_layers(spec, features)
    make_inputs = partial(layer_inputs, spec, features, batch_size)
    named = f"{json.dumps(spec.to_dict(), sort_keys=True)} half={half} outputs={features.outputs}"
    return cached_trace(
        layers,
        make_inputs("meta"),
        named,
        lambda: trace_step(layers, partial(make_inputs, "cpu"), half=half, tasks=features.outputs),
    )


def _lookups(features: Features, ids_per_sample: Mapping[str, float] | None) -> float:
    return sum((ids_per_sample or {}).get(field.name, 1.0) for field in features.categorical)


def _lookup_bytes(spec: ModelSpec, features: Features, ids_per_sample: Mapping[str, float] | None) -> float:
    """Return the bytes of the embedding rows that a sample looks up in all tables."""
    tables = spec.tables(features)
    widths = zip(features.categorical, features.table_of, strict=True)
    return sum(
        (ids_per_sample or {}).get(field.name, 1.0) * tables[table].width * tables[table].number_bytes
        for field, table in widths
    )


def _working_bytes(spec: ModelSpec, features: Features, lookups: float) -> float:
    """Return the additional fp32 bytes of a sample if the tables are stored in fp16.

    The rows of a batch and their Adagrad sums are copied to an fp32 kernel with up to twice as many slots as rows.
    The pooled rows and their gradients are in fp32 too; of these, only the bytes beyond fp16 are counted here
    (`shunter.hardware.cost.memory_model.step_bytes` counts the others).
    """
    if spec.table_precision == "fp32":
        return 0.0
    beyond = FLOAT_BYTES - NUMBER_BYTES[spec.table_precision]
    pooled = 2 * len(bag_tables(spec, features)) * spec.embedding_dim * beyond
    return 2 * lookups * (spec.embedding_dim + 1) * FLOAT_BYTES + pooled


def _matmul(small: Operator, large: Operator, half: Operator) -> MatmulCount:
    assert small.product is not None
    assert large.product is not None
    sizes: dict[BatchAxis, int] = dict(zip(AXES, small.product, strict=True))
    growing: list[BatchAxis] = [axis for axis, there in zip(AXES, large.product, strict=True) if sizes[axis] != there]
    assert len(growing) == 1, f"a product of {small.module or 'the model'} does not grow with the batch along one axis"
    sizes[growing[0]] //= BATCHES[0]
    return MatmulCount(**sizes, batch_axis=growing[0], half=half.dtype == torch.bfloat16)


def _precision_counts(traces: Sequence[StepTrace], dense_optimizer: str) -> PrecisionCounts:
    """Return the counts for one precision, from traces at the two batch sizes."""
    small, large = traces
    traffic = [
        sum(operator.bytes_read + operator.bytes_written for operator in trace.operators if not operator.product)
        for trace in traces
    ]
    grown = BATCHES[1] - BATCHES[0]
    traffic_per_sample = (traffic[1] - traffic[0]) / grown
    peak_per_sample = (large.peak_bytes - small.peak_bytes) / grown
    update_bytes = (3 + 2 * states_of(dense_optimizer)) * small.parameters * FLOAT_BYTES
    return PrecisionCounts(
        traffic_bytes_per_sample=traffic_per_sample,
        traffic_bytes_per_step=traffic[0] - traffic_per_sample * BATCHES[0] + update_bytes,
        operators_per_step=len(small.operators) + 3,
        activation_bytes_per_sample=(large.kept_bytes - small.kept_bytes) / grown,
        peak_bytes_per_sample=peak_per_sample,
        peak_bytes_per_step=max(0.0, small.peak_bytes - peak_per_sample * BATCHES[0]),
    )


def _layers(operators: Sequence[Operator]) -> Iterator[LayerCount]:
    """Yield a count for each matrix product, and one for all operators of a module between two products."""
    moving = [operator for operator in operators if operator.bytes_read + operator.bytes_written]
    for (module, is_product), group in groupby(
        moving, key=lambda operator: (operator.module, operator.product is not None)
    ):
        name = module or "interaction"
        for same in ([operator] for operator in group) if is_product else [list(group)]:
            figures: dict[str, int] = {}
            if same[0].product:
                figures = {**dict(zip(AXES, same[0].product, strict=True)), "flops": same[0].flops}
            yield LayerCount(
                name=name,
                kind="matmul" if is_product else "elementwise",
                phase=same[0].phase,
                dtype=str(same[-1].dtype).removeprefix("torch."),
                **figures,
                bytes_read=sum(operator.bytes_read for operator in same),
                bytes_written=sum(operator.bytes_written for operator in same),
            )


def _embedding_layer(phase: Phase, *, read: float, written: float) -> LayerCount:
    return LayerCount(
        name="embeddings", kind="embedding", phase=phase, dtype="float32", bytes_read=read, bytes_written=written
    )
