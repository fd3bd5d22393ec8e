"""Rules R8 and R11: remove operations without an effect, and pairs that cancel each other."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from shunter.extensions.rewriting.patterns import (
    call,
    calls,
    concat_axis,
    is_call,
    is_concat,
    module_of,
    narrowed,
    parts_of,
    replace,
)
from shunter.extensions.rewriting.program import Program, value_of
from shunter.extensions.rewriting.rule import Rule, Site


class DropIdentities(Rule):
    """Rule that removes dropout without an effect, and casts and reshapes that change nothing."""

    name, number, is_tidying = "drop_identities", "R11", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield nodes that return their input."""
        constants = program.constants()
        for node in program.graph.nodes:
            if node in constants or not node.args or not isinstance(node.args[0], fx.Node):
                continue
            if _is_dropout(program, node) or _does_nothing(node):
                yield (node,)

    def apply(self, program: Program, site: Site) -> None:
        """Replace a node that returns its input by that input."""
        source = site[0].args[0]
        assert isinstance(source, fx.Node)
        replace(site[0], source)


def _is_dropout(program: Program, node: fx.Node) -> bool:
    module = module_of(program, node)
    return isinstance(module, nn.Dropout) and (module.p == 0 or not module.training)


def _does_nothing(node: fx.Node) -> bool:
    source: Any = node.args[0]
    before, after = value_of(source), value_of(node)
    if is_call(node, "float"):
        return before.dtype == torch.float32
    is_reshape = is_call(node, "flatten", "reshape", "view", "view_as", "contiguous", "unflatten", "squeeze")
    return is_reshape and before.ndim > 0 and before.shape == after.shape and before.stride() == after.stride()


class UndoTransposes(Rule):
    """Rule that removes two consecutive transpositions of the same axes."""

    name, number, is_tidying = "undo_transposes", "R8", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield transpositions of transpositions."""
        for node in calls(program, "transpose"):
            below = node.args[0]
            if isinstance(below, fx.Node) and is_call(below, "transpose") and _axes(node) == _axes(below):
                yield below, node

    def apply(self, program: Program, site: Site) -> None:
        """Replace two transpositions that cancel by the original input."""
        source = site[0].args[0]
        assert isinstance(source, fx.Node)
        replace(site[1], source)


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

    def apply(self, program: Program, site: Site) -> None:
        """Concatenate all inputs in one operation."""
        part, node = site
        parts: list[fx.Node] = []
        for one in parts_of(node):
            parts.extend(parts_of(one) if one is part else (one,))
        with program.graph.inserting_before(node):
            replace(node, call(program, torch.cat, parts, concat_axis(node)))


class NarrowConcat(Rule):
    """Rule that replaces a slice of a concatenation by one of the concatenated tensors, or by a slice of it."""

    name, number, is_tidying = "narrow_concat", "R8", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield slices of concatenations."""
        for node in calls(program, "narrow"):
            source = node.args[0]
            if is_concat(source) and _within(node) is not None:
                yield source, node  # pyright: ignore[reportReturnType]

    def apply(self, program: Program, site: Site) -> None:
        """Use the concatenated tensor itself, sliced if it is longer."""
        node = site[1]
        found = _within(node)
        assert found is not None
        part, start = found
        axis, length = int(node.args[1]), int(node.args[3])  # pyright: ignore[reportArgumentType]
        if length == value_of(part).shape[axis]:
            replace(node, part)
            return
        with program.graph.inserting_before(node):
            replace(node, narrowed(program, part, axis, start, length))


def _within(node: fx.Node) -> tuple[fx.Node, int] | None:
    source, axis, start, length = node.args
    assert isinstance(source, fx.Node)
    if concat_axis(source) != axis:
        return None
    begin = 0
    for part in parts_of(source):
        end = begin + value_of(part).shape[int(axis)]  # pyright: ignore[reportArgumentType]
        if begin <= start and start + length <= end:  # pyright: ignore[reportOperatorIssue]
            return part, start - begin  # pyright: ignore[reportOperatorIssue, reportReturnType]
        begin = end
    return None


class ConcatNarrows(Rule):
    """Rule that replaces a concatenation of adjacent slices of a tensor by that tensor."""

    name, number, is_tidying = "concat_narrows", "R8", True

    def find(self, program: Program) -> Iterator[Site]:
        """Yield concatenations of adjacent slices of one tensor."""
        for node in calls(program, "cat", "concat"):
            if len(parts_of(node)) > 1 and _source_of(node) is not None:
                yield (node,)

    def apply(self, program: Program, site: Site) -> None:
        """Replace the concatenation by the sliced tensor, or by one slice of it."""
        (node,) = site
        parts, axis = parts_of(node), concat_axis(node)
        source, start = parts[0].args[0], int(parts[0].args[2])  # pyright: ignore[reportArgumentType]
        assert isinstance(source, fx.Node)
        length = value_of(node).shape[axis]
        if length == value_of(source).shape[axis]:
            replace(node, source)
            return
        with program.graph.inserting_before(node):
            replace(node, narrowed(program, source, axis, start, length))


def _source_of(node: fx.Node) -> fx.Node | None:
    axis, end, source = concat_axis(node), None, None
    for part in parts_of(node):
        if not (is_call(part, "narrow") and part.args[1] == axis):
            return None
        if source is not None and (part.args[0] is not source or part.args[2] != end):
            return None
        source, end = part.args[0], part.args[2] + part.args[3]  # pyright: ignore[reportOperatorIssue]
    return source if isinstance(source, fx.Node) else None


RULES = (DropIdentities(), UndoTransposes(), FlattenConcats(), NarrowConcat(), ConcatNarrows())
