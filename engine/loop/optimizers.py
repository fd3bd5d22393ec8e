"""Built-in optimizers of the dense layers (`shunter.models.optimizers` lists them), and learning rate schedules."""

import inspect
import math
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from shunter.engine.config import Hyperparameters
from shunter.hardware.uncompiled import SGD, Adagrad, Uncompiled
from shunter.models.embeddings.role import EmbeddingTables

_step_of_torch = inspect.unwrap(torch.optim.Adam.step)


class FusedAdam(Uncompiled, torch.optim.Adam):
    """Fused Adam of torch that skips most of torch's per-step Python code; updates and state are equal bit for bit.

    At each step torch prepares its fused operator for each parameter, which takes as long as the update of a small
    model. The method `step` calls the operator directly if every parameter has a gradient and a state. All other steps,
    including the first, run torch's own code.
    """

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr, fused=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters by their gradients; see `torch.optim.Adam.step`."""
        tensors = [self._tensors(group["params"]) for group in self.param_groups]
        if closure is not None or None in tensors:
            return _step_of_torch(self, closure)
        for group, (gradients, first, second, steps) in zip(self.param_groups, filter(None, tensors), strict=True):
            beta1, beta2 = group["betas"]
            torch._foreach_add_(steps, 1)  # pyright: ignore[reportPrivateImportUsage]
            torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
                group["params"],
                gradients,
                first,
                second,
                [],
                steps,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )
        return None

    def _tensors(self, parameters: list[Tensor]) -> tuple[list[Tensor], ...] | None:
        """Return the parameters' gradients, both moments and step counts; None if any gradient or state is missing."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        states = [state for parameter in parameters if (state := self.state.get(parameter))]
        if not len(gradients) == len(states) == len(parameters):
            return None
        return gradients, *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))


ParameterGroups = list[dict[str, Any]]


def build_adam(groups: ParameterGroups, learning_rate: float) -> Optimizer:
    """Build Adam (Kingma and Ba, ICLR 2015), which updates all parameters of a group with one operator."""
    return FusedAdam(groups, lr=learning_rate)


def build_adagrad(groups: ParameterGroups, learning_rate: float) -> Optimizer:
    """Build Adagrad (Duchi et al., JMLR 2011); torch has a fused version for CPUs only."""
    return Adagrad(groups, lr=learning_rate, fused=groups[0]["params"][0].device.type == "cpu")


def build_sgd(groups: ParameterGroups, learning_rate: float) -> Optimizer:
    """Build stochastic gradient descent without momentum."""
    return SGD(groups, lr=learning_rate, fused=True)


LOWEST_SHARE = 1e-3  # smallest factor on the full rates after plateaus: even smaller updates would only cost time


class LearningRates:
    """Learning rate scheduler for the dense layers and the embedding tables.

    The factor on the full rates depends only on the step and the number of plateaus so far. A training run that is
    resumed from a checkpoint therefore continues with the same rates. Constant rates are never changed.

    After a plateau, training continues from the weights of the last epoch, not from the best weights. FuxiCTR does the
    same (`reduce_lr_on_plateau` of `BaseModel`, used for the BARS benchmark).
    """

    def __init__(
        self,
        hyperparameters: Hyperparameters,
        optimizer: torch.optim.Optimizer,
        tables: EmbeddingTables,
        *,
        epoch_steps: int,
        max_epochs: int,
    ) -> None:
        self._hyperparameters, self._optimizer, self._tables = hyperparameters, optimizer, tables
        self._warmup_steps = round(hyperparameters.warmup_epochs * epoch_steps)
        self._cycle_steps = epoch_steps * max_epochs / hyperparameters.cycles
        self._applied = 1.0

    def share(self, step: int, plateaus: int) -> float:
        """Return the factor on the full rates after `step` steps and `plateaus` epochs without a better validation."""
        kind, share = self._hyperparameters.learning_rate_schedule, 1.0
        if kind == "plateau":
            share = max(self._hyperparameters.plateau_factor**plateaus, LOWEST_SHARE)
        elif kind == "cosine":
            within = step % self._cycle_steps if self._hyperparameters.cycles > 1 else step
            share = (1 + math.cos(math.pi * within / self._cycle_steps)) / 2
        return share * min(1.0, (step + 1) / self._warmup_steps) if self._warmup_steps else share

    def of(self, step: int, plateaus: int) -> dict[str, float]:
        """Return the learning rates at a step: `dense` for the layers, `embedding` for the embedding tables."""
        full, share = self._hyperparameters, self.share(step, plateaus)
        return {"dense": full.dense_learning_rate * share, "embedding": full.embedding_learning_rate * share}

    def apply(self, step: int, plateaus: int) -> None:
        """Set the learning rates of the next step; called between two steps."""
        share = self.share(step, plateaus)
        if share == self._applied:
            return
        rates = self.of(step, plateaus)
        for group in self._optimizer.param_groups:
            group["lr"] = rates["dense"]
        self._tables.set_learning_rate(rates["embedding"])
        self._applied = share
