"""Rule R4: split a linear layer on a concatenation into a sum of linear layers, or the inverse."""

import operator
from collections.abc import Iterator

import torch
from torch import fx

from shunter.extensions.rewriting.operators import linear
from shunter.extensions.rewriting.patterns import (
    call,
    calls,
    is_call,
    is_concat,
    narrowed,
    parts_of,
    replace,
    single_use,
    width,
)
from shunter.extensions.rewriting.program import Program
from shunter.extensions.rewriting.rule import Rule, Site


class SplitLinear(Rule):
    """Rule that replaces `linear([a, b])` by `linear_a(a) + linear_b(b)`: no copy, and both may merge with others."""

    name, number = "split_linear", "R4"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield plain linear layers on a concatenation that has no other user."""
        for node in calls(program, "linear"):
            joined = node.args[0]
            if node.target is linear and is_concat(joined, -1) and single_use(joined) and len(parts_of(joined)) > 1:  # pyright: ignore[reportArgumentType]
                yield joined, node  # pyright: ignore[reportReturnType]

    def apply(self, program: Program, site: Site) -> None:
        """Split off the first concatenated input; the other inputs stay concatenated."""
        joined, node = site
        first, *others = parts_of(joined)
        with program.graph.inserting_before(node):
            rest = others[0] if len(others) == 1 else call(program, torch.cat, others, -1)
            weights, cut = node.args[1], width(first)
            left = narrowed(program, weights, 1, 0, cut)
            right = narrowed(program, weights, 1, cut, width(joined) - cut)
            sides = call(program, linear, first, left, node.args[2]), call(program, linear, rest, right, None)
            replace(node, call(program, operator.add, *sides))


class JoinLinears(Rule):
    """Rule that replaces `linear_a(a) + linear_b(b)` by `linear([a, b])`: one matrix product."""

    name, number = "join_linears", "R4"
    keeps_learning = False  # two biases are merged

    def find(self, program: Program) -> Iterator[Site]:
        """Yield sums of two plain linear layers on different inputs."""
        constants = program.constants()
        for node in calls(program, "add"):
            sides = node.args[:2]
            if len(sides) == 2 and all(_is_plain(side) and single_use(side) for side in sides):
                left, right = sides
                if all(side.args[1] in constants for side in sides):  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
                    yield left, right, node  # pyright: ignore[reportReturnType]

    def apply(self, program: Program, site: Site) -> None:
        """Replace the linear layers by one, with concatenated inputs and weights."""
        left, right, node = site
        with program.graph.inserting_before(node):
            inputs = call(program, torch.cat, [left.args[0], right.args[0]], -1)
            weights = call(program, torch.cat, [left.args[1], right.args[1]], 1)
            biases = [side.args[2] for side in (left, right) if side.args[2] is not None]
            bias = call(program, operator.add, *biases) if len(biases) == 2 else next(iter(biases), None)
            replace(node, call(program, linear, inputs, weights, bias))


def _is_plain(node: object) -> bool:
    return isinstance(node, fx.Node) and is_call(node, "linear") and node.target is linear


RULES = (SplitLinear(), JoinLinears())
