"""Units that are zero for all samples of a batch, left out of the products behind them.

A ReLU that lets nothing of a batch through gives a column of zeros. The layer behind it then multiplies zeros: forward,
in the gradient of its weights, and in the gradient of its input, which the ReLU zeroes again. All three products are
made of the other columns alone; what they give differs by rounding, for sums are added up in another order.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LEAST_DEAD = 0.1  # share of the units; fewer are not worth copying the others


class Compaction(TorchFunctionMode):
    """Computes linear layers behind a ReLU without the units that are dead for the batch; a context manager.

    Attributes:
        spared_share: Share of the units left out, of each layer that was computed so.
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
        """Take over `linear` behind a ReLU, and leave everything else."""
        if func is functional.linear and not kwargs and _is_behind_relu(args[0]):
            values, weight, bias = args[0], args[1], args[2] if len(args) > 2 else None
            alive = (values.detach() != 0).any(0).nonzero().squeeze(1)
            dead = 1 - len(alive) / values.shape[1]
            if dead >= LEAST_DEAD:
                self.spared_share.append(dead)
                return _LinearOfSome.apply(values, weight, bias, alive)
        return func(*args, **(kwargs or {}))


def _is_behind_relu(values: Tensor) -> bool:
    """Whether the gradient of a zero there is zeroed anyway."""
    return values.dim() == 2 and type(values.grad_fn).__name__ == "ReluBackward0"


class _LinearOfSome(torch.autograd.Function):
    """A linear layer of `[batch, inputs]` whose inputs but `alive` are zero, and whose zeros want no gradient."""

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
