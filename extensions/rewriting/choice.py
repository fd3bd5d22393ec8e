"""Choice of a model's fastest rewriting steps on this machine: search by operator costs, then measure models."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shunter.engine.loop.stopwatch import Stopwatch, alternating_seconds
from shunter.errors import InfeasibleError
from shunter.extensions.rewriting.costs import Mode, OperatorCosts, home_folder
from shunter.extensions.rewriting.materialise import ScoringLayers, TrainingLayers
from shunter.extensions.rewriting.program import Program, UntraceableError
from shunter.extensions.rewriting.scheme import known_rules, original_layers, program_of, random_inputs, replayed
from shunter.extensions.rewriting.search import BY_DEFAULT, Candidate, Limits, search_in_parts
from shunter.models.registry import Model

GATE_BATCHES = (3, 1, 8)  # batch sizes for checking the equality of programs
SEED = 0
VALUE_TOLERANCE, GRADIENT_TOLERANCE = 1e-10, 1e-9  # largest differences, relative to the largest number


@dataclass(frozen=True)
class Chosen:
    """Fastest computation of a model.

    Attributes:
        steps: Rewriting steps.
        layers: Layers after these steps.
    """

    steps: tuple[str, ...]
    layers: nn.Module


def choose_steps(
    model: Model, rows: int, mode: Mode, stopwatch: Stopwatch = alternating_seconds, limits: Limits = BY_DEFAULT
) -> Chosen:
    """Search for faster programs of a model's layers, measure the best as a whole, and return the fastest one.

    Args:
        model: Model on the CPU, in the mode of the computation.
        rows: Rows of a batch.
        mode: Forward only, or forward and backward.
        stopwatch: Function that measures several functions alternately.
        limits: Limits of the search.

    Raises:
        InfeasibleError: The layers cannot be traced as a graph, or no equivalent program is faster.
    """
    try:
        problem = Problem(
            layers=original_layers(model),
            large=program_of(model, rows),
            small=program_of(model),
            inputs=random_inputs(model, rows, SEED),
            batches=[random_inputs(model, few, SEED + few) for few in GATE_BATCHES],
            mode=mode,
        )
    except UntraceableError as error:
        raise InfeasibleError(str(error)) from error
    return choose(problem, stopwatch, limits)


@dataclass(frozen=True)
class Problem:
    """Layers for which the fastest computation is searched.

    Attributes:
        layers: Original layers, in the mode of the computation.
        large: Program of the layers with the shapes of a whole batch.
        small: Program of the layers with the shapes of a few rows, as used when steps are replayed.
        inputs: Whole batch for the measurement of the best programs.
        batches: Small batches for checking the equality of programs.
        mode: Forward only, or forward and backward.
    """

    layers: nn.Module
    large: Program
    small: Program
    inputs: Sequence[torch.Tensor]
    batches: Sequence[Sequence[torch.Tensor]]
    mode: Mode


def choose(problem: Problem, stopwatch: Stopwatch, limits: Limits = BY_DEFAULT) -> Chosen:
    """Return the fastest program of a problem; see `choose_steps`.

    Raises:
        InfeasibleError: No equivalent program is faster.
    """
    is_scoring = problem.mode == "scoring"
    rules = [rule for rule in known_rules().values() if rule.keeps_learning or is_scoring]
    costs = OperatorCosts(problem.mode, torch.get_num_threads(), home_folder())
    start = Candidate(costs.of(problem.large), problem.large, ())
    found = search_in_parts(start, [rule for rule in rules if not rule.is_tidying], costs.of, limits)
    costs.save()
    contestants = _equal(problem, found)
    works = [_work(one, problem) for one in (problem.layers, *(made for _, made in contestants))]
    seconds = stopwatch(works)
    fastest = min(range(len(works)), key=seconds.__getitem__)
    if fastest == 0:
        raise InfeasibleError("no equivalent computation of its layers is faster on this machine")
    candidate, made = contestants[fastest - 1]
    return Chosen(candidate.steps, made)


def _equal(problem: Problem, found: Sequence[Candidate]) -> list[tuple[Candidate, nn.Module]]:
    """Return the candidates whose results equal those of the layers, each as a pair of candidate and module."""
    kept: list[tuple[Candidate, nn.Module]] = []
    for candidate in found:
        try:
            again = replayed(problem.small, candidate.steps)  # replay the steps, as when the model is loaded
            is_same = again.digest() == candidate.program.digest()
            if not is_same or not is_equal(problem.small, again, problem.batches):
                continue
            if problem.mode == "scoring":
                kept.append((candidate, ScoringLayers(problem.layers, again, candidate.steps)))
            elif candidate.steps:
                kept.append((candidate, TrainingLayers(problem.layers, again, candidate.steps).train()))
        except ValueError:  # a step does not fit, or the training of weights would differ
            continue
    return kept


def _work(layers: nn.Module, problem: Problem) -> Callable[[], object]:
    inputs = problem.inputs
    if problem.mode == "scoring":

        def score() -> None:
            with torch.no_grad():
                layers(*inputs)

        return score
    given = [inputs[0], inputs[1].requires_grad_(), *inputs[2:]]  # embeddings need gradients, dense features do not

    def learn() -> None:
        with torch.enable_grad():
            layers.zero_grad(set_to_none=True)
            layers(*given).sum().backward()

    return learn


def is_equal(one: Program, other: Program, batches: Sequence[Sequence[Tensor]]) -> bool:
    """Return True if two programs have equal logits and gradients within rounding, in float64 and evaluation mode.

    Args:
        one: Original program.
        other: Rewritten program, whose weights are computed from the original weights.
        batches: Inputs, converted to float64.
    """
    root, was_training = one.root, one.root.training
    values = gradients = 0.0
    root.eval()
    try:
        for batch in batches:
            first, second = (_both(program, batch) for program in (one, other))
            values = max(values, _largest(first[:1], second[:1]))
            gradients = max(gradients, _largest(first[1:], second[1:]))
    finally:
        root.train(was_training)
    return values <= VALUE_TOLERANCE and gradients <= GRADIENT_TOLERANCE


def _both(program: Program, batch: Sequence[Tensor]) -> list[Tensor]:
    """Return the logits, and the gradients of all inputs and weights."""
    tensors = {
        name: tensor.detach().double().requires_grad_(isinstance(tensor, torch.nn.Parameter))
        for name, tensor in (*program.root.named_parameters(), *program.root.named_buffers())
        if tensor.is_floating_point()
    }
    inputs = [one.double().requires_grad_() if one.is_floating_point() else one for one in batch]
    logits = program.run(inputs, tensors)
    wanted = [one for one in (*inputs, *tensors.values()) if one.requires_grad]
    weights = torch.linspace(0.5, 1.5, logits.numel(), dtype=torch.float64).view(logits.shape)
    found = torch.autograd.grad(logits, wanted, weights, allow_unused=True)
    zeros = (
        torch.zeros_like(one) if gradient is None else gradient for one, gradient in zip(wanted, found, strict=True)
    )
    return [logits.detach(), *zeros]


def _largest(some: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    found = 0.0
    for one, other in zip(some, others, strict=True):
        if one.numel():
            size = max(float(one.abs().max()), 1e-3)
            difference = float((one - other).abs().max())
            found = max(found, float("inf") if math.isnan(difference) else difference / size)
    return found
