"""Rules R7 and R12: cheaper ways to multiply vectors.

R7 computes the dot products of all pairs of vectors as one matrix product, read by index. R12 reorders the products of
crosses and of linear maps over vectors to the cheaper order.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from shunter.extensions.rewriting.patterns import (
    Rule,
    Site,
    axis_of,
    call,
    calls,
    is_call,
    is_plain_linear,
    single_use,
)
from shunter.extensions.rewriting.program import Program, mixed_vectors, value_of


class Reassociate(Rule):
    """Rule that replaces `(x0 x') w` by `x0 (x' w)`: the cross of DCN without the matrix of all products."""

    name, number = "reassociate", "R12"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield outer products of two vectors of a sample, times a weight."""
        for node in calls(program, "matmul"):
            outer = node.args[0]
            if is_call(outer, "bmm") and single_use(outer):
                column, row = (value_of(one) for one in outer.args[:2] if isinstance(one, fx.Node))
                if column.ndim == row.ndim == 3 and column.shape[2] == row.shape[1] == 1:
                    yield outer, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Compute the inner product first."""
        outer, node = site
        column, row = outer.args[:2]
        inner = call(program, torch.matmul, row, node.args[1])
        if value_of(node).ndim == 2:  # weight is a vector: `[batch, 1]` times `[batch, dim]`
            column = call(program, torch.squeeze, column, 2)
        return call(program, torch.mul, column, inner)


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
                    is_alike = value_of(product).shape == value_of(other).shape == value_of(node).shape
                    if is_alike and len(product.args) == 2 and all(isinstance(one, fx.Node) for one in product.args):
                        yield product, other, node
                        break

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert one operator for the sum and the product."""
        product, other, _ = site
        return call(program, torch.addcmul, other, *product.args)


class MixVectors(Rule):
    """Rule that replaces a linear layer between two transpositions by a multiplication from the left."""

    name, number = "mix_vectors", "R12"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers without bias between two transpositions."""
        for node in filter(_turns, calls(program, "transpose")):
            layer = node.args[0]
            if is_plain_linear(layer) and single_use(layer) and layer.args[2] is None:
                below = layer.args[0]
                if is_call(below, "transpose") and _turns(below):
                    yield below, layer, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert a batched matrix product."""
        below, layer, _ = site
        return call(program, mixed_vectors, layer.args[1], below.args[0])


def _turns(node: fx.Node) -> bool:
    dims = value_of(node).ndim
    return dims == 3 and {axis_of(node, position, 0, dims) for position in (1, 2)} == {1, 2}


def flat_index(left: Tensor, right: Tensor, count: int) -> Tensor:
    """Return the positions `left * count + right` of pairs in a flattened `[count, count]` matrix of dot products."""
    return left * count + right


class FlatPairs(Rule):
    """Rule that replaces `products[:, left, right]` by a selection of columns, which is ten times as fast in torch."""

    name, number = "flat_pairs", "R7"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield nodes that index two axes at once by constants."""
        constants = program.constants()
        for node in calls(program, "getitem"):
            source, index = node.args
            if not isinstance(source, fx.Node) or value_of(source).ndim != 3 or not isinstance(index, tuple):
                continue
            is_triple = len(index) == 3 and index[0] == slice(None)
            if is_triple and all(isinstance(one, fx.Node) and one in constants for one in index[1:]):
                yield source, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Flatten the matrix, and use one index."""
        source, node = site
        index: Any = node.args[1]
        flat = call(program, torch.flatten, source, 1)
        places = call(program, flat_index, *index[1:], value_of(source).shape[2])
        return call(program, torch.index_select, flat, 1, places)


class BatchDots(Rule):
    """Rule that replaces `[sum(v_i * v_j)]` for many pairs by one product of the stacked vectors with themselves."""

    name, number = "batch_dots", "R7"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield each call of `torch.stack` in the graph that stacks at least three dot products of pairs."""
        for node in calls(program, "stack"):
            dots = node.args[0]
            is_last = axis_of(node, 1, 0, value_of(node).ndim) == 1
            if is_last and isinstance(dots, list | tuple) and len(dots) > 2 and all(_is_dot(one) for one in dots):
                yield (node,)

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert the product, and select the requested pairs."""
        dots: Any = site[0].args[0]
        sides = [dot.args[0].args for dot in dots]
        vectors = list(dict.fromkeys(side for pair in sides for side in pair))
        index = [vectors.index(left) * len(vectors) + vectors.index(right) for left, right in sides]
        stacked = call(program, torch.stack, vectors, 1)
        products = call(program, torch.bmm, stacked, call(program, torch.transpose, stacked, 1, 2))
        return call(program, columns, call(program, torch.flatten, products, 1), tuple(index))


def columns(values: Tensor, index: tuple[int, ...]) -> Tensor:
    """Return the columns of a matrix at the given indices."""
    return values.index_select(1, torch.tensor(index, device=values.device))


def _is_dot(node: Any) -> bool:
    """Return True if a node is `(a * b).sum(1)` of two matrices, with a product that has no other user."""
    if not is_call(node, "sum") or not single_use(node) or axis_of(node, 1, -9, 2) != 1:
        return False
    product = node.args[0]
    return is_call(product, "mul") and single_use(product) and value_of(product).ndim == 2 and len(product.args) == 2


RULES = (Reassociate(), AddProduct(), MixVectors(), FlatPairs(), BatchDots())
