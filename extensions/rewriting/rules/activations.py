"""Rule R1: fuse a linear layer and its ReLU into one operator, which writes the result once."""

from collections.abc import Iterator

from torch import fx

from shunter.extensions.rewriting.operators import fused_linear, linear
from shunter.extensions.rewriting.patterns import call, calls, is_linear, replace, single_use
from shunter.extensions.rewriting.program import Program
from shunter.extensions.rewriting.rule import Rule, Site


class FuseActivation(Rule):
    """Rule that fuses `relu(linear(x))` into one operator."""

    name, number = "fuse_activation", "R1"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose only user is a ReLU."""
        for node in calls(program, "relu"):
            layer = node.args[0]
            if isinstance(layer, fx.Node) and is_linear(layer) and layer.target is linear and single_use(layer):
                yield layer, node

    def apply(self, program: Program, site: Site) -> None:
        """Replace a linear layer and its activation by one operator."""
        layer, node = site
        with program.graph.inserting_before(node):
            replace(node, call(program, fused_linear, *layer.args[:3], "relu"))


class OneLinear(Rule):
    """Rule that computes `linear(x)` by oneDNN, which is faster for large batches on some CPUs."""

    name, number = "one_linear", "R1"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield plain linear layers."""
        for node in calls(program, "linear"):
            if node.target is linear:
                yield (node,)

    def apply(self, program: Program, site: Site) -> None:
        """Replace the layer by oneDNN's operator."""
        (node,) = site
        with program.graph.inserting_before(node):
            replace(node, call(program, fused_linear, *node.args[:3], "none"))


RULES = (FuseActivation(), OneLinear())
