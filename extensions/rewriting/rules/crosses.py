"""Rule R12: reorder the products of crosses and of linear maps over vectors to the cheaper order."""

from collections.abc import Iterator

import torch
from torch import fx

from shunter.extensions.rewriting.operators import linear, mixed_vectors
from shunter.extensions.rewriting.patterns import axis_of, call, calls, is_call, replace, single_use
from shunter.extensions.rewriting.program import Program, value_of
from shunter.extensions.rewriting.rule import Rule, Site


class Reassociate(Rule):
    """Rule that replaces `(x0 x') w` by `x0 (x' w)`: the cross of DCN without the matrix of all products."""

    name, number = "reassociate", "R12"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield outer products of two vectors of a sample, times a weight."""
        for node in calls(program, "matmul"):
            outer = node.args[0]
            if isinstance(outer, fx.Node) and is_call(outer, "bmm") and single_use(outer):
                column, row = outer.args[:2]
                if _is_column(column) and _is_row(row):
                    yield outer, node

    def apply(self, program: Program, site: Site) -> None:
        """Compute the inner product first."""
        outer, node = site
        column, row = outer.args[:2]
        with program.graph.inserting_before(node):
            inner = call(program, torch.matmul, row, node.args[1])
            if value_of(node).ndim == 2:  # weight is a vector: `[batch, 1]` times `[batch, dim]`
                column = call(program, torch.squeeze, column, 2)
            replace(node, call(program, torch.mul, column, inner))


def _is_column(node: object) -> bool:
    return isinstance(node, fx.Node) and value_of(node).ndim == 3 and value_of(node).shape[2] == 1


def _is_row(node: object) -> bool:
    return isinstance(node, fx.Node) and value_of(node).ndim == 3 and value_of(node).shape[1] == 1


class AddProduct(Rule):
    """Rule that computes `x + x0 * y` in one operator."""

    name, number = "add_product", "R12"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield sums of a tensor and a product of the same shape."""
        for node in calls(program, "add"):
            if len(node.args) != 2:
                continue
            for product, other in (node.args, reversed(node.args)):
                if is_call(product, "mul") and single_use(product) and isinstance(other, fx.Node):
                    shapes = {tuple(value_of(one).shape) for one in (product, other, node)}  # pyright: ignore[reportArgumentType]
                    if (
                        len(shapes) == 1
                        and len(product.args) == 2
                        and all(isinstance(one, fx.Node) for one in product.args)
                    ):  # pyright: ignore[reportAttributeAccessIssue]
                        yield product, other, node  # pyright: ignore[reportReturnType]
                        break

    def apply(self, program: Program, site: Site) -> None:
        """Replace the sum and the product by one operator."""
        product, other, node = site
        with program.graph.inserting_before(node):
            replace(node, call(program, torch.addcmul, other, *product.args))


class MixVectors(Rule):
    """Rule that replaces a linear layer between two transpositions by a multiplication from the left."""

    name, number = "mix_vectors", "R12"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers without bias between two transpositions."""
        for node in calls(program, "transpose"):
            layer = node.args[0]
            is_layer = isinstance(layer, fx.Node) and is_call(layer, "linear") and layer.target is linear
            if is_layer and single_use(layer) and layer.args[2] is None and _turns(node):  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
                below = layer.args[0]  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
                if is_call(below, "transpose") and _turns(below):
                    yield below, layer, node

    def apply(self, program: Program, site: Site) -> None:
        """Insert a batched matrix product."""
        below, layer, node = site
        with program.graph.inserting_before(node):
            replace(node, call(program, mixed_vectors, layer.args[1], below.args[0]))


def _turns(node: fx.Node) -> bool:
    dims = value_of(node).ndim
    return dims == 3 and {axis_of(node, position, 0, dims) for position in (1, 2)} == {1, 2}


RULES = (Reassociate(), AddProduct(), MixVectors())
