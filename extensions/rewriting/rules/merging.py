"""Rule R2: merge several linear maps of the same input into one, and split its result."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import fx

from shunter.extensions.rewriting.operators import linear, mixed_vectors
from shunter.extensions.rewriting.patterns import (
    activation_of,
    call,
    calls,
    is_linear,
    linear_like,
    narrowed,
    replace,
    single_use,
    width,
)
from shunter.extensions.rewriting.program import Program, value_of
from shunter.extensions.rewriting.rule import Rule, Site


def _groups(alike: dict[tuple[object, ...], list[fx.Node]]) -> Iterator[Site]:
    for nodes in alike.values():
        if len(nodes) > 1:
            yield tuple(nodes)
        if len(nodes) > 2:
            yield from pairwise(nodes)


class MergeLinears(Rule):
    """Rule that merges linear layers of one input into one product with a taller matrix."""

    name, number = "merge_linears", "R2"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield all layers with the same input and activation, and each pair of successive layers among them."""
        alike: dict[tuple[object, ...], list[fx.Node]] = defaultdict(list)
        constants = program.constants()
        for node in program.graph.nodes:
            if is_linear(node) and node not in constants and node.args[1] in constants:
                alike[node.args[0], activation_of(node), node.args[2] is None].append(node)
        yield from _groups(alike)

    def apply(self, program: Program, site: Site) -> None:
        """Stack the layers' weights into one matrix, and take each layer's result as a slice of its output."""
        first = site[0]
        with program.graph.inserting_before(first):
            weights = call(program, torch.cat, [node.args[1] for node in site])
            biases = None
            if first.args[2] is not None:
                biases = call(program, torch.cat, [node.args[2] for node in site])
            assert isinstance(first.args[0], fx.Node)
            merged = linear_like(program, first, first.args[0], weights, biases)
            start = 0
            for node in site:
                replace(node, narrowed(program, merged, value_of(node).ndim - 1, start, width(node)))
                start += width(node)


class MergeMixes(Rule):
    """Rule that merges linear maps over the same vectors into one product with a taller matrix."""

    name, number = "merge_mixes", "R2"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield all maps over the same vectors, and each pair of successive maps among them."""
        alike: dict[tuple[object, ...], list[fx.Node]] = defaultdict(list)
        for node in calls(program, mixed_vectors.__name__):
            alike[(node.args[1],)].append(node)
        yield from _groups(alike)

    def apply(self, program: Program, site: Site) -> None:
        """Stack the maps' weights into one matrix, and take each map's result as a slice of the output vectors."""
        with program.graph.inserting_before(site[0]):
            weights = call(program, torch.cat, [node.args[0] for node in site])
            merged, start = call(program, mixed_vectors, weights, site[0].args[1]), 0
            for node in site:
                count = value_of(node).shape[1]
                replace(node, narrowed(program, merged, 1, start, count))
                start += count


class LiftActivation(Rule):
    """Rule that replaces the ReLUs on all slices of a merged output by one ReLU on the whole output."""

    name, number = "lift_activation", "R2"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose output is only used in slices, with a ReLU as the only user of each slice."""
        for node in calls(program, "linear"):
            parts = list(node.users)
            is_divided = len(parts) > 1 and all(part.target is torch.narrow and single_use(part) for part in parts)
            if is_divided and node.target is linear and all(_reader(part).target is torch.relu for part in parts):
                yield (node, *parts)

    def apply(self, program: Program, site: Site) -> None:
        """Apply one ReLU before the output is sliced."""
        node, *parts = site
        with program.graph.inserting_after(node):
            whole = call(program, torch.relu, node)
        for part in parts:
            replace(_reader(part), part)
            part.args = (whole, *part.args[1:])


def _reader(node: fx.Node) -> fx.Node:
    return next(iter(node.users))


RULES = (MergeLinears(), MergeMixes(), LiftActivation())
