"""Trace of one training step of the dense layers, recorded without memory or arithmetic.

Fake tensors go through autograd and autocast like real ones on a processor. So the operators, their shapes and types,
and the lifetime of every tensor are those of a real step, for models of any size.

Tracing takes a second, and later runs need the same shapes again. So each trace is a file in Shunter's home folder. Its
name is a digest of everything that a trace depends on: the layers, the shapes of their weights and inputs, the sources
of the models, and torch. A trace is independent of the rows of the tables.
"""

import contextlib
import hashlib
import json
import math
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.module_tracker import ModuleTracker

from shunter.checked_json import read_or_quarantine, write_checked

Phase = Literal["forward", "backward"]
# Operators that only create views: dispatched like any other operator, but without reading or writing data.
VIEWS = frozenset(
    ("view", "t", "transpose", "squeeze", "unsqueeze", "slice", "detach", "expand", "select", "alias", "permute")
) | {"_unsafe_view", "new_empty_strided", "split", "split_with_sizes", "as_strided", "unbind", "chunk"}
PRODUCTS = frozenset(("mm", "addmm", "bmm", "baddbmm"))
OWN_OR_TORCH = ("shunter.models.", "torch.")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One dispatched operator.

    Attributes:
        name: Torch's name, without namespace and overload.
        module: Path of the innermost running module, empty outside of all modules.
        phase: Phase of the step.
        dtype: Data type of the result.
        product: (number of products, m, n, k) of a matrix product `[m, k] x [k, n]`; None for other operators.
        bytes_read: Bytes of all input tensors.
        bytes_written: Bytes of all results.
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
        """FLOPs of a matrix product, multiply and add counted as two; 0 for other operators."""
        return 2 * math.prod(self.product) if self.product else 0


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """Operators and memory of one step of the dense layers.

    Attributes:
        operators: Operators in the order of their dispatch.
        kept_bytes: Bytes of tensors stored from forward to backward, without weights.
        peak_bytes: Peak bytes alive at a time without weights and inputs, but with gradients of the weights.
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
        layers: Layers on the meta device, which return the logits.
        make_inputs: Makes the inputs of the layers; inputs that need a gradient are looked-up embeddings.
        half: Whether the step runs under bfloat16 autocast.
        tasks: Number of logits of a sample.
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
    """Records operators, and counts the bytes that are alive."""

    def __init__(self, tracker: ModuleTracker, own: Sequence[Tensor]) -> None:
        super().__init__()
        self.operators: list[Operator] = []
        self.kept_bytes = self.peak_bytes = 0
        self._tracker = tracker
        self._phase: Phase = "forward"
        self._alive_bytes = 0
        self._own = list(own)  # references, so that no new storage gets one of their addresses
        self._known: set[int] = {tensor.untyped_storage()._cdata for tensor in own}

    def begin_backward(self) -> None:
        """Start the backward phase; all memory alive now is stored for it."""
        self._phase, self.kept_bytes = "backward", self._alive_bytes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace != "prim":
            results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            for tensor in results:
                storage = tensor.untyped_storage()
                key, size = storage._cdata, storage.nbytes()
                if key not in self._known:
                    self._known.add(key)
                    self._alive_bytes += size
                    self.peak_bytes = max(self.peak_bytes, self._alive_bytes)
                    weakref.finalize(storage, self._forget, key, size)
            if results:
                self._write_down(
                    func, [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)], results
                )
        return result

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._alive_bytes -= size

    def _write_down(self, func: Any, inputs: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        name = func.overloadpacket.__name__
        moves, product = name not in VIEWS, None
        if name in PRODUCTS:
            left, right = inputs[-2:]
            count = left.shape[0] if name in ("bmm", "baddbmm") else 1
            product = count, left.shape[-2], right.shape[-1], left.shape[-1]
        self.operators.append(
            Operator(
                name=name,
                module=max(self._tracker.parents - {"Global"}, key=len, default="").partition(".")[2],
                phase=self._phase,
                dtype=results[0].dtype,
                product=product,
                bytes_read=moves * sum(map(_bytes, inputs)),
                bytes_written=moves * sum(map(_bytes, results)),
            )
        )


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def cached_trace(layers: nn.Module, inputs: Sequence[Tensor], named: str, trace: Callable[[], StepTrace]) -> StepTrace:
    """Return the trace of a step from the cache, or make and cache it.

    Args:
        layers: Layers on the meta device.
        inputs: Inputs of the layers, on the meta device.
        named: Text of everything else that the trace depends on, for the cache key.
        trace: Makes the trace.
    """
    try:
        from shunter.settings import settings
    except ImportError:  # a machine that only trains and has no home folder
        return trace()
    path = settings().traces_directory / f"{_key(layers, inputs, named)}.json"
    found = read_or_quarantine(path, _from_json)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(path)  # records the use, so that unused traces can be removed
        return found
    made = trace()
    with contextlib.suppress(OSError):  # with a full disk the step is traced again next time
        operators = [{**vars(one), "dtype": str(one.dtype).removeprefix("torch.")} for one in made.operators]
        write_checked(path, json.dumps({**asdict(made), "operators": operators}))
    return made


def _key(layers: nn.Module, inputs: Sequence[Tensor], named: str) -> str:
    weights = [(name, list(weight.shape), str(weight.dtype)) for name, weight in layers.state_dict().items()]
    given = [(list(tensor.shape), str(tensor.dtype), tensor.requires_grad) for tensor in inputs]
    # Source files of layers from extensions or other distributions.
    names = {type(module).__module__ for module in layers.modules()}
    files = {getattr(sys.modules[name], "__file__", None) for name in names if not name.startswith(OWN_OR_TORCH)}
    sources = _digest_of_sources(tuple(sorted(Path(file) for file in files if file)))
    whole = json.dumps([named, str(layers), weights, given, torch.__version__, sources])
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


@lru_cache
def _digest_of_sources(others: tuple[Path, ...]) -> str:
    """Return the digest of the source code of the models, so that changed layers are traced again."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.rglob("*.py")), *others):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _from_json(text: bytes) -> StepTrace:
    values = json.loads(text)
    for one in values["operators"]:
        one |= {"dtype": getattr(torch, one["dtype"]), "product": one["product"] and tuple(one["product"])}
        if not isinstance(one["dtype"], torch.dtype):
            raise TypeError(f"{one['dtype']} is not a numeric type")
    return StepTrace(**{**values, "operators": tuple(Operator(**one) for one in values["operators"])})
