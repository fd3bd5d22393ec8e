"""A training step on a GPU, recorded once as a CUDA graph and then launched as a whole.

A step of a recommendation model is some hundred small kernels. On an H100 they take .8 ms for 8,192 samples, and the
host takes 5 ms to launch them one by one. A recorded step is one launch of the same kernels in the same order, so that
it learns bit by bit what the step itself does, dropout included: whether a step is recorded is no part of a training's
identity, and nothing is compiled.
"""

import gc
import logging
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shunter.engine.config import Execution
from shunter.engine.data.batch import Batch
from shunter.engine.loop.fused_adam import FusedAdam
from shunter.engine.loop.step import plain_step
from shunter.hardware.uncompiled import SGD
from shunter.models.registry import Model

# Steps in a row that must be alike before they are recorded, so that rates that change at each step never are.
WARM_UPS = 2
# A training's very first step, which makes the optimiser's state, is like no other; the last of these is recorded.
STEPS_UNTIL_RECORDED = 1 + WARM_UPS + 1
# Those that keep on the device all that changes from step to step; torch's Adagrad counts its steps on the host.
OPTIMIZERS = (FusedAdam, SGD)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Recording:
    """A step as it was recorded.

    Attributes:
        kind: What it was recorded for.
        graph: Kernels of the step.
        batch: What it reads: others are copied there.
        losses: What it writes.
    """

    kind: Hashable
    graph: Any
    batch: Batch
    losses: Tensor


class RecordedStep:
    """Takes the steps of a model, recorded from the third on that is like the two before.

    Steps are alike where their batches have the same shapes (so never where bags differ in length) and their learning
    rates are the same.

    Args:
        model: Model in training mode on a GPU.
        optimizer: Optimiser of its dense part, one of `OPTIMIZERS`.
        precision: `fp32` or `bf16`.
    """

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, precision: str) -> None:
        self._model, self._optimizer, self._precision = model, optimizer, precision
        self._recording: _Recording | None = None
        self._last: Hashable = None
        self._alike = 0
        self._cannot = False

    def suits(self, batch: Batch) -> bool:
        """Whether the step is to be taken here: recorded or not, it is the same."""
        return self._model.layers.training and not self._cannot

    def __call__(self, batch: Batch, weights: Tensor | None) -> Tensor:
        """Train on a batch; see `shunter.engine.loop.step.train_step`."""
        kind = self._kind(batch, weights)
        if self._recording is not None and self._recording.kind == kind:
            return self._replay(self._recording, batch)
        self._alike = self._alike + 1 if kind == self._last else 1
        self._last = kind
        if self._alike > WARM_UPS:
            self._recording = None  # frees its memory
            self._recording = self._record(batch, weights, kind)
            if self._recording is not None:
                return self._replay(self._recording, batch)
        return plain_step(self._model, self._optimizer, batch, self._precision, weights)

    def _kind(self, batch: Batch, weights: Tensor | None) -> Hashable:
        """What is fixed when a step is recorded: shapes, learning rates, and where the optimiser keeps its state."""
        shapes = tuple(tensor.shape for tensor in batch.tensors)
        rates = tuple(group["lr"] for group in self._optimizer.param_groups)
        first = self._optimizer.param_groups[0]["params"][0]
        state = tuple(id(value) for value in self._optimizer.state.get(first, {}).values())
        present = batch.shares is None, batch.weights is None, id(weights)
        return shapes, present, rates, self._model.embeddings.learning_rate, state

    def _record(self, batch: Batch, weights: Tensor | None, kind: Hashable) -> _Recording | None:
        """Record a step without taking it; None where that cannot be done, and then never again."""
        own = batch.clone()
        try:
            with _no_collection():
                graph, losses = self._capture(own, weights)
        except Exception as error:  # whatever the reason, steps go on one by one
            log.warning("Steps are launched kernel by kernel, since recording failed: %s", str(error).split("\n", 1)[0])
            self._cannot = True
            return None
        return _Recording(kind, graph, own, losses)

    def _capture(self, batch: Batch, weights: Tensor | None) -> tuple[Any, Tensor]:
        graph = torch.cuda.CUDAGraph()
        # Other threads read batches ahead, and may go on with whatever they ask of the device meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            losses = plain_step(self._model, self._optimizer, batch, self._precision, weights)
        return graph, losses

    @staticmethod
    def _replay(recording: _Recording, batch: Batch) -> Tensor:
        for mine, given in zip(recording.batch.tensors, batch.tensors, strict=True):
            mine.copy_(given)
        recording.graph.replay()
        return recording.losses.clone()  # the next step writes there


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python from freeing the graphs of earlier models meanwhile: CUDA permits none to go while it records."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def record_steps(model: Model, optimizer: torch.optim.Optimizer, execution: Execution) -> None:
    """Let the steps of a model on a GPU be recorded, where they are neither compiled nor changed from batch to batch.

    Args:
        model: Model in training mode.
        optimizer: Optimiser of its dense part.
        execution: Device, precision and how steps are taken.
    """
    changed = execution.packs_activations or execution.compacts_dead_units or execution.rewriting
    can_be = model.embeddings.can_be_recorded and isinstance(optimizer, OPTIMIZERS)
    if torch.device(execution.device).type == "cuda" and can_be and not (execution.compiled or changed):
        model.compiled_step = RecordedStep(model, optimizer, execution.precision)
