"""Rules R8 and R11: remove operations without an effect, and pairs that cancel each other."""

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import torch
from torch import fx, nn

from shunter.extensions.rewriting.patterns import (
    Rule,
    Site,
    call,
    calls,
    concat_axis,
    is_call,
    is_concat,
    module_of,
    parts_of,
)
from shunter.extensions.rewriting.program import Program, value_of

_Slice = tuple[fx.Node, int, int, int]  # arguments of `torch.narrow`: source, axis, start and length


class DropIdentities(Rule):
    """Rule that removes dropout without an effect, and casts and reshapes that change nothing."""

    name, number, is_tidying = "drop_identities", "R11", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield nodes that return their input."""
        constants = program.constants()
        for node in program.graph.nodes:
            if node in constants or not node.args or not isinstance(node.args[0], fx.Node):
                continue
            module = module_of(program, node)
            is_dropout = isinstance(module, nn.Dropout) and (module.p == 0 or not module.training)
            if is_dropout or _does_nothing(node, value_of(node.args[0])):
                yield (node,)

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Return the input of a node that returns its input."""
        return site[0].all_input_nodes[0]


def _does_nothing(node: fx.Node, before: torch.Tensor) -> bool:
    if is_call(node, "float"):
        return before.dtype == torch.float32
    after = value_of(node)
    is_reshape = is_call(node, "flatten", "reshape", "view", "view_as", "contiguous", "unflatten", "squeeze")
    return is_reshape and before.ndim > 0 and before.shape == after.shape and before.stride() == after.stride()


class UndoTransposes(Rule):
    """Rule that removes two consecutive transpositions of the same axes."""

    name, number, is_tidying = "undo_transposes", "R8", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield transpositions of transpositions."""
        for node in calls(program, "transpose"):
            below = node.args[0]
            if is_call(below, "transpose") and _axes(node) == _axes(below):
                yield below, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Return the original input of two transpositions that cancel."""
        return site[0].all_input_nodes[0]


def _axes(node: fx.Node) -> set[int]:
    dims = value_of(node).ndim
    return {int(axis) % dims for axis in node.args[1:3] if isinstance(axis, int)}


class FlattenConcats(Rule):
    """Rule that merges nested concatenations into one."""

    name, number, is_tidying = "flatten_concats", "R8", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield concatenations of which an input is a concatenation on the same axis without other users."""
        for node in calls(program, "cat", "concat"):
            for part in parts_of(node):
                if is_concat(part) and len(part.users) == 1 and concat_axis(part) == concat_axis(node):
                    yield part, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Concatenate all inputs in one operation."""
        part, node = site
        parts = [inner for one in parts_of(node) for inner in (parts_of(one) if one is part else (one,))]
        return call(program, torch.cat, parts, concat_axis(node))


class NarrowConcat(Rule):
    """Rule that replaces a slice of a concatenation by one of the concatenated tensors, or by a slice of it."""

    name, number, is_tidying = "narrow_concat", "R8", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield slices of concatenations."""
        for node in calls(program, "narrow"):
            source = node.args[0]
            if is_concat(source) and _within(node) is not None:
                yield source, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Return the concatenated tensor itself, sliced if it is longer."""
        found = _within(site[1])
        assert found is not None
        return _sliced(program, *found)


def _sliced(program: Program, source: fx.Node, axis: int, start: int, length: int) -> fx.Node:
    """Return a slice of a node along an axis, or the node if it is not longer."""
    is_whole = length == value_of(source).shape[axis]
    return source if is_whole else call(program, torch.narrow, source, axis, start, length)


def _within(node: fx.Node) -> _Slice | None:
    """Return the part of a concatenation that has a slice of it, with the slice's axis, start and length there."""
    source, axis, start, length = cast("_Slice", node.args)
    begin = 0
    for part in parts_of(source) if concat_axis(source) == axis else ():
        end = begin + value_of(part).shape[axis]
        if begin <= start and start + length <= end:
            return part, axis, start - begin, length
        begin = end
    return None


class ConcatNarrows(Rule):
    """Rule that replaces a concatenation of adjacent slices of a tensor by that tensor."""

    name, number, is_tidying = "concat_narrows", "R8", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield concatenations of adjacent slices of one tensor."""
        for node in calls(program, "cat", "concat"):
            parts, axis = parts_of(node), concat_axis(node)
            if len(parts) > 1 and all(is_call(part, "narrow") and part.args[1] == axis for part in parts):
                slices = [cast("_Slice", part.args) for part in parts]
                if all(one[0] is other[0] and one[2] + one[3] == other[2] for one, other in pairwise(slices)):
                    yield (node,)

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Return the sliced tensor, or one slice of it."""
        (node,) = site
        source, axis, start, _ = cast("_Slice", parts_of(node)[0].args)
        return _sliced(program, source, axis, start, value_of(node).shape[axis])


RULES = (DropIdentities(), UndoTransposes(), FlattenConcats(), NarrowConcat(), ConcatNarrows())
