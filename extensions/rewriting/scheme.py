"""List and application of the rules, and the rewriting steps of a model as text, as saved in `model.json`."""

import importlib
import logging
import pkgutil
from collections.abc import Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor, fx, nn

from shunter.extensions.rewriting import rules
from shunter.extensions.rewriting.materialise import ScoringLayers, TrainingLayers
from shunter.extensions.rewriting.patterns import Rule, Site
from shunter.extensions.rewriting.program import PART, Program, UntraceableError, digests, trace
from shunter.models.recommender import Recommender
from shunter.models.registry import layer_inputs

TRACED_ROWS = 61  # default batch size for shape inference; a prime, so that it equals no width by chance
MOST_STEPS = 500
log = logging.getLogger(__name__)


@lru_cache(maxsize=1)
def known_rules() -> dict[str, Rule]:
    """Return all rules by name, from all files of `extensions/rewriting/rules`."""
    names = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
    modules = [importlib.import_module(f"{rules.__name__}.{name}") for name in names]
    found: list[Rule] = [rule for module in modules for rule in module.RULES]
    return {rule.name: rule for rule in found}


def applied(program: Program, rule: Rule, site: Sequence[int]) -> Program:
    """Apply a rule at a site of a program, tidy the result, and return it as a new program.

    Args:
        program: Program, not changed.
        rule: Rule to apply.
        site: Indices, in `Program.nodes`, of the nodes that the rule changes.

    Raises:
        ValueError: The rule does not fit at this site.
    """
    made = program.copy()
    nodes = made.nodes()
    if not all(0 <= number < len(nodes) for number in site):
        raise ValueError(f"the graph has no nodes {list(site)}")
    places = tuple(nodes[number] for number in site)
    if places not in set(rule.find(made)):
        raise ValueError(f"the rewriting rule {rule.name} does not apply to the nodes {list(site)} of the graph")
    _apply(made, rule, places)
    tidied(made)
    return made


def _apply(program: Program, rule: Rule, site: Site) -> None:
    """Apply a rule in place; new nodes belong to the subgraph of the site."""
    part = site[-1].meta.get(PART)
    rule.apply(program, site)
    for node in program.graph.nodes:
        node.meta.setdefault(PART, part)


def tidied(program: Program) -> None:
    """Apply, in place, the rules that never make a program slower, until none of them fits."""
    tidying = [rule for rule in known_rules().values() if rule.is_tidying]
    program.sweep()
    program.constants_first()
    program.infer()
    _share_equal(program)
    while True:
        for rule in tidying:
            site = next(iter(rule.find(program)), None)
            if site is not None:
                _apply(program, rule, site)
                program.sweep()
                program.infer()
                break
        else:
            _share_equal(program)
            program.infer()
            return


def _share_equal(program: Program) -> None:
    """Merge equal nodes, so that each value is computed once."""
    first: dict[str, fx.Node] = {}
    for node, digest in digests(program.graph.nodes).items():
        if node.op in ("placeholder", "output", "call_module"):
            continue  # calls of modules are not merged, since a module such as dropout may be random
        same = first.setdefault(digest, node)
        if same is not node:
            node.replace_all_uses_with(same)
    program.sweep()


def sites(program: Program, rule: Rule) -> Iterator[tuple[int, ...]]:
    """Yield the sites where a rule fits, as indices of nodes."""
    numbers = {node: number for number, node in enumerate(program.graph.nodes)}
    for site in rule.find(program):
        yield tuple(numbers[node] for node in site)


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
