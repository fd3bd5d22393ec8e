"""Runs one training step of the dense layers without memory or arithmetic, and writes down what it would have done.

Fake tensors go through autograd and autocast as real ones on the processor do, so the operators, their shapes and
types, and the life of every tensor are those of a real step, for models of any size.
"""

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.module_tracker import ModuleTracker

Phase = Literal["forward", "backward"]
# Operators that only describe memory anew: dispatched like any other, but nothing is read or written.
VIEWS = frozenset(
    ("view", "t", "transpose", "squeeze", "unsqueeze", "slice", "detach", "expand", "select", "alias", "permute")
) | {"_unsafe_view", "new_empty_strided", "split", "split_with_sizes", "as_strided", "unbind", "chunk"}
PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One dispatched operator.

    Attributes:
        name: Torch's, without namespace and overload.
        module: Path of the innermost module that was running, empty outside of all.
        phase: Phase of the step.
        dtype: Type of the result.
        product: (number of products, m, n, k) of a matrix product `[m, k] x [k, n]`; None for other operators.
        bytes_read: Bytes of all its tensors.
        bytes_written: Bytes of all its results.
    """

    name: str
    module: str
    phase: Phase
    dtype: torch.dtype
    product: tuple[int, int, int, int] | None
    bytes_read: int
    bytes_written: int

    @property
    def flops(self) -> int:
        """Of a matrix product, multiply and add counted as two; 0 for other operators."""
        return 2 * math.prod(self.product) if self.product else 0


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """What one step of the dense layers does.

    Attributes:
        operators: Operators in the order of their dispatch.
        kept_bytes: Bytes of tensors kept from forward to backward, weights not counted.
        peak_bytes: Most that is alive at a time beyond weights and inputs, gradients of the weights included.
        parameters: Number of weights of the layers.
    """

    operators: tuple[Operator, ...]
    kept_bytes: int
    peak_bytes: int
    parameters: int


def trace_step(
    layers: nn.Module, make_inputs: Callable[[], tuple[Tensor, ...]], *, half: bool, tasks: int = 1
) -> StepTrace:
    """Trace forward and backward of layers that were made on the meta device.

    Args:
        layers: Made fake; return the logits.
        make_inputs: Gives what the layers are called with; those that need a gradient are looked-up embeddings.
        half: Whether it runs under bfloat16 autocast.
        tasks: Logits of a sample.
    """
    with FakeTensorMode(allow_non_fake_inputs=True), ModuleTracker() as tracker:
        layers = layers.to_empty(device="cpu")
        inputs = make_inputs()
        labels = torch.zeros(len(inputs[0])) if tasks == 1 else torch.zeros(len(inputs[0]), tasks)
        recorder = _Recorder(tracker, [*layers.parameters(), *layers.buffers(), *inputs, labels])
        with recorder:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                logits = layers(*inputs)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            del logits
            recorder.begin_backward()
            loss.backward()
    return StepTrace(
        operators=tuple(recorder.operators),
        kept_bytes=recorder.kept_bytes,
        peak_bytes=recorder.peak_bytes,
        parameters=sum(parameter.numel() for parameter in layers.parameters()),
    )


class _Recorder(TorchDispatchMode):
    """Writes down operators, and follows how many bytes are alive."""

    def __init__(self, tracker: ModuleTracker, own: Sequence[Tensor]) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.kept_bytes = self.peak_bytes = 0
        self._tracker = tracker
        self._phase: Phase = "forward"
        self._alive_bytes = 0
        self._own = list(own)  # held, so that no other storage takes one of their places
        self._known: set[int] = {tensor.untyped_storage()._cdata for tensor in own}

    def begin_backward(self) -> None:
        """What is alive now has been kept for the backward pass."""
        self._phase, self.kept_bytes = "backward", self._alive_bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace != "prim":
            results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            for tensor in results:
                self._follow(tensor)
            if results:
                self._write_down(
                    func, [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)], results
                )
        return result

    def _follow(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self._alive_bytes += size
        self.peak_bytes = max(self.peak_bytes, self._alive_bytes)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._alive_bytes -= size

    def _write_down(self, func: Any, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        name = func.overloadpacket.__name__
        moves = name not in VIEWS
        self.operators.append(
            Operator(
                name=name,
                module=max(self._tracker.parents - {"Global"}, key=len, default="").partition(".")[2],
                phase=self._phase,
                dtype=results[0].dtype,
                product=_product(name, inputs) if name in PRODUCTS else None,
                bytes_read=moves * sum(map(_bytes, inputs)),
                bytes_written=moves * sum(map(_bytes, results)),
            )
        )


def _product(name: str, inputs: Sequence[Tensor]) -> tuple[int, int, int, int]:
    left, right = inputs[-2:]
    count = left.shape[0] if name in ("bmm", "baddbmm") else 1
    return count, left.shape[-2], right.shape[-1], left.shape[-1]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
