"""Rewriting steps of a model as text, `rule:node,node`, as saved in `model.json`."""

import logging
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from shunter.extensions.rewriting.application import applied, known_rules, tidied
from shunter.extensions.rewriting.materialise import ScoringLayers, TrainingLayers
from shunter.extensions.rewriting.program import Program, UntraceableError, trace
from shunter.models.recommender import Recommender
from shunter.models.registry import layer_inputs

TRACED_ROWS = 61  # default batch size for shape inference; a prime, so that it equals no width by chance
MOST_STEPS = 500
log = logging.getLogger(__name__)


def program_of(model: Recommender, batch_rows: int | None = None) -> Program:
    """Return the tidied program of a model's layers, in the current mode of the model.

    Args:
        model: Model on the CPU.
        batch_rows: Batch size for shape inference without computation; None to compute a few rows.

    Raises:
        UntraceableError: The layers cannot be traced; the message names the layers and the reason.
    """
    device = "cpu" if batch_rows is None else "meta"
    inputs = layer_inputs(model.spec, model.features, batch_rows or TRACED_ROWS, device)
    try:
        program = trace(original_layers(model), inputs)
        tidied(program)
    except UntraceableError as error:
        raise UntraceableError(
            f"the layers of the family {model.spec.family} cannot be traced for rewriting: {error}"
        ) from error
    return program


def replayed(program: Program, steps: Sequence[str]) -> Program:
    """Return a program after the given rewriting steps.

    Raises:
        ValueError: A step is invalid or does not fit, because it belongs to other layers or another version.
    """
    if len(steps) > MOST_STEPS:
        raise ValueError(f"the saved rewriting has {len(steps)} steps, more than any search makes")
    for step in steps:
        name, _, numbers = step.partition(":")
        rule = known_rules().get(name)
        if rule is None or not all(part.isdecimal() for part in numbers.split(",")):
            raise ValueError(f"unknown rewriting step {step[:80]!r}")
        program = applied(program, rule, [int(part) for part in numbers.split(",")])
    return program


def step_text(name: str, site: Sequence[int]) -> str:
    """Return a rewriting step as text, for files."""
    return f"{name}:{','.join(map(str, site))}"


def original_layers(model: Recommender) -> nn.Module:
    """Return the original layers of a model, without rewriting."""
    layers = model.layers
    return layers.original if isinstance(layers, ScoringLayers) else layers  # pyright: ignore[reportReturnType]


def steps_of(model: Recommender) -> tuple[str, ...]:
    """Return the rewriting steps that a model scores with; empty for a model that is not rewritten."""
    return model.layers.steps if isinstance(model.layers, ScoringLayers) else ()


def is_rewritten(model: nn.Module) -> bool:
    """Return True if a model, or a member of an ensemble, is rewritten."""
    return any(isinstance(module, ScoringLayers) for module in model.modules())


def score_with(model: Recommender, steps: Sequence[str]) -> None:
    """Apply rewriting steps to a model in evaluation mode; if the steps do not fit, the model does not change.

    The weights are the original weights in both cases, so the steps only affect the rounding of scores.
    """
    if not steps:
        return
    try:
        program = replayed(program_of(model), steps)
        model.layers = ScoringLayers(original_layers(model), program, tuple(steps))
    except (ValueError, RuntimeError) as error:
        log.warning("A model scores with its layers as they are, since its steps are of another version: %s", error)


class Rewriting:
    """Alteration of a trained model: rewriting of its layers for scoring."""

    def describe(self, model: Recommender) -> list[str]:
        """Return the rewriting steps of a model, for its file."""
        return list(steps_of(model))

    def prepare(self, layers: nn.Module, description: object) -> None:
        """Do nothing, because the stored weights are those of the original layers."""

    def finish(self, model: Recommender, description: object) -> None:
        """Apply the rewriting steps in a loaded model's file.

        Raises:
            ValueError: The steps are not texts.
        """
        if not isinstance(description, list) or not all(isinstance(step, str) for step in description):
            raise ValueError("the saved rewriting steps are not texts")
        score_with(model, description)


class RewrittenStep:
    """Option of a training step that rewrites the layers."""

    def apply(self, model: Recommender, value: Sequence[str]) -> None:
        """Apply the rewriting steps `value` to a model in training mode, before its optimizer is built.

        Raises:
            ValueError: The steps do not fit.
        """
        if value:
            program = replayed(program_of(model), value)
            model.layers = TrainingLayers(model.layers, program, tuple(value)).train(model.training)

    def remove(self, model: Recommender) -> None:
        """Restore the original layers of a model, with the weights trained so far."""
        if isinstance(model.layers, TrainingLayers):
            model.layers = model.layers.restored()


REWRITING, REWRITTEN_STEP = Rewriting(), RewrittenStep()


def random_inputs(model: Recommender, rows: int, seed: int) -> tuple[Tensor, ...]:
    """Return random float32 inputs of the layers."""
    generator = torch.Generator().manual_seed(seed)
    dense, pooled, *lengths = layer_inputs(model.spec, model.features, rows, "cpu")
    drawn = [torch.randn(one.shape, generator=generator) for one in (dense, pooled)]
    longest = [field.length or 1 for field in model.features.histories]
    for one in lengths:
        columns = [torch.randint(1, most + 1, (rows, 1), generator=generator) for most in longest]
        drawn.append(torch.cat(columns, 1).to(one.dtype))
    return tuple(drawn)
