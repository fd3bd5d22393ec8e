"""Rule R2: merge several linear maps of the same input into one, and split its result."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import fx

from shunter.extensions.rewriting.patterns import (
    Rule,
    Site,
    activation_of,
    call,
    calls,
    constant_linears,
    is_plain_linear,
    linear_like,
    single_use,
)
from shunter.extensions.rewriting.program import Program, mixed_vectors, value_of


def _groups(alike: dict[tuple[object, ...], list[fx.Node]]) -> Iterator[Site]:
    for nodes in alike.values():
        if len(nodes) > 1:
            yield tuple(nodes)
        if len(nodes) > 2:
            yield from pairwise(nodes)


def _replace_by_slices(program: Program, site: Site, merged: fx.Node, axis: int) -> None:
    """Replace each node by its slice of the merged result along an axis, in the order of the site."""
    start = 0
    for node in site:
        length = value_of(node).shape[axis]
        node.replace_all_uses_with(call(program, torch.narrow, merged, axis, start, length))
        start += length


class MergeLinears(Rule):
    """Rule that merges linear layers of one input into one product with a taller matrix."""

    name, number = "merge_linears", "R2"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield all layers with the same input and activation, and each pair of successive layers among them."""
        alike: dict[tuple[object, ...], list[fx.Node]] = defaultdict(list)
        for node in constant_linears(program):
            alike[node.args[0], activation_of(node), node.args[2] is None].append(node)
        return _groups(alike)

    def apply(self, program: Program, site: Site) -> None:
        """Stack the layers' weights into one matrix, and take each layer's result as a slice of its output."""
        source, _, bias = site[0].args[:3]
        with program.graph.inserting_before(site[0]):
            weights = call(program, torch.cat, [node.args[1] for node in site])
            biases = None if bias is None else call(program, torch.cat, [node.args[2] for node in site])
            merged = linear_like(program, site[0], source, weights, biases)
            _replace_by_slices(program, site, merged, value_of(site[0]).ndim - 1)


class MergeMixes(Rule):
    """Rule that merges linear maps over the same vectors into one product with a taller matrix."""

    name, number = "merge_mixes", "R2"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield all maps over the same vectors, and each pair of successive maps among them."""
        alike: dict[tuple[object, ...], list[fx.Node]] = defaultdict(list)
        for node in calls(program, mixed_vectors.__name__):
            alike[(node.args[1],)].append(node)
        return _groups(alike)

    def apply(self, program: Program, site: Site) -> None:
        """Stack the maps' weights into one matrix, and take each map's result as a slice of the output vectors."""
        with program.graph.inserting_before(site[0]):
            weights = call(program, torch.cat, [node.args[0] for node in site])
            _replace_by_slices(program, site, call(program, mixed_vectors, weights, site[0].args[1]), 1)


class LiftActivation(Rule):
    """Rule that replaces the ReLUs on all slices of a merged output by one ReLU on the whole output."""

    name, number = "lift_activation", "R2"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose output is only used in slices, with a ReLU as the only user of each slice."""
        for node in calls(program, "linear"):
            parts = list(node.users)
            is_divided = len(parts) > 1 and all(part.target is torch.narrow and single_use(part) for part in parts)
            if is_divided and is_plain_linear(node) and all(_reader(part).target is torch.relu for part in parts):
                yield (node, *parts)

    def apply(self, program: Program, site: Site) -> None:
        """Apply one ReLU before the output is sliced."""
        node, *parts = site
        with program.graph.inserting_after(node):
            whole = call(program, torch.relu, node)
        for part in parts:
            _reader(part).replace_all_uses_with(part)
            part.args = (whole, *part.args[1:])


def _reader(node: fx.Node) -> fx.Node:
    return next(iter(node.users))


RULES = (MergeLinears(), MergeMixes(), LiftActivation())
