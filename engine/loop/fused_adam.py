"""Adam whose step asks torch for the update of all parameters, and for little else."""

import inspect
from typing import Any

import torch
from torch import Tensor

from shunter.hardware.uncompiled import Uncompiled

_step_of_torch = inspect.unwrap(torch.optim.Adam.step)


class FusedAdam(Uncompiled, torch.optim.Adam):
    """torch's fused Adam, equal to it bit by bit and in what it keeps.

    What torch does around the operator it does anew at each step and for each parameter, which takes as long as the
    update of a small model itself. Here a step in which every parameter has a gradient and a state goes straight to
    the operator; all others, of which the first is one, are torch's own.

    Args:
        params: Parameters, or groups of them.
        lr: Learning rate.
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
        """Gradients, both moments and the numbers of steps of some parameters; None where one of them has none yet."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        states = [state for parameter in parameters if (state := self.state.get(parameter))]
        if not len(gradients) == len(states) == len(parameters):
            return None
        return gradients, *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
