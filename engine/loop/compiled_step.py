"""Training step above the embedding tables as one compiled graph: forward, loss, backward and the optimizer's update.

If only the layers are compiled, a step still runs autograd and an optimizer, and each of the two costs as much as the
arithmetic of a small batch. The embedding tables are not compiled: lookup and fused update are one operator each.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam

from shunter.engine.config import Execution
from shunter.engine.data.batch import Batch
from shunter.engine.loop.compile import compile_layers
from shunter.engine.loop.loss import mean_losses, weighted_sum
from shunter.engine.loop.optimizers import FusedAdam
from shunter.engine.loop.step import autocast, seeded
from shunter.hardware.uncompiled import SGD, Adagrad
from shunter.models.registry import Model, layer_inputs

Targets = tuple[Tensor, Tensor | None, Tensor | None]  # labels, weight of each label in the loss, task weights
log = logging.getLogger(__name__)
# Names of each optimizer's state tensors for one parameter, in the order of the argument `state` of `_update`.
STATES: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    SGD: (),
    Adagrad: ("sum", "step"),
    FusedAdam: ("exp_avg", "exp_avg_sq", "step"),
}


class CompiledStep:
    """Compiled training step on a full batch, equal to `shunter.engine.loop.step.train_step` within rounding.

    Args:
        model: Model in training mode, on the CPU.
        optimizer: Optimizer of the model's dense part, one of `STATES`.
        execution: Precision and batch size.
        rates_vary: Whether the learning rate may change between steps. A varying rate is passed as a tensor, so that no
            step is compiled again; a constant rate is compiled into the graph.
    """

    def __init__(
        self, model: Model, optimizer: torch.optim.Optimizer, execution: Execution, *, rates_vary: bool = False
    ) -> None:
        self._model, self._optimizer, self._rates_vary = model, optimizer, rates_vary
        self._batch_size, self._states = execution.batch_size, STATES[type(optimizer)]
        self._parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        # Without this option torch counts the compilations of one function per process, and refuses the ninth.
        alone: Any = {"isolate_recompiles": True}
        self._compiled = torch.compile(self._joint(execution.precision), dynamic=False, fullgraph=True, **alone)

    def suits(self, batch: Batch) -> bool:
        """Return True if the batch is full and the optimizer has its state, which the first uncompiled step creates."""
        has_state = all(name in self._optimizer.state[self._parameters[0]] for name in self._states)
        return has_state and len(batch) == self._batch_size and self._model.layers.training

    def __call__(self, batch: Batch, weights: Tensor | None) -> Tensor:
        """Train on a batch that `suits` accepts, and return its losses; see `shunter.engine.loop.step.train_step`."""
        inputs = self._model.layer_inputs(*batch.inputs)
        state = [[self._optimizer.state[parameter][name] for parameter in self._parameters] for name in self._states]
        losses, gradient = self._run(self._parameters, state, inputs, batch, weights)
        inputs[1].backward(gradient)  # the tables update themselves
        self._model.embeddings.after_backward()
        return losses

    def warm_up(self, batch: Batch, weights: Tensor | None) -> None:
        """Compile the step by running it on copies of the parameters and on new optimizer state."""
        copies = [parameter.detach().clone() for parameter in self._parameters]
        state = [
            [torch.zeros(()) if name == "step" else torch.zeros_like(copy) for copy in copies] for name in self._states
        ]
        inputs = layer_inputs(self._model.spec, self._model.features, self._batch_size, "cpu")
        self._run(copies, state, inputs, batch, weights)

    def _run(
        self,
        parameters: Sequence[Tensor],
        state: Sequence[list[Tensor]],
        inputs: Sequence[Tensor],
        batch: Batch,
        weights: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Update parameters and state in place; return the losses and the gradient of the looked-up embeddings."""
        groups = self._optimizer.param_groups
        with torch.no_grad():
            return self._compiled(
                [parameter.detach() for parameter in parameters],
                state,
                [tensor.detach() for tensor in inputs],
                (batch.labels, batch.shares, weights),
                [torch.tensor(group["lr"]) for group in groups] if self._rates_vary else None,
            )

    def _joint(self, precision: str) -> Callable[..., tuple[Tensor, Tensor]]:
        """Return the training step as a function of tensors only, so that it can be compiled as one graph."""
        layers, device = self._model.layers, torch.device("cpu")
        names_of = {parameter: name for name, parameter in layers.named_parameters()}
        names = [names_of[parameter] for parameter in self._parameters]
        groups = [(len(group["params"]), group) for group in self._optimizer.param_groups]
        kind, label_losses = type(self._optimizer), self._model.loss

        def loss(
            parameters: list[Tensor],
            pooled: Tensor,
            inputs: list[Tensor],
            targets: Targets,
        ) -> tuple[Tensor, Tensor]:
            with autocast(device, precision):
                dense, _, *rest = inputs
                named = dict(zip(names, parameters, strict=True))
                logits = torch.func.functional_call(layers, named, (dense, pooled, *rest))
            labels, shares, weights = targets
            losses = mean_losses(logits, labels, shares, label_losses)
            return weighted_sum(losses, weights), losses

        def joint(
            parameters: list[Tensor],
            state: Sequence[list[Tensor]],
            inputs: list[Tensor],
            targets: Targets,
            rates: list[Tensor] | None,
        ) -> tuple[Tensor, Tensor]:
            differentiate = torch.func.grad(loss, argnums=(0, 1), has_aux=True)
            (gradients, of_pooled), losses = differentiate(parameters, inputs[1], inputs, targets)
            first = 0
            for number, (count, group) in enumerate(groups):
                own = slice(first, first + count)
                options = group if rates is None else {**group, "lr": rates[number]}
                _update(kind, options, parameters[own], gradients[own], [tensors[own] for tensors in state])
                first += count
            return losses, of_pooled

        return joint


def _update(
    kind: type[torch.optim.Optimizer],
    group: Mapping[str, Any],
    parameters: list[Tensor],
    gradients: list[Tensor],
    state: Sequence[list[Tensor]],
) -> None:
    """Update parameters and optimizer state in place, with torch's functional optimizers.

    Weight decay and the update of SGD are written as explicit sums, because the compiler of torch 2.13 turns
    `add(product of matrices, alpha=...)` into one operator and drops alpha.
    """
    rate, decay = group["lr"], group["weight_decay"]
    if decay:
        gradients = [gradient + decay * parameter for gradient, parameter in zip(gradients, parameters, strict=True)]
    common: dict[str, Any] = {"lr": rate, "weight_decay": 0.0, "maximize": False, "foreach": False}
    if kind is SGD:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(rate * gradient)
    elif kind is Adagrad:
        sums, steps = state
        adagrad(parameters, gradients, sums, steps, lr_decay=group["lr_decay"], eps=group["eps"], **common)
    else:
        first, second, steps = state
        beta1, beta2 = group["betas"]
        options = {"amsgrad": False, "beta1": beta1, "beta2": beta2, "eps": group["eps"], **common}
        adam(parameters, gradients, first, second, [], steps, **options)


def compile_step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    execution: Execution,
    batch: Batch,
    weights: Tensor | None = None,
    *,
    rates_vary: bool = False,
) -> float | None:
    """Compile as much of a training step as possible; weights, optimizer state and random state do not change.

    The whole step is compiled on the CPU, for an optimizer of `STATES`, a full batch and layers without batch
    normalization. Otherwise only the layers are compiled (`shunter.engine.loop.compile.compile_layers`).

    Any full `batch` gives the shapes of the labels. With `rates_vary` the learning rate may change between steps.

    Returns:
        Seconds taken; None if compilation failed and the model stays uncompiled.
    """
    keeps_more = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.layers.modules())
    if execution.device != "cpu" or type(optimizer) not in STATES or keeps_more or len(batch) != execution.batch_size:
        return compile_layers(model, execution)
    step = CompiledStep(model, optimizer, execution, rates_vary=rates_vary)
    started = time.perf_counter()
    try:
        with seeded(0, torch.device("cpu")):
            step.warm_up(batch, weights)
    except Exception as error:  # whatever the error, the layers alone may compile
        log.info("The step is not compiled as a whole: %s", str(error).split("\n", 1)[0])
        return compile_layers(model, execution)
    model.compiled_step = step
    return time.perf_counter() - started
