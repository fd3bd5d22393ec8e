"""Adam optimizer with less Python overhead per step than torch's."""

import inspect
from typing import Any

import torch
from torch import Tensor

from shunter.hardware.uncompiled import Uncompiled

_step_of_torch = inspect.unwrap(torch.optim.Adam.step)


class FusedAdam(Uncompiled, torch.optim.Adam):
    """Fused Adam of torch that skips most of torch's per-step Python code; updates and state are equal bit for bit.

    At each step torch prepares its fused operator for each parameter, which takes as long as the update of a small
    model. The method `step` calls the operator directly if every parameter has a gradient and a state. All other steps,
    including the first, run torch's own code.

    Args:
        params: Parameters, or parameter groups.
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
        """Return the parameters' gradients, both moments and step counts; None if any gradient or state is missing."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        states = [state for parameter in parameters if (state := self.state.get(parameter))]
        if not len(gradients) == len(states) == len(parameters):
            return None
        return gradients, *([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
