"""What one sample asks of a machine: counted from the model on the meta device, without any of its memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from models.dlrm import DenseLayers
from models.registry import check_spec
from models.spec import Features, ModelSpec

BATCH = 64
FLOAT_BYTES = 4
ID_BYTES = 4
# Floats of optimiser state for each parameter of the dense part. Shampoo keeps two beside two square matrices for each
# dimension of a block: six where blocks are square.
DENSE_STATES = {"adam": 2, "adagrad": 1, "sgd": 0, "shampoo": 6}


@dataclass(frozen=True, kw_only=True)
class ModelCounts:
    """The demand of a model, in fp32.

    Attributes:
        matmul_flops_per_sample: forward and backward, multiply and add counted as two.
        lookups_per_sample: embedding rows read.
        lookup_bytes_per_sample: their bytes; the update reads and writes as much.
        input_bytes_per_sample: dense values, ids, offsets and label.
        parameter_bytes: weights of tables and layers.
        optimizer_bytes: one float a row for the tables, and what the dense optimiser keeps.
        activation_bytes_per_sample: kept from forward to backward.
        operators_per_step: torch operators dispatched by forward, backward and update, views included; the embeddings
            count as one forward and one backward, the fused optimiser of the layers as one.
    """

    matmul_flops_per_sample: float
    lookups_per_sample: float
    lookup_bytes_per_sample: float
    input_bytes_per_sample: float
    parameter_bytes: int
    optimizer_bytes: int
    activation_bytes_per_sample: float
    operators_per_step: int


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
    with torch.device("meta"):
        layers = DenseLayers(spec, len(features.dense), len(features.categorical))
        dense = torch.zeros(BATCH, len(features.dense))
        pooled = torch.zeros(BATCH, len(features.categorical), spec.embedding_dim, requires_grad=True)
    dense_parameters = sum(parameter.numel() for parameter in layers.parameters())
    flops, operators, activation_bytes = _trace(layers, dense, pooled)
    rows = sum(field.rows for field in features.categorical)
    lookups = sum((ids_per_sample or {}).get(field.name, 1.0) for field in features.categorical)
    fields = len(features.categorical)
    return ModelCounts(
        matmul_flops_per_sample=flops / BATCH,
        lookups_per_sample=lookups,
        lookup_bytes_per_sample=lookups * spec.embedding_dim * FLOAT_BYTES,
        input_bytes_per_sample=(len(features.dense) + 1) * FLOAT_BYTES + (lookups + fields) * ID_BYTES,
        parameter_bytes=(rows * spec.embedding_dim + dense_parameters) * FLOAT_BYTES,
        optimizer_bytes=(rows + dense_parameters * DENSE_STATES[dense_optimizer]) * FLOAT_BYTES,
        activation_bytes_per_sample=activation_bytes / BATCH,
        operators_per_step=operators + 3,
    )


class _CountOperators(TorchDispatchMode):
    """Counts what reaches the dispatcher."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.operators += 1
        return func(*args, **(kwargs or {}))


def _trace(layers: DenseLayers, dense: Tensor, pooled: Tensor) -> tuple[int, int, int]:
    """Run a step of the layers on the meta device: FLOPs, operators, bytes of distinct activations kept."""
    own = {parameter.untyped_storage()._cdata for parameter in layers.parameters()}
    own |= {buffer.untyped_storage()._cdata for buffer in layers.buffers()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        key = tensor.untyped_storage()._cdata
        if key not in own:
            kept[key] = tensor
        return tensor

    flop_counter, operator_counter = FlopCounterMode(display=False), _CountOperators()
    with flop_counter, operator_counter, saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = layers(dense, pooled)
        torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits)).backward()
    activation_bytes = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    return flop_counter.get_total_flops(), operator_counter.operators, activation_bytes
