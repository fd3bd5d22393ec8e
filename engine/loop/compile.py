"""Compilation of a model's dense part with torch.compile.

Compiled layers give the same numbers within rounding, but not bit for bit. Whether a training run is compiled is
therefore decided before its first step and never changes: `Execution.compiled` belongs to the identity of its
checkpoints.
"""

import logging
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.engine.config import Execution
from shunter.engine.loop.step import autocast, seeded
from shunter.models.registry import Model, layer_inputs

# Best case of compilation: the largest share of step time saved, and the fewest seconds taken. A training run that
# would not gain even in the best case is not measured.
LARGEST_GAIN = 0.2
LEAST_COMPILE_SECONDS = 10.0
GRAPH_WARM_UPS = 3  # calls until CUDA graphs are recorded: compile, settle the memory, record
log = logging.getLogger(__name__)


class CompiledLayers:
    """Dense layers that run compiled on training batches of one size, and uncompiled on all other batches.

    The last batch of an epoch and evaluation have other shapes, and each shape would cost a compilation.

    On a GPU the compiled forward and backward kernels are also recorded as CUDA graphs. A small batch then costs one
    launch instead of one launch per kernel.

    Args:
        layers: Dense part of a model; its weights are shared, not copied.
        batch_size: Samples of the batches that run compiled.
        cuda_graphs: Whether the layers are on a GPU.
    """

    def __init__(self, layers: nn.Module, batch_size: int, *, cuda_graphs: bool = False) -> None:
        self._layers = layers
        self._batch_size = batch_size
        self._cuda_graphs = cuda_graphs
        mode = "reduce-overhead" if cuda_graphs else None
        self._compiled = torch.compile(layers, dynamic=False, fullgraph=True, mode=mode)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the logits of a batch, like the layers themselves (`shunter.models.families.family.Family`)."""
        suits = self._layers.training and torch.is_grad_enabled() and len(inputs[0]) == self._batch_size
        if not suits:
            return self._layers(*inputs)
        if self._cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # the last step's logits are no longer needed
        return self._compiled(*inputs)


def compile_layers(model: Model, execution: Execution) -> float | None:
    """Compile the dense part of a model in training mode; weights and random state do not change.

    The result is the seconds taken; None if compilation failed and the model stays uncompiled.
    """
    device = torch.device(execution.device)
    compiled = CompiledLayers(model.layers, execution.batch_size, cuda_graphs=device.type == "cuda")
    inputs = layer_inputs(model.spec, model.features, execution.batch_size, device)
    started = time.perf_counter()
    try:
        with seeded(0, device), autocast(device, execution.precision):
            for _ in range(GRAPH_WARM_UPS if device.type == "cuda" else 1):
                _forget_gradients(model, inputs)  # a recorded graph may write new gradients to their memory
                compiled(*inputs).sum().backward()
    except Exception as error:  # whatever the compiler's error, training runs uncompiled
        log.warning("The dense part stays uncompiled, since compiling failed: %s", str(error).split("\n", 1)[0])
        return None
    finally:
        _forget_gradients(model, inputs)
    model.compiled_layers = compiled
    return time.perf_counter() - started


def _forget_gradients(model: Model, inputs: Sequence[Tensor]) -> None:
    """Clear the gradients of the layers and inputs, as a training step does before its forward pass."""
    model.layers.zero_grad(set_to_none=True)
    for tensor in inputs:
        tensor.grad = None


def may_pay(steps: int, eager_step_seconds: float, trial_seconds: float = 0.0) -> bool:
    """Return True if compiling could save time in the best case, so that measuring it is worthwhile."""
    return steps * eager_step_seconds * LARGEST_GAIN > LEAST_COMPILE_SECONDS + trial_seconds


def pays(steps: int, eager_step_seconds: float, compiled_step_seconds: float, compile_seconds: float) -> bool:
    """Return True if compiling saves more seconds over all steps than it costs once."""
    return steps * (eager_step_seconds - compiled_step_seconds) > compile_seconds
