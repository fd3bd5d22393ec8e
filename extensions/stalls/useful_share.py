"""Share of useful multiplications of a training step: the exact share of each layer, from the zeros of ReLUs.

A linear layer has three matrix products. Forward counts a multiplication for each input that is not zero. The input
gradient counts each pair of a nonzero output gradient and an input whose gradient is needed; behind a ReLU these are
the inputs that are not zero. The weight gradient counts each pair of a nonzero input and a nonzero output gradient
(Sarma et al., "Exploiting Activation based Gradient Output Sparsity to Accelerate Backpropagation in CNNs", arXiv
2109.07710).

The cycles of an accelerator that skips products with zeros are simulated. P lanes work in lockstep, each on its own
output, and each operand is broadcast to all lanes. An accelerator that skips inputs spends no cycle on an operand that
is zero. An accelerator that skips outputs assigns no lane to an output that is not needed. With `z = W a` and
`a' = relu(z)`, backward knows both sets beforehand. The zeros of the gradient of z are those of the ReLU above, and the
gradient of a is not needed where the ReLU below gave zero.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from torch import Tensor, nn

from shunter.engine.config import Execution, Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.data.loader import BatchLoader
from shunter.engine.loop.step import applied, build_dense_optimizer, seeded, train_step
from shunter.frozen import Frozen
from shunter.models.interactions import Mix
from shunter.models.layers import after_relu
from shunter.models.registry import Model, build_model
from shunter.models.spec import ModelSpec
from shunter.tracking.convention import BACKWARD_SPEEDUP

LANES = 16
STEPS, MEASURED = 60, 5  # steps that are trained, and how many of the last are measured
USEFUL_COLUMNS = ("layer", "forward", "backward", "dead inputs", "x, inputs", "x, outputs", "x, both")


@dataclass(frozen=True)
class Skipping:
    """Products that an accelerator skips.

    Attributes:
        inputs: Skip operands that are zero.
        outputs: Skip results that are not needed.
    """

    inputs: bool = False
    outputs: bool = False


DENSE, INPUT, OUTPUT, BOTH = Skipping(), Skipping(inputs=True), Skipping(outputs=True), Skipping(True, True)


@dataclass(frozen=True)
class LayerZeros:
    """Number of useful values of a layer, for each sample.

    Attributes:
        inputs: Width of the input.
        outputs: Width of the output.
        active_inputs: int64 `[batch]`, inputs that are not zero.
        needed_inputs: int64 `[batch]`, inputs whose gradient is needed.
        active_gradients: int64 `[batch]`, outputs whose gradient is not zero.
    """

    inputs: int
    outputs: int
    active_inputs: np.ndarray
    needed_inputs: np.ndarray
    active_gradients: np.ndarray


@dataclass(frozen=True)
class PhaseCycles:
    """Cycles of the three matrix products of a layer.

    Attributes:
        forward: Cycles of the outputs from the inputs.
        data: Cycles of the input gradients from the output gradients; 0 if no input gradient is needed.
        weights: Cycles of the weight gradients from inputs and output gradients.
    """

    forward: int
    data: int
    weights: int

    @property
    def backward(self) -> int:
        """Cycles of both products of the backward pass."""
        return self.data + self.weights


def cycles(zeros: LayerZeros, skipping: Skipping, lanes: int = LANES) -> PhaseCycles:
    """Return the cycles of a batch on this number of lanes.

    In the forward pass it is not yet known which outputs a ReLU will set to zero, so only inputs are skipped. The
    gradient of a weight is a sum over samples: each lane has one input of a sample, and output gradients are broadcast
    to all.
    """
    batch = len(zeros.active_inputs)
    every_input, every_output = np.full(batch, zeros.inputs), np.full(batch, zeros.outputs)
    operands = zeros.active_inputs if skipping.inputs else every_input
    gradients = zeros.active_gradients if skipping.inputs else every_output
    wanted = zeros.needed_inputs if skipping.outputs else np.where(zeros.needed_inputs.any(), every_input, 0)
    rows = zeros.active_inputs if skipping.outputs else every_input
    return PhaseCycles(
        forward=int((operands * -(-zeros.outputs // lanes)).sum()),
        data=int((-(-wanted // lanes) * gradients).sum()),
        weights=int((-(-rows // lanes) * gradients).sum()),
    )


SKIPPINGS: dict[str, Skipping] = {"dense": DENSE, "inputs": INPUT, "outputs": OUTPUT, "both": BOTH}


class LayerShare(Frozen):
    """One layer: number of multiplications, useful share, and cycles of an accelerator.

    Attributes:
        name: Module path of the layer.
        forward: Useful share of the multiplications of the forward pass.
        backward: Useful share of the multiplications of the backward pass.
        multiplications: Multiplications of the backward pass per sample.
        dead: Share of the inputs that were zero for a whole batch.
        cycles: Simulated cycles of the backward pass per sample, by the kind of skipped operand.
    """

    name: str
    forward: float
    backward: float
    multiplications: float
    dead: float
    cycles: dict[str, float]


class UsefulShare(Frozen):
    """Multiplications of all linear layers of a training run.

    Attributes:
        model: Family of the model.
        batch_size: Samples per step.
        steps: Number of steps after which the shares were measured.
        layers: All linear layers.
    """

    model: str
    batch_size: int
    steps: int
    layers: tuple[LayerShare, ...]

    @property
    def backward(self) -> float:
        """Useful share of all multiplications of the backward pass."""
        whole = sum(layer.multiplications for layer in self.layers)
        return sum(layer.backward * layer.multiplications for layer in self.layers) / whole

    def speedup(self, skipped: str = "both") -> float:
        """Return the simulated speedup of the backward pass on an accelerator that skips zeros."""
        dense, sparse = (sum(layer.cycles[kind] for layer in self.layers) for kind in ("dense", skipped))
        return dense / max(sparse, 1e-9)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each layer and one for all layers, with the columns `USEFUL_COLUMNS`."""
        layers = [
            (
                layer.name,
                f"{layer.forward:.1%}",
                f"{layer.backward:.1%}",
                f"{layer.dead:.1%}",
                *(f"{layer.cycles['dense'] / max(layer.cycles[kind], 1e-9):.2f}" for kind in list(SKIPPINGS)[1:]),
            )
            for layer in self.layers
        ]
        speeds = (f"{self.speedup(kind):.2f}" for kind in list(SKIPPINGS)[1:])
        return [*layers, ("all", "", f"{self.backward:.1%}", "", *speeds)]

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics for MLflow: share of multiplications without a zero, and simulated speedup if zeros are skipped."""
        speeds = {f"{BACKWARD_SPEEDUP}{kind}": self.speedup(kind) for kind in list(SKIPPINGS)[1:]}
        return {"sparsity.useful_backward_share": self.backward, **speeds}


@dataclass
class _Seen:
    """Zeros that the hooks of a linear layer have counted in the steps so far."""

    is_behind_relu: bool
    zeros: list[LayerZeros] = field(default_factory=list)
    dead: list[float] = field(default_factory=list)
    input: tuple[np.ndarray, bool, float] | None = None

    def before_forward(self, module: nn.Module, given: tuple[Tensor, ...]) -> None:
        active = _rows(module, given[0].detach()) != 0
        dead = 1 - float(active.any(0).float().mean())
        self.input = active.sum(1).cpu().numpy(), given[0].requires_grad, dead

    def after_forward(self, module: nn.Linear, _: tuple[Tensor, ...], output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(partial(self._count, module))

    def _count(self, module: nn.Linear, gradient: Tensor) -> None:
        if self.input is None:
            return
        active, is_needed, dead = self.input
        needed = active if self.is_behind_relu else np.full(len(active), module.in_features)
        self.zeros.append(
            LayerZeros(
                inputs=module.in_features,
                outputs=module.out_features,
                active_inputs=active,
                needed_inputs=needed if is_needed else np.zeros(len(active), np.int64),
                active_gradients=(_rows(module, gradient) != 0).sum(1).cpu().numpy(),
            )
        )
        self.dead.append(dead)


@contextmanager
def watched(layers: nn.Module) -> Iterator[dict[str, _Seen]]:
    """Count the zeros of every training step within the block; yield the records by the path of each linear layer."""
    behind_relu = set(after_relu(layers))
    seen: dict[str, _Seen] = {}
    handles: list[Any] = []
    for path, module in layers.named_modules():
        if isinstance(module, nn.Linear):
            seen[path] = _Seen(path in behind_relu)
            handles.append(module.register_forward_pre_hook(seen[path].before_forward))
            handles.append(module.register_forward_hook(seen[path].after_forward))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _rows(layer: nn.Module, tensor: Tensor) -> Tensor:
    """Return the layer's operands as rows; a `Mix` layer, which maps over vectors, needs a transpose."""
    turned = tensor.transpose(1, 2) if isinstance(layer, Mix) else tensor
    return turned.reshape(-1, turned.shape[-1])


def layer_share(name: str, seen: _Seen, samples: int) -> LayerShare:
    """Compute the shares of a layer from the records of its hooks.

    Args:
        name: Module path of the layer.
        seen: Records of the hooks.
        samples: Number of samples of all steps together.
    """
    forward = backward = whole = useful = 0
    for one in seen.zeros:
        rows, size = len(one.active_inputs), one.inputs * one.outputs
        forward += rows * size
        useful += int(one.active_inputs.sum()) * one.outputs
        products = 2 if one.needed_inputs.any() else 1
        whole += products * rows * size
        backward += int((one.active_gradients * (one.needed_inputs + one.active_inputs)).sum())
    return LayerShare(
        name=name,
        forward=useful / forward,
        backward=backward / whole,
        multiplications=whole / samples,
        dead=float(np.mean(seen.dead)),
        cycles={
            kind: sum(cycles(one, skipping).backward for one in seen.zeros) / samples
            for kind, skipping in SKIPPINGS.items()
        },
    )


def useful_share(
    dataset: Dataset,
    spec: ModelSpec,
    execution: Execution,
    hyperparameters: Hyperparameters = Hyperparameters(),  # noqa: B008 - frozen
    *,
    steps: int = STEPS,
) -> UsefulShare | None:
    """Train a fresh model for some steps and measure the last ones; return None if it has no linear layer.

    Args:
        dataset: Data set.
        spec: Model configuration.
        execution: Device, threads and batch size.
        hyperparameters: Hyperparameters of the training.
        steps: Number of training steps.

    Raises:
        RequestError: The model cannot be built.
        DataError: An array cannot be read.
    """
    with applied(execution) as device, seeded(0, device):
        learning = hyperparameters.embedding_learning
        model: Model = build_model(spec, dataset.features, embedding_learning=learning, device=device).train()
        optimizer = build_dense_optimizer(model, hyperparameters)
        batch_size = min(execution.batch_size, dataset.splits["train"].rows)
        loader = BatchLoader(dataset, "train", batch_size, shuffle=True)
        batches = (one for epoch in count() for one in loader.batches(epoch=epoch) if len(one) == batch_size)
        for _ in range(steps - MEASURED):
            train_step(model, optimizer, next(batches).to(device), execution.precision)
        with watched(model.layers) as seen:
            for _ in range(MEASURED):
                train_step(model, optimizer, next(batches).to(device), execution.precision)
    if not seen:
        return None
    layers = tuple(layer_share(name, one, MEASURED * batch_size) for name, one in seen.items() if one.zeros)
    return UsefulShare(model=spec.family, batch_size=batch_size, steps=steps, layers=layers)
