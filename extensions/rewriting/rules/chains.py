"""Rule R5: merge two consecutive linear layers without an activation between them."""

import operator
from collections.abc import Iterator

import torch
from torch import fx

from shunter.extensions.rewriting.operators import linear
from shunter.extensions.rewriting.patterns import call, is_linear, linear_like, replace, single_use
from shunter.extensions.rewriting.program import Program
from shunter.extensions.rewriting.rule import Rule, Site


class MultiplyLinears(Rule):
    """Rule that replaces `W2 (W1 x + b1) + b2` by `(W2 W1) x + (W2 b1 + b2)`."""

    name, number = "multiply_linears", "R5"
    keeps_learning = False

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers on a plain linear layer that has no other user."""
        constants = program.constants()
        for node in program.graph.nodes:
            below = node.args[0] if is_linear(node) and node not in constants else None
            if isinstance(below, fx.Node) and is_linear(below) and single_use(below):
                is_plain = below.target is linear or below.args[3] == "none"
                if is_plain and node.args[1] in constants and below.args[1] in constants:
                    yield below, node

    def apply(self, program: Program, site: Site) -> None:
        """Replace two successive linear layers by one with the product of their matrices."""
        below, node = site
        with program.graph.inserting_before(node):
            upper = node.args[1]
            weight = call(program, torch.matmul, upper, below.args[1])
            bias = node.args[2]
            if below.args[2] is not None:
                moved = call(program, torch.matmul, upper, below.args[2])
                bias = moved if bias is None else call(program, operator.add, moved, bias)
            assert isinstance(below.args[0], fx.Node)
            replace(node, linear_like(program, node, below.args[0], weight, bias))


RULES = (MultiplyLinears(),)
