"""Pass that removes the hidden units of smallest weights, as many as the lowest AUC allows."""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from shunter.extensions.compression.fitting import Candidate, fastest_within_limits
from shunter.extensions.compression.layer_forms import linears_of, replaced
from shunter.extensions.compression.pruned import PrunedLinear
from shunter.extensions.compression.smaller import SmallerModel
from shunter.extensions.compression.subject import CompressionSubject, members_of, prunable_pairs
from shunter.models.output_layer import OutputLayer

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75)  # of the hidden units


class PrunedUnits(SmallerModel):
    """Pass that removes units by the norms of their weights, then fine-tunes the model (`compression.pruned`)."""

    name = "pruning"

    def applies(self, subject: CompressionSubject) -> str | None:
        """Return why no unit can be removed; None otherwise."""
        refusal = super().applies(subject)
        if refusal is None and not all(prunable_pairs(member.layers) for member in members_of(subject.model)):
            return "a member has no two layers with nothing but ReLU and dropout between them"
        return refusal

    def apply(self, subject: CompressionSubject) -> CompressionSubject:
        """Return the model with the fewest units within the limits."""
        members = members_of(subject.model)
        return fastest_within_limits(
            subject,
            [
                Candidate(
                    f"{share:g} of the hidden units",
                    lambda share=share: [narrowed(member.layers, share) for member in members],
                    finished_layers,
                )
                for share in SHARES
            ],
        )


def narrowed(layers: nn.Module, share: float) -> nn.Module:
    """Return a copy of layers with a share of the hidden units: those with the largest weights on both sides."""
    made = copy.deepcopy(layers)
    linears = linears_of(layers)
    outputs: dict[str, torch.Tensor] = {}
    inputs: dict[str, torch.Tensor] = {}
    for first, second in prunable_pairs(layers):
        one, other = linears[first].weight.detach(), linears[second].weight.detach()
        strength = one.norm(dim=1) * other.norm(dim=0)
        count = max(1, round(share * len(strength)))
        outputs[first] = inputs[second] = strength.argsort(descending=True, stable=True)[:count].sort().values
    for path in outputs.keys() | inputs.keys():
        made.set_submodule(path, _narrow(linears[path], inputs.get(path), outputs.get(path)))
    return made


@torch.no_grad()
def _narrow(linear: nn.Linear, inputs: torch.Tensor | None, outputs: torch.Tensor | None) -> nn.Linear:
    weight, bias = linear.weight.detach(), linear.bias
    weight = weight if outputs is None else weight[outputs]
    weight = weight if inputs is None else weight[:, inputs]
    kind = OutputLayer if isinstance(linear, OutputLayer) else nn.Linear
    made = kind(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.copy_(weight)
    if bias is not None:
        made.bias.copy_(bias.detach() if outputs is None else bias.detach()[outputs])
    return made


def finished_layers(learned: Sequence[nn.Module]) -> list[nn.Module]:
    """Return pruned layers in their form for scoring."""
    made: list[nn.Module] = []
    for layers in learned:
        pairs = {path for pair in prunable_pairs(layers) for path in pair}
        forms = {path: PrunedLinear.of(linear) for path, linear in linears_of(layers).items() if path in pairs}
        made.append(replaced(layers, forms))
    return made


PASS = PrunedUnits()
