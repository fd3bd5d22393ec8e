"""Possible hidden layers of a super-net's MLP, represented as paths through its widths.

After each layer the activations have one of several widths. These are the widths of the layer and, if it may be
omitted, the widths before it. `INPUT` is the MLP's own input, as long as all layers are omitted. Every width after
every layer has a choice: the width before it from which this layer computes it, or `SKIP` if it is passed on unchanged.
A last choice selects the width that the output layer reads. An architecture is one path, read from the output
backwards, as in DNAS (arXiv 2110.14812). For two layers (32, 64) and (32, 64, 0), where 0 omits the layer:

    INPUT -> 32 -> 32 -> output        mlp_0_32, mlp_0_64    from INPUT
          -> 64 -> 64 ->               mlp_1_32, mlp_1_64    from 32 or 64, or SKIP
                                       mlp_output            from 32 or 64
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from shunter.extensions.nas.supernet.masks import Masks

INPUT = OUTPUT = 0
SKIP = -1
LayerCosts = Mapping[tuple[int, int], float]


class MlpPaths:
    """Paths of one MLP.

    Args:
        name: Prefix of the names of its choices.
        layers: Widths that each hidden layer may have; with 0 among them it may be omitted.

    Attributes:
        widths: Widths that the activations may have after each layer; before the first, the input.
        candidates: Possible sources of the width for each choice, by its name: `INPUT`, a width, or `SKIP`.
    """

    def __init__(self, name: str, layers: Sequence[Sequence[int]]) -> None:
        self.name = name
        self.layers = tuple(tuple(layer) for layer in layers)
        self.widths: list[tuple[int, ...]] = [(INPUT,)]
        self.candidates: dict[str, tuple[int, ...]] = {}
        for position, layer in enumerate(self.layers):
            before = self.widths[-1]
            kept = before if 0 in layer else ()
            made = tuple(width for width in layer if width)
            self.widths.append(tuple(dict.fromkeys((*kept, *made))))
            for width in self.widths[-1]:
                sources = (*(before if width in made else ()), *((SKIP,) if width in kept else ()))
                self.candidates[self.choice(position, width)] = sources
        self.candidates[self.output_choice] = self.widths[-1]

    @property
    def output_choice(self) -> str:
        """Return the name of the choice that decides which width the output layer reads."""
        return f"{self.name}_output"

    def choice(self, layer: int, width: int) -> str:
        """Return the name of the choice of the width from which `layer` computes `width`, such as `mlp_1_32`."""
        return f"{self.name}_{layer}_{width}"

    def made(self, layer: int) -> tuple[int, ...]:
        """Return the candidate widths of a layer, without 0 (omitted)."""
        return tuple(width for width in self.layers[layer] if width)

    def decode(self, picked: Mapping[str, int]) -> tuple[int, ...]:
        """Return the width of each hidden layer, 0 if omitted, from the picked candidate of each choice."""
        width = self.candidates[self.output_choice][picked[self.output_choice]]
        found: list[int] = []
        for layer in reversed(range(len(self.layers))):
            name = self.choice(layer, width)
            source = self.candidates[name][picked[name]]
            found.append(0 if source == SKIP else width)
            width = width if source == SKIP else source
        return tuple(reversed(found))

    def encode(self, widths: Sequence[int]) -> dict[str, int]:
        """Return the candidates of the choices along a path; the inverse of `decode`."""
        picked: dict[str, int] = {}
        now = INPUT
        for layer, width in enumerate(widths):
            after, source = (now, SKIP) if width == 0 else (width, now)
            name = self.choice(layer, after)
            picked[name] = self.candidates[name].index(source)
            now = after
        return {**picked, self.output_choice: self.candidates[self.output_choice].index(now)}

    def expected_cost(self, masks: Masks, costs: LayerCosts) -> Tensor:
        """Return the mean cost of the linear layers of the architectures in the mixture.

        The probability that a width is used is propagated from the output layer backwards. For one-hot masks the result
        is the exact cost of their architecture.

        Args:
            masks: Masks of all choices.
            costs: Cost of the linear layer between two widths, `INPUT` on the left and `OUTPUT` on the right.

        Returns:
            `[batch]`, in the unit of the costs.
        """
        last = masks[self.output_choice]
        there = dict(zip(self.widths[-1], last.unbind(1), strict=True))
        total = sum((there[width] * costs[width, OUTPUT] for width in there), torch.zeros_like(last[:, 0]))
        for layer in reversed(range(len(self.layers))):
            before: dict[int, Tensor] = {}
            for width, share in there.items():
                name = self.choice(layer, width)
                for source, mask in zip(self.candidates[name], masks[name].unbind(1), strict=True):
                    reached = share * mask
                    if source != SKIP:
                        total = total + reached * costs[source, width]
                    origin = width if source == SKIP else source
                    before[origin] = before[origin] + reached if origin in before else reached
            there = before
        return total

    def extreme_cost(self, costs: LayerCosts, extreme: Callable[..., float]) -> float:
        """Return the cost of the cheapest or the most expensive path: `extreme` is `min` or `max`."""
        reach: dict[int, float] = {INPUT: 0.0}
        for layer in range(len(self.layers)):
            reach = {
                width: extreme(
                    reach[width] if source == SKIP else reach[source] + costs[source, width]
                    for source in self.candidates[self.choice(layer, width)]
                )
                for width in self.widths[layer + 1]
            }
        return extreme(reach[width] + costs[width, OUTPUT] for width in reach)

    def linear_shapes(self) -> list[tuple[int, int]]:
        """Return the distinct (input width, output width) of all linear layers; the ends are `INPUT` and `OUTPUT`."""
        shapes = {
            (source, width): None
            for layer in range(len(self.layers))
            for width in self.made(layer)
            for source in self.candidates[self.choice(layer, width)]
            if source != SKIP
        }
        return [*shapes, *((width, OUTPUT) for width in self.widths[-1])]
