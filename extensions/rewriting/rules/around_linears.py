"""Rules R1, R4, R5, R6 and R9: a linear layer with its activation, its input, or the layer beside it.

R1 fuses a linear layer and its ReLU into one operator, which writes the result once. R4 splits a linear layer on a
concatenation into a sum of linear layers, or the inverse. R5 merges two consecutive linear layers without an activation
between them. R6 folds batch normalisation in evaluation mode into the linear layer before it. R9 pads widths with zeros
to a multiple of the CPU's vector width; the results do not change.
"""

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn

from shunter.extensions.rewriting import patterns
from shunter.extensions.rewriting.patterns import Rule, Site, call, calls, linear_like, parts_of, single_use, width
from shunter.extensions.rewriting.program import Program, fused_linear, linear, value_of
from shunter.models.layers import ALIGNMENT


class FuseActivation(Rule):
    """Rule that fuses `relu(linear(x))` into one operator."""

    name, number = "fuse_activation", "R1"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose only user is a ReLU."""
        for node in calls(program, "relu"):
            layer = node.args[0]
            if patterns.is_plain_linear(layer) and single_use(layer):
                yield layer, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert one operator for a linear layer and its activation."""
        return call(program, fused_linear, *site[0].args[:3], "relu")


class OneLinear(Rule):
    """Rule that computes `linear(x)` by oneDNN, which is faster for large batches on some CPUs."""

    name, number = "one_linear", "R1"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield plain linear layers."""
        return ((node,) for node in calls(program, "linear") if patterns.is_plain_linear(node))

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert oneDNN's operator."""
        return call(program, fused_linear, *site[0].args[:3], "none")


class MultiplyLinears(Rule):
    """Rule that replaces `W2 (W1 x + b1) + b2` by `(W2 W1) x + (W2 b1 + b2)`."""

    name, number = "multiply_linears", "R5"
    keeps_learning = False

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers on a plain linear layer that has no other user."""
        constants = program.constants()
        for node in patterns.constant_linears(program):
            below = node.args[0]
            is_plain = patterns.is_linear(below) and patterns.activation_of(below) in (None, "none")
            if is_plain and single_use(below) and below.args[1] in constants:
                yield below, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert one linear layer with the product of two matrices."""
        below, node = site
        source, lower, bias_below = below.args[:3]
        upper, bias = node.args[1:3]
        weight = call(program, torch.matmul, upper, lower)
        if bias_below is not None:
            moved = call(program, torch.matmul, upper, bias_below)
            bias = moved if bias is None else call(program, operator.add, moved, bias)
        return linear_like(program, node, source, weight, bias)


class SplitLinear(Rule):
    """Rule that replaces `linear([a, b])` by `linear_a(a) + linear_b(b)`: no copy, and both may merge with others."""

    name, number = "split_linear", "R4"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield plain linear layers on a concatenation that has no other user."""
        for node in filter(patterns.is_plain_linear, calls(program, "linear")):
            joined = node.args[0]
            if patterns.is_concat(joined, -1) and single_use(joined) and len(parts_of(joined)) > 1:
                yield joined, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Split off the first concatenated input; the other inputs stay concatenated."""
        joined, node = site
        first, *others = parts_of(joined)
        rest = others[0] if len(others) == 1 else call(program, torch.cat, others, -1)
        weights, cut = node.args[1], width(first)
        left = call(program, torch.narrow, weights, 1, 0, cut)
        right = call(program, torch.narrow, weights, 1, cut, width(joined) - cut)
        sides = call(program, linear, first, left, node.args[2]), call(program, linear, rest, right, None)
        return call(program, operator.add, *sides)


class JoinLinears(Rule):
    """Rule that replaces `linear_a(a) + linear_b(b)` by `linear([a, b])`: one matrix product."""

    name, number = "join_linears", "R4"
    keeps_learning = False  # two biases are merged

    def find(self, program: Program) -> Iterator[Site]:
        """Yield sums of two plain linear layers on different inputs."""
        constants = program.constants()
        for node in calls(program, "add"):
            sides = [one for one in node.args[:2] if patterns.is_plain_linear(one) and single_use(one)]
            if len(sides) == 2 and all(side.args[1] in constants for side in sides):
                yield *sides, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert one linear layer, with concatenated inputs and weights."""
        sides = site[:2]
        inputs = call(program, torch.cat, [side.args[0] for side in sides], -1)
        weights = call(program, torch.cat, [side.args[1] for side in sides], 1)
        biases = [side.args[2] for side in sides if side.args[2] is not None]
        bias = call(program, operator.add, *biases) if len(biases) == 2 else next(iter(biases), None)
        return call(program, linear, inputs, weights, bias)


def norm_scale(gamma: Tensor | None, variance: Tensor, epsilon: float) -> Tensor:
    """Return the factor by which batch normalisation multiplies each output of a linear layer."""
    scale = (variance + epsilon).rsqrt()
    return scale if gamma is None else scale * gamma


def scaled_rows(weight: Tensor, scale: Tensor) -> Tensor:
    """Multiply each row of a weight matrix by the factor of its output."""
    return weight * scale.unsqueeze(1)


def moved_bias(bias: Tensor | None, mean: Tensor, scale: Tensor, beta: Tensor | None) -> Tensor:
    """Return the bias of a linear layer into which batch normalisation is folded."""
    moved = (0 - mean if bias is None else bias - mean) * scale
    return moved if beta is None else moved + beta


class FoldNorm(Rule):
    """Rule that folds `gamma (W x + b - mean) / sqrt(variance + epsilon) + beta` into one linear layer."""

    name, number = "fold_norm", "R6"
    keeps_learning = False

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers followed by a normalisation in evaluation mode."""
        for node in program.graph.nodes:
            module = patterns.module_of(program, node)
            below = node.args[0] if isinstance(module, nn.BatchNorm1d) and not module.training else None
            if patterns.is_plain_linear(below) and single_use(below):
                yield below, node

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Insert one linear layer for the linear layer and the normalisation."""
        below, node = site
        module = patterns.module_of(program, node)
        assert isinstance(module, nn.BatchNorm1d)

        def own(name: str) -> fx.Node | None:
            return None if getattr(module, name) is None else program.graph.get_attr(f"{node.target}.{name}")

        scale = call(program, norm_scale, own("weight"), own("running_var"), module.eps)
        weight = call(program, scaled_rows, below.args[1], scale)
        bias = call(program, moved_bias, below.args[2], own("running_mean"), scale, own("bias"))
        return call(program, linear, below.args[0], weight, bias)


def padded_concat(parts: list[Tensor], zeros: int) -> Tensor:
    """Concatenate matrices and `zeros` columns of zeros in one copy, without a separate copy for the padding."""
    return torch.cat([*parts, parts[0].new_zeros(parts[0].shape[0], zeros)], 1)


class PadInput(Rule):
    """Rule that pads the input and the weights of a linear layer with zeros at the end of their rows."""

    name, number = "pad_input", "R9"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose input width is not a multiple of the vector width."""
        for node in patterns.constant_linears(program):
            source: Any = node.args[0]
            if width(source) % ALIGNMENT and width(source) > ALIGNMENT:
                yield (node,)

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Pad input and weights with zeros."""
        (node,) = site
        source: Any = node.args[0]
        zeros = -width(source) % ALIGNMENT
        if patterns.is_concat(source, -1) and single_use(source) and value_of(source).ndim == 2:
            padded = call(program, padded_concat, list(parts_of(source)), zeros)
        else:
            padded = call(program, nn.functional.pad, source, (0, zeros))
        weight = call(program, nn.functional.pad, node.args[1], (0, zeros))
        return linear_like(program, node, padded, weight, node.args[2])


class PadOutput(Rule):
    """Rule that pads the output of a linear layer with zeros, which are cut off afterwards."""

    name, number = "pad_output", "R9"

    def find(self, program: Program) -> Iterator[Site]:
        """Yield linear layers whose output width is not a multiple of the vector width."""
        for node in patterns.constant_linears(program):
            if width(node) % ALIGNMENT and width(node) > ALIGNMENT:
                yield (node,)

    def replacement(self, program: Program, site: Site) -> fx.Node:
        """Append rows of zeros to the weights."""
        (node,) = site
        source, weight, bias = node.args[:3]
        zeros = -width(node) % ALIGNMENT
        weight = call(program, nn.functional.pad, weight, (0, 0, 0, zeros))
        if bias is not None:
            bias = call(program, nn.functional.pad, bias, (0, zeros))
        wide = linear_like(program, node, source, weight, bias)
        return call(program, torch.narrow, wide, value_of(node).ndim - 1, 0, width(node))


RULES = (
    FuseActivation(),
    OneLinear(),
    MultiplyLinears(),
    SplitLinear(),
    JoinLinears(),
    FoldNorm(),
    PadInput(),
    PadOutput(),
)
