"""GPU training step that is recorded once as a CUDA graph and then launched as a whole.

A step of a recommendation model runs about a hundred small kernels. On an H100 the kernels take 0.8 ms for 8,192
samples, and the host takes 5 ms to launch them one by one. A recorded step launches the same kernels in the same order
at once. The resulting weights equal those of an unrecorded step bit for bit, dropout included. Recording is therefore
not part of a training run's identity. Nothing is compiled.
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
from shunter.engine.loop.optimizers import FusedAdam
from shunter.engine.loop.step import plain_step
from shunter.hardware.uncompiled import SGD
from shunter.models.registry import Model

# Number of consecutive equal steps before a step is recorded; steps with changing learning rates are never recorded.
WARM_UPS = 2
# The last of these steps is recorded. The very first step creates the optimizer's state, so it equals no other step.
STEPS_UNTIL_RECORDED = 1 + WARM_UPS + 1
# Optimizers whose changing state is all on the device; torch's Adagrad counts its steps on the host.
OPTIMIZERS = (FusedAdam, SGD)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Recording:
    """CUDA graph with the kernels of a training step, and the buffers that it reads and writes."""

    kind: Hashable  # properties of the step for which the recording is valid; see `RecordedStep._kind`
    graph: Any
    batch: Batch  # other batches are copied into it
    losses: Tensor


class RecordedStep:
    """Training step of a model that is recorded at the third consecutive equal step, and replayed from then on.

    Steps are equal if their batches have the same shapes and their learning rates are the same. Batches with bags of
    different lengths are never equal.

    Args:
        model: Model in training mode on a GPU.
        optimizer: Optimizer of the model's dense part, one of `OPTIMIZERS`.
        precision: `fp32` or `bf16`.
    """

    def __init__(self, model: Model, optimizer: torch.optim.Optimizer, precision: str) -> None:
        self._model, self._optimizer, self._precision = model, optimizer, precision
        self._recording: _Recording | None = None
        self._last: Hashable = None
        self._alike = 0
        self._cannot = False

    def suits(self, batch: Batch) -> bool:
        """Return True if this object can run the step: the model is in training mode and no recording has failed."""
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
        """Return the properties fixed by a recording: shapes, learning rates, location of the optimizer's state."""
        shapes = tuple(tensor.shape for tensor in batch.tensors)
        rates = tuple(group["lr"] for group in self._optimizer.param_groups)
        first = self._optimizer.param_groups[0]["params"][0]
        state = tuple(id(value) for value in self._optimizer.state.get(first, {}).values())
        present = batch.shares is None, batch.weights is None, id(weights)
        return shapes, present, rates, self._model.embeddings.learning_rate, state

    def _record(self, batch: Batch, weights: Tensor | None, kind: Hashable) -> _Recording | None:
        """Record a step without training on it; return None, and never record again, if recording failed."""
        own = batch.clone()
        try:
            with _no_collection():
                graph, losses = self._capture(own, weights)
        except Exception as error:  # whatever the reason, training continues without a recording
            log.warning("Steps are launched kernel by kernel, since recording failed: %s", str(error).split("\n", 1)[0])
            self._cannot = True
            return None
        return _Recording(kind, graph, own, losses)

    def _capture(self, batch: Batch, weights: Tensor | None) -> tuple[Any, Tensor]:
        graph = torch.cuda.CUDAGraph()
        # Other threads prefetch batches, and may use the device during the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            losses = plain_step(self._model, self._optimizer, batch, self._precision, weights)
        return graph, losses

    @staticmethod
    def _replay(recording: _Recording, batch: Batch) -> Tensor:
        for mine, given in zip(recording.batch.tensors, batch.tensors, strict=True):
            mine.copy_(given)
        recording.graph.replay()
        return recording.losses.clone()  # the next step overwrites the buffer


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable Python's garbage collector in the block: CUDA forbids freeing another graph during a capture."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def record_steps(model: Model, optimizer: torch.optim.Optimizer, execution: Execution) -> None:
    """Enable recording of a model's training steps on a GPU, unless the steps are compiled or change with the batch.

    Args:
        model: Model in training mode.
        optimizer: Optimizer of the model's dense part.
        execution: Device, precision, and the options that exclude recording (`compiled`, `packs_activations`,
            `compacts_dead_units`, `rewriting`).
    """
    changed = execution.packs_activations or execution.compacts_dead_units or execution.rewriting
    can_be = model.embeddings.can_be_recorded and isinstance(optimizer, OPTIMIZERS)
    if torch.device(execution.device).type == "cuda" and can_be and not (execution.compiled or changed):
        model.compiled_step = RecordedStep(model, optimizer, execution.precision)
