"""Gradients of a training step of several processes, and its compiled form: one graph of forward, loss and gradients.

In an uncompiled step, gradients of the dense layers are averaged over the processes during the backward pass.

The gradients leave the compiled graph as one array with the losses, so that the all-reduce needs no copy. They are
averaged while the tables' gradients are exchanged. The update is one operator for all layers, after the averaging.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from shunter.engine.config import Execution
from shunter.engine.loop.compile import compile_layers
from shunter.engine.loop.loss import weighted_sum
from shunter.engine.loop.step import autocast, seeded
from shunter.extensions.distributed.training.hosts import HostModel, from_all
from shunter.extensions.distributed.training.loader import BatchShare, own_losses
from shunter.models.registry import Model, layer_inputs

log = logging.getLogger(__name__)
# Of a bucket: so that much is on its way before the backward pass ends, in messages that cost more to send than to
# begin. PyTorch's own data parallelism takes 25 MB, for links that are begun more slowly than memory is.
BUCKET_BYTES = 4 << 20


class GradientBuckets:
    """Buckets of gradients, beginning with the last layers; each is all-reduced when its gradients are complete.

    The backward pass computes gradients in the same order in every process, and buckets are sent in a fixed order.
    Messages and additions are therefore deterministic. A bucket with a layer that a step does not use is sent at the
    end of the step. Parameters are given in the order of the forward pass; `bucket_bytes` is the least size of all
    buckets but the last.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], processes: int, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._processes = processes
        self._buckets = _buckets(list(parameters)[::-1], bucket_bytes)
        self._waits_for: list[int] = []
        self._ahead: list[Tensor] = []
        self._sent: list[tuple[Sequence[Tensor], Tensor, dist.Work]] = []
        self._next = len(self._buckets)
        for number, bucket in enumerate(self._buckets):
            for parameter in bucket:
                parameter.register_post_accumulate_grad_hook(lambda _, number=number: self._came(number))

    def begin(self, also: Sequence[Tensor]) -> None:
        """Prepare the buckets, before the backward pass; tensors in `also` are averaged in place with the first one."""
        self._waits_for = [len(bucket) for bucket in self._buckets]
        self._ahead, self._sent, self._next = list(also), [], 0

    def finish(self) -> None:
        """Wait for all buckets, after the backward pass; all gradients are then means."""
        while self._next < len(self._buckets):
            self._send()
        if self._ahead:
            self._send_together([])
        for tensors, flat, work in self._sent:
            work.wait()
            means = flat.div_(self._processes).split([tensor.numel() for tensor in tensors])
            for tensor, mean in zip(tensors, means, strict=True):
                tensor.copy_(mean.view_as(tensor))
        self._sent = []

    def _came(self, bucket: int) -> None:
        if self._next == len(self._buckets):
            return  # averages were not requested for this backward pass
        self._waits_for[bucket] -= 1
        while self._next < len(self._buckets) and not self._waits_for[self._next]:
            self._send()

    def _send(self) -> None:
        bucket, self._next = self._buckets[self._next], self._next + 1
        self._send_together([parameter.grad for parameter in bucket if parameter.grad is not None])

    @torch.no_grad()
    def _send_together(self, gradients: Sequence[Tensor]) -> None:
        tensors, self._ahead = [*self._ahead, *gradients], []
        if not tensors:
            return
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        work = dist.all_reduce(flat, async_op=True)
        assert work is not None, "all processes are of the group"
        self._sent.append((tensors, flat, work))


def _buckets(parameters: Sequence[nn.Parameter], least_bytes: int) -> list[list[nn.Parameter]]:
    buckets: list[list[nn.Parameter]] = []
    size = least_bytes
    for parameter in parameters:
        if size >= least_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += parameter.nbytes
    return buckets


class CompiledSharedStep:
    """Training step of this process on its share of a full batch, equal to the uncompiled step up to rounding.

    The model is in training mode on the CPU, and its layers have no state but weights.
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
