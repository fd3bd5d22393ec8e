"""Rule R7: compute the dot products of all pairs of vectors as one matrix product, read by index."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx

from shunter.extensions.rewriting.patterns import axis_of, call, calls, is_call, replace, single_use
from shunter.extensions.rewriting.program import Program, value_of
from shunter.extensions.rewriting.rule import Rule, Site


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

    def apply(self, program: Program, site: Site) -> None:
        """Flatten the matrix, and use one index."""
        source, node = site
        index: Any = node.args[1]
        with program.graph.inserting_before(node):
            count = value_of(source).shape[2]
            left, right = (one for one in index[1:])
            flat = call(program, torch.flatten, source, 1)
            places = call(program, flat_index, left, right, count)
            replace(node, call(program, torch.index_select, flat, 1, places))


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

    def apply(self, program: Program, site: Site) -> None:
        """Insert the product, and select the requested pairs."""
        (node,) = site
        dots: Any = node.args[0]
        sides = [_sides(one) for one in dots]
        vectors = list(dict.fromkeys(side for pair in sides for side in pair))
        index = [vectors.index(left) * len(vectors) + vectors.index(right) for left, right in sides]
        with program.graph.inserting_before(node):
            stacked = call(program, torch.stack, vectors, 1)
            products = call(program, torch.bmm, stacked, call(program, torch.transpose, stacked, 1, 2))
            flat = call(program, torch.flatten, products, 1)
            replace(node, call(program, columns, flat, tuple(index)))


def columns(values: Tensor, index: tuple[int, ...]) -> Tensor:
    """Return the columns of a matrix at the given indices."""
    return values.index_select(1, torch.tensor(index, device=values.device))


def _is_dot(node: Any) -> bool:
    """Return True if a node is `(a * b).sum(1)` of two matrices, with a product that has no other user."""
    if not is_call(node, "sum") or not single_use(node) or axis_of(node, 1, -9, 2) != 1:
        return False
    product = node.args[0]
    return is_call(product, "mul") and single_use(product) and value_of(product).ndim == 2 and len(product.args) == 2


def _sides(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    product = node.args[0]
    assert isinstance(product, fx.Node)
    left, right = product.args
    assert isinstance(left, fx.Node)
    assert isinstance(right, fx.Node)
    return left, right


RULES = (FlatPairs(), BatchDots())
