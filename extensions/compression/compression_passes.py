"""Passes that compress a model: their comparison with the original, 8-bit layers, and removal of hidden units."""

import copy
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from shunter.engine.passes.record import GainFigure
from shunter.engine.passes.role import Gain
from shunter.errors import InfeasibleError
from shunter.extensions.compression.bench import weight_bytes
from shunter.extensions.compression.compressed_linear import CompressedLinear, Int8Linear, PrunedLinear
from shunter.extensions.compression.fine_tune import fine_tune
from shunter.extensions.compression.layer_forms import is_compressed, linears_of, replaced
from shunter.extensions.compression.packing import hidden_units
from shunter.extensions.compression.subject import (
    CompressionSubject,
    Place,
    hidden_linears,
    inputs_of_layers,
    members_of,
    with_forms,
    with_members,
)
from shunter.models.layers import after_relu
from shunter.models.output_layer import OutputLayer

FASTER = 0.98  # of the time; smaller differences are noise
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75)  # of the hidden units, for pruning


class SmallerModel:
    """Base class of optimisation passes that compress a model; subclasses set the name and implement `apply`."""

    def applies(self, subject: CompressionSubject) -> str | None:
        """Return why the model cannot be compressed; None otherwise."""
        if is_compressed(subject.model):
            return "the model is compressed already"
        return None if hidden_linears(subject.model) else "the model has no wide hidden layer"

    def gain(self, before: CompressionSubject, after: CompressionSubject) -> Gain:
        """Return quality, time and bytes compared with the original, and whether the limits are kept."""
        bench, limits, limit = before.bench, before.limits, before.limits.quality
        old, new = bench.quality(before.model), bench.quality(after.model)
        was, now = limit.of(old), limit.of(new)
        works = [partial(bench.score, model, bench.rows) for model in (before.model, after.model)]
        times = [1e3 * seconds for seconds in bench.seconds(works)]
        sizes = weight_bytes(before.model), weight_bytes(after.model)
        figures = (
            GainFigure(name=limit.metric, before=was, after=now, source="measured"),
            GainFigure(name="ne", before=old.ne, after=new.ne, source="measured"),
            GainFigure(name="batch_milliseconds", before=times[0], after=times[1], source="measured"),
            GainFigure(name="weight_bytes", before=sizes[0], after=sizes[1], source="counted"),
        )
        most = math.inf if limits.max_bytes is None else limits.max_bytes
        made_as = f" ({after.form_name})" if after.form_name else ""
        reason = f"{times[0] / times[1]:.2f} times as fast at {limit.label} {now:.4f} ({now - was:+.4f}){made_as}"
        if not limit.is_kept(now):
            reason = f"{limit.label} {now:.4f} is worse than the limit {limit.bound:.4f}{made_as}"
        elif sizes[1] > most:
            reason = f"{sizes[1]:,} bytes are more than the {most:,} allowed{made_as}"
        elif sizes[0] > most or times[1] / times[0] <= FASTER:  # a model that is too large need not become faster
            return Gain(figures, reason, is_worth=True)
        else:
            reason = f"not faster: {reason}"
        return Gain(figures, reason, is_worth=False)


@dataclass(frozen=True)
class Candidate:
    """Compressed model that can be fine-tuned.

    Attributes:
        name: Display name.
        learning: Function that builds the trainable layers of each member.
        finished: Function that converts the trained layers to layers for scoring, in the same order.
    """

    name: str
    learning: Callable[[], Sequence[nn.Module]]
    finished: Callable[[Sequence[nn.Module]], Sequence[nn.Module]]


def fastest_within_limits(subject: CompressionSubject, candidates: Sequence[Candidate]) -> CompressionSubject:
    """Return the fastest candidate within the limits, by bisection; if there is none, the most accurate one tried.

    About `log2(n)` of `n` candidates are fine-tuned and measured. Slower candidates are assumed to be more accurate.

    Args:
        subject: Model to compress, with the limits.
        candidates: Candidates, the fastest first.

    Returns:
        Subject with the compressed model and its name.

    Raises:
        DataError: An array cannot be read.
    """
    best, nearest, least = None, None, float("inf")
    first, end = 0, len(candidates)
    while first < end:
        middle = (first + end) // 2
        made = _fine_tuned(subject, candidates[middle])
        limits = subject.limits
        quality = limits.quality.of(subject.bench.quality(made.model))
        fits = limits.max_bytes is None or weight_bytes(made.model) <= limits.max_bytes
        if limits.quality.is_kept(quality) and fits:
            best, end = made, middle
        else:
            first = middle + 1
        if (loss := limits.quality.loss(quality)) < least:
            nearest, least = made, loss
    found = best or nearest
    assert found is not None, "there is a candidate"
    return found


def _fine_tuned(subject: CompressionSubject, candidate: Candidate) -> CompressionSubject:
    members, learning = members_of(subject.model), candidate.learning()
    bench = subject.bench
    for member, layers in zip(members, learning, strict=True):
        fine_tune(layers, member, bench.dataset, bench.execution, subject.fine_tuning)
    finished = candidate.finished(learning)
    made = [member.with_layers(layers).eval() for member, layers in zip(members, finished, strict=True)]
    return replace(subject.with_model(with_members(subject.model, made)), form_name=candidate.name)


class Int8Layers(SmallerModel):
    """Pass that quantises weights once, and each input row when it is scored (`compressed_linear`)."""

    name = "int8"

    def apply(self, subject: CompressionSubject) -> CompressionSubject:
        """Convert each hidden layer to 8 bits if that is faster; all hidden layers if the size is limited.

        Raises:
            InfeasibleError: No layer is faster.
        """
        linears = hidden_linears(subject.model)
        positive = {
            (number, path)
            for number, member in enumerate(members_of(subject.model))
            for path in after_relu(member.layers)
        }
        forms: dict[Place, CompressedLinear] = {}
        for place, rows in inputs_of_layers(subject.model, subject.calibration).items():
            form = Int8Linear.of(linears[place], is_signed=place not in positive)
            works = [partial(linears[place], rows), partial(form, rows)]
            if subject.limits.max_bytes is not None or operator.gt(*subject.bench.seconds(works)):
                forms[place] = form
        if not forms:
            raise InfeasibleError("no hidden layer is faster in 8 bits on this machine")
        return subject.with_model(with_forms(subject.model, forms))


class PrunedUnits(SmallerModel):
    """Pass that removes units by the norms of their weights, then fine-tunes the model (`compressed_linear`)."""

    name = "pruning"

    def applies(self, subject: CompressionSubject) -> str | None:
        """Return why no unit can be removed; None otherwise."""
        refusal = super().applies(subject)
        if refusal is None and not all(_prunable_pairs(member.layers) for member in members_of(subject.model)):
            return "a member has no two layers with nothing but ReLU and dropout between them"
        return refusal

    def apply(self, subject: CompressionSubject) -> CompressionSubject:
        """Return the model with the fewest units within the limits."""

        def learning(share: float) -> list[nn.Module]:
            return [narrowed(member.layers, share) for member in members_of(subject.model)]

        named = {share: f"{share:g} of the hidden units" for share in SHARES}
        candidates = [Candidate(name, partial(learning, share), finished_layers) for share, name in named.items()]
        return fastest_within_limits(subject, candidates)


def narrowed(layers: nn.Module, share: float) -> nn.Module:
    """Return a copy of layers with a share of the hidden units: those with the largest weights on both sides."""
    made, linears = copy.deepcopy(layers), linears_of(layers)
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}
    for first, second in _prunable_pairs(layers):
        one, other = linears[first].weight.detach(), linears[second].weight.detach()
        strength = one.norm(dim=1) * other.norm(dim=0)
        count = max(1, round(share * len(strength)))
        outputs[first] = inputs[second] = strength.argsort(descending=True, stable=True)[:count].sort().values
    for path in outputs.keys() | inputs.keys():
        made.set_submodule(path, _narrow(linears[path], inputs.get(path), outputs.get(path)))
    return made


@torch.no_grad()
def _narrow(linear: nn.Linear, inputs: Tensor | None, outputs: Tensor | None) -> nn.Linear:
    weight, bias = linear.weight.detach(), linear.bias
    weight = weight if outputs is None else weight[outputs]
    weight = weight if inputs is None else weight[:, inputs]
    kind = OutputLayer if isinstance(linear, OutputLayer) else nn.Linear
    made = kind(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.weight.copy_(weight)
    if bias is not None:
        made.bias.copy_(bias.detach() if outputs is None else bias.detach()[outputs])
    return made


def _prunable_pairs(layers: nn.Module) -> list[tuple[str, str]]:
    return list(hidden_units(layers, also_between=()))


def finished_layers(learned: Sequence[nn.Module]) -> list[nn.Module]:
    """Return pruned layers in their form for scoring."""
    made: list[nn.Module] = []
    for layers in learned:
        pairs = {path for pair in _prunable_pairs(layers) for path in pair}
        forms = {path: PrunedLinear.of(linear) for path, linear in linears_of(layers).items() if path in pairs}
        made.append(replaced(layers, forms))
    return made


INT8, PRUNING = Int8Layers(), PrunedUnits()
