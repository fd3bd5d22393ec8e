"""Rule R9: pad widths with zeros to a multiple of the CPU's vector width; the results do not change."""

from collections.abc import Iterator

import torch
from torch import Tensor, fx, nn

from shunter.extensions.rewriting.patterns import (
    call,
    is_concat,
    is_linear,
    linear_like,
    narrowed,
    parts_of,
    replace,
    single_use,
    width,
)
from shunter.extensions.rewriting.program import Program, value_of
from shunter.extensions.rewriting.rule import Rule, Site
from shunter.models.layers import ALIGNMENT


def padded_concat(parts: list[Tensor], zeros: int) -> Tensor:
    """Concatenate matrices and `zeros` columns of zeros in one copy, without a separate copy for the padding."""
    return torch.cat([*parts, parts[0].new_zeros(parts[0].shape[0], zeros)], 1)


class PadInput(Rule):
    """Rule that pads the input and the weights of a linear layer with zeros at the end of their rows."""

    name, number = "pad_input", "R9"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose input width is not a multiple of the vector width."""
        for node in _layers(program):
            source = node.args[0]
            if width(source) % ALIGNMENT and width(source) > ALIGNMENT:  # pyright: ignore[reportArgumentType]
                yield (node,)

    def apply(self, program: Program, site: Site) -> None:
        """Pad input and weights with zeros."""
        (node,) = site
        source = node.args[0]
        assert isinstance(source, fx.Node)
        zeros = -width(source) % ALIGNMENT
        with program.graph.inserting_before(node):
            if is_concat(source, -1) and single_use(source) and value_of(source).ndim == 2:
                padded = call(program, padded_concat, list(parts_of(source)), zeros)
            else:
                padded = call(program, nn.functional.pad, source, (0, zeros))
            weight = call(program, nn.functional.pad, node.args[1], (0, zeros))
            replace(node, linear_like(program, node, padded, weight, node.args[2]))  # pyright: ignore[reportArgumentType]


class PadOutput(Rule):
    """Rule that pads the output of a linear layer with zeros, which are cut off afterwards."""

    name, number = "pad_output", "R9"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose output width is not a multiple of the vector width."""
        for node in _layers(program):
            if width(node) % ALIGNMENT and width(node) > ALIGNMENT:
                yield (node,)

    def apply(self, program: Program, site: Site) -> None:
        """Append rows of zeros to the weights."""
        (node,) = site
        zeros, dims = -width(node) % ALIGNMENT, value_of(node).ndim
        with program.graph.inserting_before(node):
            weight = call(program, nn.functional.pad, node.args[1], (0, 0, 0, zeros))
            bias = node.args[2]
            if bias is not None:
                bias = call(program, nn.functional.pad, bias, (0, zeros))
            wide = linear_like(program, node, node.args[0], weight, bias)  # pyright: ignore[reportArgumentType]
            replace(node, narrowed(program, wide, dims - 1, 0, width(node)))


def _layers(program: Program) -> Iterator[fx.Node]:
    constants = program.constants()
    for node in program.graph.nodes:
        if is_linear(node) and node not in constants and node.args[1] in constants:
            yield node


RULES = (PadInput(), PadOutput())
