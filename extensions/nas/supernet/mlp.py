"""MLP of a super-net: every path through its widths, mixed by masks."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.extensions.nas.supernet.masks import Masks
from shunter.extensions.nas.supernet.paths import INPUT, SKIP, MlpPaths
from shunter.models.layers import initialise_linear
from shunter.models.output_layer import OutputLayer


class Candidates(nn.Linear):
    """Linear layers of several widths on one input, computed as one matrix product.

    Args:
        inputs: Width of the input.
        widths: Widths of the candidates.
    """

    def __init__(self, inputs: int, widths: Sequence[int]) -> None:
        super().__init__(inputs, sum(widths))
        self.widths = tuple(widths)

    def reset_parameters(self) -> None:
        """Do nothing: `initialise` sets the weights."""

    @torch.no_grad()
    def initialise(self) -> None:
        """Initialise each candidate like a separate layer, as `shunter.models.registry` does."""
        for weight, bias in zip(self.weight.split(self.widths), self.bias.split(self.widths), strict=True):
            initialise_linear(weight, bias)

    def split(self, input: Tensor) -> dict[int, Tensor]:
        """Map `[batch, inputs]` to the `[batch, width]` of each candidate, after ReLU."""
        rectified = super().forward(input).relu()
        return dict(zip(self.widths, rectified.split(self.widths, dim=1), strict=True))


class SuperMlp(nn.Module):
    """All hidden layers that an MLP may have, and an output layer for each width that may precede it.

    In each layer, each pair of widths has its own linear layer. The exception are layers on the MLP's input: all
    positions of the first layer share their weights, because the input is wide and these layers are expensive.

    Args:
        paths: Choices of the MLP.
        inputs: Width of the input.
        outputs: Width of the output.
        rectified: If True, apply a ReLU to the output, which is then an inner layer of a larger model.
    """

    def __init__(self, paths: MlpPaths, inputs: int, outputs: int, *, rectified: bool) -> None:
        super().__init__()
        self.paths, self.rectified = paths, rectified
        shapes = paths.linear_shapes()
        first = sorted({after for before, after in shapes if before == INPUT and after})
        self.first = Candidates(inputs, first) if first else None
        self.hidden = nn.ModuleList(
            nn.ModuleDict(
                {str(width): Candidates(width, paths.made(layer)) for width in paths.widths[layer] if width != INPUT}
            )
            if paths.made(layer)
            else nn.ModuleDict()
            for layer in range(len(paths.layers))
        )
        kind = nn.Linear if rectified else OutputLayer
        self.output = nn.ModuleDict({str(width): kind(width or inputs, outputs) for width in paths.widths[-1]})
        for module in self.modules():
            if isinstance(module, Candidates):
                module.initialise()
            elif isinstance(module, nn.Linear):
                initialise_linear(module.weight, module.bias)

    def forward(self, input: Tensor, masks: Masks) -> Tensor:
        """Map `[batch, inputs]` to `[batch, outputs]`."""
        first = self.first.split(input) if self.first is not None else {}
        now = {INPUT: input}
        for layer in range(len(self.paths.layers)):
            now = self._layer(layer, now, first, masks)
        mask = masks[self.paths.output_choice]
        outputs = [self._output(width, activations) for width, activations in now.items()]
        return mixed(outputs, mask)

    def _layer(
        self, layer: int, before: dict[int, Tensor], first: dict[int, Tensor], masks: Masks
    ) -> dict[int, Tensor]:
        """Return the activations of each width after a layer, given those before it."""
        made = {int(width): module.split(before[int(width)]) for width, module in self._modules_of(layer)}
        made[INPUT] = first
        after: dict[int, Tensor] = {}
        for width in self.paths.widths[layer + 1]:
            name = self.paths.choice(layer, width)
            sources = self.paths.candidates[name]
            candidates = [before[width] if source == SKIP else made[source][width] for source in sources]
            after[width] = mixed(candidates, masks[name])
        return after

    def _modules_of(self, layer: int) -> list[tuple[str, Candidates]]:
        modules = self.hidden[layer]
        assert isinstance(modules, nn.ModuleDict)
        return [(width, module) for width, module in modules.items() if isinstance(module, Candidates)]

    def _output(self, width: int, activations: Tensor) -> Tensor:
        output = self.output[str(width)](activations)
        return output.relu() if self.rectified else output


def mixed(candidates: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Return the sum of `[batch, width]` candidates weighted by `[batch, candidates]`; a single one without weight."""
    if len(candidates) == 1:
        return candidates[0]
    mixed = candidates[0] * mask[:, :1]
    for position, candidate in enumerate(candidates[1:], start=1):
        mixed = torch.addcmul(mixed, candidate, mask[:, position : position + 1])
    return mixed
