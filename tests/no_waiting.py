"""Refuses what makes the host wait for a GPU, on any device: so a step can be watched where there is none."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operators whose result the host has to know, as a number or as a shape.
READ_BY_THE_HOST = {
    "_local_scalar_dense",
    "equal",
    "is_nonzero",
    "item",
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
    "_unique",
    "_unique2",
}
INDEXED_BY_MASK = {"index", "index_put", "index_put_", "_index_put_impl_"}


class WaitError(AssertionError):
    """A step asked for something that the host would wait for."""


class _Operators(TorchDispatchMode):
    """Looks at each operator before it runs."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        reason = _why_it_waits(func, args, options)
        if reason is not None:
            raise WaitError(f"{func}: {reason}")
        return func(*args, **options)


class _Functions(TorchFunctionMode):
    """Looks at what reaches no operator on every device."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (torch.tensor, torch.as_tensor, Tensor.new_tensor):
            raise WaitError(f"{func.__name__}: it makes a constant of the host's numbers")
        if func is Tensor.tolist:
            raise WaitError("tolist: the host reads it")
        return func(*args, **(kwargs or {}))


@contextmanager
def no_waiting() -> Iterator[None]:
    """Refuse reads by the host, copies between devices, new constants, masks as indices, and uncounted repetitions."""
    with _Operators(), _Functions():
        yield


def _why_it_waits(func: Any, args: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    name = func._schema.name.removeprefix("aten::")
    tensors = [leaf for leaf in tree_leaves((args, options)) if isinstance(leaf, Tensor)]
    devices = {tensor.device.type for tensor in tensors if tensor.ndim}  # a number is part of the launch
    if isinstance(options.get("device"), torch.device):
        devices.add(options["device"].type)
    if name in READ_BY_THE_HOST:
        return "the host reads it"
    if tensors and len(devices) > 1:
        return f"it is on {' and '.join(sorted(devices))}"
    if name.startswith("lift"):
        return "it makes a constant of the host's numbers"
    if name in INDEXED_BY_MASK and any(leaf.dtype == torch.bool for leaf in tree_leaves(args[1]) if leaf is not None):
        return "it reads where a mask is set"
    if name == "repeat_interleave" and func._overloadname == "Tensor" and options.get("output_size") is None:
        return "it counts the repetitions"
    return None
