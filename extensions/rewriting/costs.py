"""Measured times of operators on this machine, saved in Shunter's home folder for later runs."""

import contextlib
import hashlib
import json
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, fx

from shunter.checked_json import json_object, read_or_quarantine, write_checked
from shunter.extensions.rewriting.program import VALUE, Program, attribute, mapped, operators, target_name
from shunter.hardware.devices.identity import machine_id

Mode = Literal["scoring", "training"]
ROUNDS, SHORTEST_SECONDS, LONGEST_SECONDS = 8, 2e-4, 0.12


class OperatorCosts:
    """Measured seconds of operators, by function and shapes.

    Each operator is measured alone, on random numbers in its own memory. A sum over a graph therefore ignores data that
    stays in the caches between two operators, so the best graphs are also measured whole.

    Args:
        mode: Forward only, or forward and backward.
        threads: Number of threads, which the caller has already set.
        folder: Folder of the saved times; None to save nothing.
    """

    def __init__(self, mode: Mode, threads: int, folder: Path | None) -> None:
        self.mode: Mode = mode
        self.measured = 0
        named = f"{machine_id()} {torch.__version__} {mode} {threads}"
        self._path = folder / f"{hashlib.sha256(named.encode()).hexdigest()[:16]}.json" if folder else None
        self._known = self._read()

    def of(self, program: Program) -> float:
        """Return the seconds of a whole graph: the sum over all operators that depend on inputs."""
        return sum(self.of_node(program, node) for node in operators(program))

    def of_node(self, program: Program, node: fx.Node) -> float:
        """Return the seconds of one operator."""
        if not isinstance(node.meta[VALUE], Tensor | tuple | list):
            return 0.0
        what = target_name(node)
        if node.op == "call_module":
            what = type(program.root.get_submodule(what)).__name__
        key = f"{what}{mapped((node.args, node.kwargs), lambda other: _OperandKey(other.meta[VALUE]))!r}"
        if key not in self._known:
            self._known[key] = self._measure(program, node)
            self.measured += 1
        return self._known[key]

    def save(self) -> None:
        """Save the new measurements, merged with those that other processes have saved."""
        if self._path is None or not self.measured:
            return
        with contextlib.suppress(OSError):  # if the disk is full, later runs measure again
            write_checked(self._path, json.dumps({**self._read(), **self._known}, indent=0))

    def _read(self) -> dict[str, float]:
        def parse(text: bytes) -> dict[str, float]:
            return {key: float(value) for key, value in json_object(text).items() if float(value) >= 0}

        return (self._path and read_or_quarantine(self._path, parse)) or {}

    def _measure(self, program: Program, node: fx.Node) -> float:
        learns = self.mode == "training"
        args, kwargs = (
            mapped(one, lambda other: _real(program, other, learns=learns)) for one in (node.args, node.kwargs)
        )
        function = _function(program, node)
        if not learns:
            with torch.no_grad():
                return shortest_seconds(lambda: function(*args, **kwargs))
        given = [one for one in _tensors((args, kwargs)) if one.requires_grad]

        def both() -> None:
            found = [one for one in _tensors(function(*args, **kwargs)) if one.requires_grad]
            if found:
                torch.autograd.grad(found, given, [torch.ones_like(one) for one in found], allow_unused=True)

        return shortest_seconds(both)


def home_folder() -> Path | None:
    """Return the folder of saved times in Shunter's home folder; None if only the training code is installed."""
    try:
        from shunter.settings import Settings
    except ImportError:
        return None
    return Settings().operators_directory


def shortest_seconds(work: Callable[[], object]) -> float:
    """Return the shortest of several measured times; each covers enough calls for the clock's resolution."""
    timer = timeit.Timer(work)
    work()
    once = max(timer.timeit(1), 1e-7)
    calls, best, spent = max(1, int(SHORTEST_SECONDS / once)), once, 0.0
    for _ in range(ROUNDS):
        taken = timer.timeit(calls)
        best, spent = min(best, taken / calls), spent + taken
        if spent > LONGEST_SECONDS:
            break
    return best


class _OperandKey:
    """Operand of an operator in the key of its saved time: dtype, shape and strides of a tensor."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        if not isinstance(self._value, Tensor):
            return repr(self._value) if isinstance(self._value, int | float) else type(self._value).__name__
        kind = str(self._value.dtype).removeprefix("torch.")
        return f"{kind}{list(self._value.shape)}{list(self._value.stride())}"


def _function(program: Program, node: fx.Node) -> Callable[..., Any]:
    if node.op == "call_module":
        return program.root.get_submodule(str(node.target))
    if node.op == "call_method":
        return lambda first, *others, **named: getattr(first, str(node.target))(*others, **named)
    assert callable(node.target)
    return node.target


def _real(program: Program, node: fx.Node, *, learns: bool) -> Any:
    """Return an operand to measure with: random numbers, or the program's own values for a tensor of indices."""
    value = node.meta[VALUE]
    if isinstance(value, tuple | list):
        return type(value)(_random(one, learns=learns) for one in value)
    if not isinstance(value, Tensor):
        return value
    if value.is_floating_point():
        return _random(value, learns=learns)
    if node.op == "get_attr":
        return attribute(program.root, str(node.target))
    if node.op == "call_function" and node.all_input_nodes and callable(node.target):
        return node.target(*mapped(node.args, lambda other: _real(program, other, learns=False)))
    return torch.zeros(value.shape, dtype=value.dtype)


def _random(value: Tensor, *, learns: bool) -> Tensor:
    made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return made.normal_().requires_grad_(learns)


def _tensors(values: Any) -> list[Tensor]:
    from torch.utils._pytree import tree_leaves

    return [one for one in tree_leaves(values) if isinstance(one, Tensor)]
