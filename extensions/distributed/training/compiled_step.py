"""Compiled training step of several processes: forward, loss and all gradients of the layers in one graph.

The gradients leave the graph as one array with the losses, so that the all-reduce needs no copy. They are averaged
while the tables' gradients are exchanged. The update is one operator for all layers, after the averaging.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from shunter.engine.config import Execution
from shunter.engine.loop.compile import compile_layers
from shunter.engine.loop.loss import weighted_sum
from shunter.engine.loop.step import autocast, seeded
from shunter.extensions.distributed.training.agreement import from_all
from shunter.extensions.distributed.training.hosts import HostModel
from shunter.extensions.distributed.training.loader import BatchShare, own_losses
from shunter.models.registry import Model, layer_inputs

log = logging.getLogger(__name__)


class CompiledSharedStep:
    """Training step of this process on its share of a full batch, equal to the uncompiled step up to rounding.

    Args:
        model: Model in training mode, on the CPU, whose layers have no state but weights.
        optimizer: Optimiser of its layers.
        execution: Precision, and the batch size of all processes.
    """

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, execution: Execution, processes: int) -> None:
        self._model, self._optimizer = model, optimizer
        self._batch_size, self._processes = execution.batch_size, processes
        self._parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._sizes = [parameter.numel() for parameter in self._parameters]
        # torch counts what it compiles of one function over the whole process, and else refuses the ninth.
        alone: Any = {"isolate_recompiles": True}
        self._compiled = torch.compile(self._joint(execution.precision), dynamic=False, fullgraph=True, **alone)

    def suits(self, batch: BatchShare) -> bool:
        """Return True if the batch of all processes is full; every process gets the same answer."""
        return batch.samples_of_all == self._batch_size and self._model.layers.training

    def __call__(self, batch: BatchShare, weights: Tensor | None, between: Callable[[], None]) -> Tensor:
        """Train on a share of a full batch; return the mean loss over the whole batch.

        `between` is called after the lookup, before the layers are computed.
        """
        inputs = self._model.layer_inputs(*batch.inputs)
        between()
        together, of_pooled = self._run(inputs, batch, weights)
        averaging = dist.all_reduce(together, async_op=True)
        assert averaging is not None, "all processes are of the group"
        inputs[1].backward(of_pooled)  # the tables update themselves
        averaging.wait()
        *gradients, losses = together.div_(self._processes).split([*self._sizes, len(together) - sum(self._sizes)])
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient.view_as(parameter)
        self._model.embeddings.after_backward()
        self._optimizer.step()
        return losses.view(batch.labels.shape[1:]).clone()  # the rest of the array is let go of

    def warm_up(self, batch: BatchShare, weights: Tensor | None) -> None:
        """Compile the step without changing the model."""
        self._run(layer_inputs(self._model.spec, self._model.features, len(batch), "cpu"), batch, weights)

    def _run(self, inputs: Sequence[Tensor], batch: BatchShare, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return gradients of the layers and losses as one array, and the gradient of the looked-up embeddings."""
        own = batch.own
        with torch.no_grad():
            return self._compiled(
                [parameter.detach() for parameter in self._parameters],
                [tensor.detach() for tensor in inputs],
                (batch.labels[:own], None if batch.shares is None else batch.shares[:own], weights),
            )

    def _joint(self, precision: str) -> Callable[..., tuple[Tensor, Tensor]]:
        """Compute the step as a function of tensors alone, so that it compiles to one graph."""
        layers, device = self._model.layers, torch.device("cpu")
        names_of = {parameter: name for name, parameter in layers.named_parameters()}
        names = [names_of[parameter] for parameter in self._parameters]
        processes, samples, label_losses = self._processes, self._batch_size, self._model.loss

        def loss(
            parameters: list[Tensor], pooled: Tensor, inputs: list[Tensor], targets: tuple[Tensor, ...]
        ) -> tuple[Tensor, Tensor]:
            with autocast(device, precision):
                dense, _, *rest = inputs
                named = dict(zip(names, parameters, strict=True))
                logits = torch.func.functional_call(layers, named, (dense, pooled, *rest))
            labels, shares, weights = targets
            losses = own_losses(
                logits[: len(labels)], labels, shares, processes=processes, samples=samples, loss=label_losses
            )
            return weighted_sum(losses, weights), losses

        def joint(parameters: list[Tensor], inputs: list[Tensor], targets: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
            differentiate = torch.func.grad(loss, argnums=(0, 1), has_aux=True)
            (gradients, of_pooled), losses = differentiate(parameters, inputs[1], inputs, targets)
            return torch.cat([*(gradient.flatten() for gradient in gradients), losses.flatten()]), of_pooled

        return joint


def compile_together(
    model: Model,
    optimizer: torch.optim.Optimizer,
    execution: Execution,
    batch: BatchShare,
    weights: Tensor | None,
) -> float | None:
    """Compile the part of a step that every process can compile; all processes call this with a share of a full batch.

    On a CPU, for layers whose only state is their weights, it is the whole step except for the tables and the update.
    Otherwise it is only the layers. The first process compiles before the others, which then find most results in
    torch's cache on this machine. If compilation fails in one process, no process compiles.

    Args:
        model: Model in training mode; weights and random state are not changed.
        optimizer: Optimiser of its layers.
        execution: Device, precision and the batch size of all processes.
        batch: Share of a full batch, for its shapes.
        weights: Weights of the losses of several tasks.

    Returns:
        Seconds until all processes have compiled; None if none has compiled.
    """
    if isinstance(model, HostModel):
        log.warning("The layers are not compiled, because hosts have different towers.")
        return None
    started = time.perf_counter()
    keeps_more = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.layers.modules())
    if execution.device == "cpu" and not keeps_more and batch.samples_of_all == execution.batch_size:
        step = CompiledSharedStep(model, optimizer, execution, dist.get_world_size())
        problem = _first_problem(lambda: step.warm_up(batch, weights))
        if problem is None:
            model.compiled_step = step
            return time.perf_counter() - started
        log.info("The step is not compiled as a whole: %s", problem)

    def compile_own_layers() -> None:
        if compile_layers(model, replace(execution, batch_size=len(batch))) is None:
            raise RuntimeError("compiling failed in one process")

    problem = _first_problem(compile_own_layers)
    if problem is None:
        return time.perf_counter() - started
    model.compiled_layers = None
    if dist.get_rank() == 0:
        log.warning("The layers are not compiled in any process, because %s.", problem)
    return None


def _first_problem(compile_own: Callable[[], object]) -> str | None:
    """Let the first process compile, then the others; return the error of the first failed process, or None."""
    problem = None
    for is_first in (True, False):
        if is_first == (dist.get_rank() == 0):
            try:
                with seeded(0, torch.device("cpu")):
                    compile_own()
            except Exception as error:  # any fault of compiler or toolchain: training continues without
                problem = str(error).split("\n", 1)[0]
        found = next((one for one in from_all(problem) if one is not None), None)
        if found is not None:
            return found
    return None
