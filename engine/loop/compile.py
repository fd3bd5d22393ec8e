"""Compiling the dense part of a model with torch.compile, where that is worth its time.

Compiled, the layers give the same numbers within rounding, but not bit for bit. So whether a training is compiled is
settled before its first step and never changes: `Execution.compiled` belongs to the identity of its checkpoints.
"""

import logging
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.engine.config import Execution
from shunter.engine.loop.step import autocast, seeded
from shunter.models.registry import Model, layer_inputs

# What compiling can gain and must cost at best; a training too short for these is not even measured.
LARGEST_GAIN = 0.2
LEAST_COMPILE_SECONDS = 10.0
GRAPH_WARM_UPS = 3  # calls until CUDA graphs are recorded: one compiles, one settles the memory, one records
log = logging.getLogger(__name__)


class CompiledLayers:
    """Layers that are compiled for training on batches of one size, and run as they are on all others.

    The last batch of an epoch and evaluation have other shapes, each of which would cost a compilation of its own.

    On a GPU the compiled kernels are recorded in CUDA graphs too, forward and backward: a small batch then costs a
    launch, not a launch for each kernel.

    Args:
        layers: the dense part of a model; its weights stay where they are.
        batch_size: samples of the batches that are compiled for.
        cuda_graphs: whether the layers lie on a GPU.
    """

    def __init__(self, layers: nn.Module, batch_size: int, *, cuda_graphs: bool = False) -> None:
        self._layers = layers
        self._batch_size = batch_size
        self._cuda_graphs = cuda_graphs
        mode = "reduce-overhead" if cuda_graphs else None
        self._compiled = torch.compile(layers, dynamic=False, fullgraph=True, mode=mode)

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Score a batch, as the layers themselves (`shunter.models.families.family.Family`)."""
        suits = self._layers.training and torch.is_grad_enabled() and len(inputs[0]) == self._batch_size
        if not suits:
            return self._layers(*inputs)
        if self._cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()  # the last step's logits may be overwritten: they are used up
        return self._compiled(*inputs)


def compile_layers(model: Model, execution: Execution) -> float | None:
    """Compile the dense part of a model in training mode; weights and random state stay as they are.

    Returns:
        Seconds taken; None when the model is left uncompiled, since there is no compiler that works.
    """
    device = torch.device(execution.device)
    compiled = CompiledLayers(model.layers, execution.batch_size, cuda_graphs=device.type == "cuda")
    inputs = layer_inputs(model.spec, model.features, execution.batch_size, device)
    started = time.perf_counter()
    try:
        with seeded(0, device), autocast(device, execution.precision):
            for _ in range(GRAPH_WARM_UPS if device.type == "cuda" else 1):
                _forget_gradients(model, inputs)  # they may lie where a recorded graph writes the next ones
                compiled(*inputs).sum().backward()
    except Exception as error:  # whatever is wrong with compiler or toolchain, training goes on without
        log.warning("The dense part stays uncompiled, since compiling failed: %s", str(error).split("\n", 1)[0])
        return None
    finally:
        _forget_gradients(model, inputs)
    model.compiled_layers = compiled
    return time.perf_counter() - started


def _forget_gradients(model: Model, inputs: Sequence[Tensor]) -> None:
    """As a step does before its forward pass."""
    model.layers.zero_grad(set_to_none=True)
    for tensor in inputs:
        tensor.grad = None


def may_pay(steps: int, eager_step_seconds: float, trial_seconds: float = 0.0) -> bool:
    """Whether compiling could pay at best, so that measuring it is worth while.

    Args:
        steps: Steps of the training.
        eager_step_seconds: Seconds of one that is not compiled.
        trial_seconds: What measuring takes beside compiling.
    """
    return steps * eager_step_seconds * LARGEST_GAIN > LEAST_COMPILE_SECONDS + trial_seconds


def pays(steps: int, eager_step_seconds: float, compiled_step_seconds: float, compile_seconds: float) -> bool:
    """Whether what compiling saves over all steps is more than what it costs once."""
    return steps * (eager_step_seconds - compiled_step_seconds) > compile_seconds
