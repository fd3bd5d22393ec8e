"""Interface of a rule, an exact change of a program at a site, and helpers to match and insert nodes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from torch import fx, nn
from typing_extensions import TypeIs

from shunter.extensions.rewriting.program import Program, fused_linear, linear, target_name, value_of

Site = tuple[fx.Node, ...]


class Rule(ABC):
    """Exact change of a program, with pattern and replacement; operations on weights become part of the graph.

    Attributes:
        name: Name of the rule in the rewriting steps of a model.
        number: Number in the project's table of rules, R1 to R12.
        keeps_learning: Whether training gives the same results, because weights are only rearranged.
        is_tidying: Whether the rule never makes a program slower, so that it is applied wherever it fits.
    """

    name: str
    number: str
    keeps_learning = True
    is_tidying = False

    @abstractmethod
    def find(self, program: Program) -> Iterator[Site]:
        """Yield the sites where the rule fits, in the order of the graph."""

    def apply(self, program: Program, site: Site) -> None:
        """Change the program in place, by default at the site's last node; `tidied` then removes unused nodes."""
        with program.graph.inserting_before(site[-1]):
            site[-1].replace_all_uses_with(self.replacement(program, site))

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert what computes the result of the site's last node, and return the node that replaces it."""
        raise NotImplementedError


def calls(program: Program, *names: str) -> Iterator[fx.Node]:
    """Yield the nodes that depend on inputs and call one of the given functions or methods."""
    constants = program.constants()
    for node in program.graph.nodes:
        if is_call(node, *names) and node not in constants:
            yield node


def is_call(node: Any, *names: str) -> TypeIs[fx.Node]:
    """Return True if a node calls a function or method with one of the given names."""
    return isinstance(node, fx.Node) and node.op in ("call_function", "call_method") and target_name(node) in names


def is_linear(node: Any) -> TypeIs[fx.Node]:
    """Return True if a node is a linear layer, with or without a fused activation."""
    return isinstance(node, fx.Node) and node.op == "call_function" and node.target in (linear, fused_linear)


def is_plain_linear(node: Any) -> TypeIs[fx.Node]:
    """Return True if a node is a linear layer without a fused activation."""
    return is_call(node, "linear") and node.target is linear


def constant_linears(program: Program) -> Iterator[fx.Node]:
    """Yield the linear layers that depend on inputs, and whose weights do not."""
    constants = program.constants()
    for node in program.graph.nodes:
        if is_linear(node) and node not in constants and node.args[1] in constants:
            yield node


def activation_of(node: fx.Node) -> str | None:
    """Return the activation of a fused linear layer; None for a plain linear layer."""
    return str(node.args[3]) if node.target is fused_linear else None


def single_use(node: Any) -> TypeIs[fx.Node]:
    """Return True if a node has exactly one user."""
    return isinstance(node, fx.Node) and len(node.users) == 1


def width(node: fx.Node) -> int:
    """Return the length of a node's last axis."""
    shape = value_of(node).shape
    return shape[-1] if shape else 0


def axis_of(node: fx.Node, position: int, default: int, dims: int) -> int:
    """Return an axis among a node's arguments as a non-negative index."""
    given = node.args[position] if len(node.args) > position else node.kwargs.get("dim", default)
    return int(given) % dims if isinstance(given, int) and dims else -1


def parts_of(node: fx.Node) -> tuple[fx.Node, ...]:
    """Return the nodes that a concatenation joins."""
    given = node.args[0] if node.args else node.kwargs["tensors"]
    return tuple(one for one in given if isinstance(one, fx.Node)) if isinstance(given, Sequence) else ()


def concat_axis(node: fx.Node) -> int:
    """Return the axis of a concatenation."""
    return axis_of(node, 1, 0, value_of(node).ndim)


def is_concat(node: Any, axis: int | None = None) -> TypeIs[fx.Node]:
    """Return True if a node is a concatenation, optionally along a given axis (-1 is the last one)."""
    if not is_call(node, "cat", "concat") or len(parts_of(node)) < 1:
        return False
    dims = value_of(node).ndim
    return axis is None or (dims > 0 and concat_axis(node) == axis % dims)


def call(program: Program, function: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """Insert a node that calls a function."""
    return program.graph.call_function(function, args, kwargs)


def linear_like(program: Program, like: fx.Node, input: Any, weight: Any, bias: Any) -> fx.Node:
    """Insert a linear layer with the same activation as another linear layer."""
    activation = activation_of(like)
    if activation is None:
        return call(program, linear, input, weight, bias)
    return call(program, fused_linear, input, weight, bias, activation)


def module_of(program: Program, node: fx.Node) -> nn.Module | None:
    """Return the module that a node calls."""
    return program.root.get_submodule(str(node.target)) if node.op == "call_module" else None
