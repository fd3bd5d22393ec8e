"""Linear layers that skip input units whose activation is zero for every sample of a batch.

A ReLU unit that is inactive for a whole batch yields a column of zeros. The next layer multiplies these zeros three
times: in the forward pass, in the gradient of its weights, and in the gradient of its input, which the ReLU zeroes
again. All three products are computed from the nonzero columns only. Results differ from the plain layer by rounding,
because the order of summation differs.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from shunter.models.recommender import Recommender

LEAST_DEAD = 0.1  # smallest share of dead units; below it, copying the live columns costs more than it saves


class Compaction(TorchFunctionMode):
    """Context manager that computes linear layers behind a ReLU without the units that are dead for the batch.

    Attributes:
        spared_share: Share of dead units, from 0 to 1, for each layer call that skipped units.
    """

    def __init__(self) -> None:
        super().__init__()
        self.spared_share: list[float] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Skip the dead inputs of `linear` behind a ReLU if at least `LEAST_DEAD` of the inputs are dead."""
        values = args[0] if func is functional.linear and not kwargs else None
        # The backward pass of a ReLU zeroes the gradient of its zeros.
        if values is not None and values.dim() == 2 and type(values.grad_fn).__name__ == "ReluBackward0":
            weight, bias = args[1], args[2] if len(args) > 2 else None
            alive = (values.detach() != 0).any(0).nonzero().squeeze(1)
            dead = 1 - len(alive) / values.shape[1]
            if dead >= LEAST_DEAD:
                self.spared_share.append(dead)
                return _LinearOfSome.apply(values, weight, bias, alive)
        return func(*args, **(kwargs or {}))


class CompactedStep:
    """Option of a training step that skips input units that are zero for the batch."""

    def apply(self, model: Recommender, value: bool) -> None:
        """Enable skipping in the training steps of a model."""
        model.around_forward = Compaction

    def remove(self, model: Recommender) -> None:
        """Disable the skipping of dead units."""
        model.around_forward = None


COMPACTED_STEP = CompactedStep()


class _LinearOfSome(torch.autograd.Function):
    """Linear layer on `[batch, inputs]` that reads only the columns `alive`.

    All other columns must be zero, and their gradient is returned as zero.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, values: Tensor, weight: Tensor, bias: Tensor | None, alive: Tensor) -> Tensor:
        some, their_weight = values.index_select(1, alive), weight.index_select(1, alive)
        ctx.save_for_backward(some, their_weight, alive)
        ctx.shape, ctx.has_bias = weight.shape, bias is not None  # pyright: ignore[reportAttributeAccessIssue]
        return functional.linear(some, their_weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        some, their_weight, alive = ctx.saved_tensors
        of_values = gradient.new_zeros(len(gradient), ctx.shape[1]).index_copy_(1, alive, gradient @ their_weight)
        of_weight = gradient.new_zeros(ctx.shape).index_copy_(1, alive, gradient.t() @ some)
        return of_values, of_weight, gradient.sum(0) if ctx.has_bias else None, None
