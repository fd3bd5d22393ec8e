"""Training steps that spare work or memory with equal layers: compaction, and packed activations.

Compaction: a ReLU unit that is inactive for a whole batch yields a column of zeros. The next layer multiplies these
zeros three times: in the forward pass, in the gradient of its weights, and in the gradient of its input, which the ReLU
zeroes again. All three products are computed from the nonzero columns only. Results differ from the plain layer by
rounding, because the order of summation differs.

Packed activations: half of the output of a ReLU is zero. Each tensor that is saved for the backward pass is replaced by
a mask of one bit per number and its non-zero numbers. The backward pass rebuilds the tensor bit for bit. Tensors with
few zeros are saved unchanged.
"""

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from shunter.models.recommender import Recommender

LEAST_DEAD = 0.1  # smallest share of dead units; below it, copying the live columns costs more than it saves
LEAST_NUMBERS = 1 << 14  # smallest number of elements of a packed tensor
LEAST_ZEROS = 0.25  # smallest share of zeros of a packed tensor
BITS = 8


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


@dataclass(frozen=True)
class Packed:
    """Tensor stored without its zeros.

    Attributes:
        mask: Mask of the non-zero numbers, uint8 `[numbers / 8]`, the first number in the lowest bit.
        numbers: Non-zero numbers, in order.
        shape: Shape of the tensor.
    """

    mask: Tensor
    numbers: Tensor
    shape: torch.Size

    @property
    def nbytes(self) -> int:
        """Number of bytes of the mask and the non-zero numbers."""
        return self.mask.nbytes + self.numbers.nbytes


def pack(tensor: Tensor) -> Packed:
    """Pack a contiguous float32 tensor without its zeros; a negative zero counts as non-zero."""
    flat = tensor.detach().reshape(-1)
    kept = flat.view(torch.int32) != 0
    padded = torch.nn.functional.pad(kept.to(torch.uint8), (0, -len(flat) % BITS)).view(-1, BITS)
    weights = torch.tensor([1 << bit for bit in range(BITS)], dtype=torch.uint8, device=tensor.device)
    return Packed((padded * weights).sum(1, dtype=torch.uint8), flat[kept], tensor.shape)


def unpack(packed: Packed) -> Tensor:
    """Return the tensor that was packed, bit for bit; inverse of `pack`."""
    weights = torch.tensor([1 << bit for bit in range(BITS)], dtype=torch.uint8, device=packed.mask.device)
    kept = ((packed.mask.unsqueeze(1) & weights) != 0).flatten()[: packed.shape.numel()]
    made = torch.zeros(packed.shape.numel(), dtype=packed.numbers.dtype, device=packed.numbers.device)
    made[kept] = packed.numbers
    return made.view(packed.shape)


class PackedActivations:
    """Context manager around forward and backward whose autograd hooks pack saved tensors with many zeros.

    Args:
        layers: Layers whose weights are not packed, since they remain in memory anyway.
        is_counting: Whether bytes are only counted, and no tensor is packed.

    Attributes:
        whole_bytes: Bytes of all saved tensors without weights, each tensor counted once, before packing.
        kept_bytes: Bytes of the same tensors after packing.
    """

    def __init__(self, layers: nn.Module, *, is_counting: bool = False) -> None:
        self.whole_bytes = self.kept_bytes = 0
        self._is_counting = is_counting
        self._weights = {weight.untyped_storage()._cdata for weight in (*layers.parameters(), *layers.buffers())}
        self._known: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(
            self._pack, lambda kept: kept.tensor() if isinstance(kept, _Held) else kept
        )

    def __enter__(self) -> "PackedActivations":
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
        self._known.clear()

    def _pack(self, tensor: Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata in self._weights:
            return tensor
        key = (storage._cdata, tensor._version, tensor.shape, tensor.stride(), tensor.storage_offset())
        reference, known = self._known.get(key, (lambda: None, None))
        if reference() is storage:
            return known
        made = tensor if self._is_counting else _packed(tensor)
        self.whole_bytes += tensor.nbytes
        self.kept_bytes += made.packed.nbytes if isinstance(made, _Held) else tensor.nbytes
        self._known[key] = weakref.ref(storage), made if isinstance(made, _Held) else tensor.detach()
        return made


def _packed(tensor: Tensor) -> Any:
    is_plain = tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.numel() >= LEAST_NUMBERS
    if not is_plain or tensor.untyped_storage().nbytes() != tensor.nbytes:  # the tensor is a view of a larger storage
        return tensor
    zeros = 1 - float(torch.count_nonzero(tensor)) / tensor.numel()
    return _Held(pack(tensor)) if zeros >= LEAST_ZEROS else tensor


class _Held:
    """Packed tensor shared by several nodes of the autograd graph; unpacked once while a node uses it."""

    def __init__(self, packed: Packed) -> None:
        self.packed = packed
        self._made: Callable[[], Tensor | None] = lambda: None

    def tensor(self) -> Tensor:
        made = self._made()
        if made is None:
            made = unpack(self.packed)
            self._made = weakref.ref(made)
        return made


class StepOption:
    """Option of a training step: a context manager around each forward pass, or around forward and backward."""

    def __init__(self, attribute: Literal["around_forward", "around_step"], context: Any) -> None:
        self._attribute, self._context = attribute, context

    def apply(self, model: Recommender, value: bool) -> None:
        """Apply the option to a model in training mode, before its optimizer is built.

        Args:
            model: Model.
            value: Value of the option, neither False nor empty.

        Raises:
            ValueError: The value is not valid for the model in this version.
        """
        setattr(model, self._attribute, self._context)

    def remove(self, model: Recommender) -> None:
        """Disable the option."""
        setattr(model, self._attribute, None)


COMPACTED_STEP, PACKED_STEP = StepOption("around_forward", Compaction), StepOption("around_step", PackedActivations)
