"""Parsing, checking and building of ranking models; `shunter.model_families` lists the models."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import torch

from shunter.errors import RequestError
from shunter.model_families import RANKING_MODELS, is_solved
from shunter.models.graph.spec import FusionSpec, Graph, GraphSpec, VectorSpec
from shunter.models.spec import nearest

if TYPE_CHECKING:
    from shunter.models.graph.model import GraphModel
    from shunter.models.graph.propagation import Backend
    from shunter.models.graph.solved import SolvedModel

POSITIVE = ("regularization", "relative_regularization", "unobserved_weight", "temperature")  # options above 0


def graph_spec(family: str = "lightgcn", **options: float) -> GraphSpec:
    """Build the configuration of a graph model from plain options; options of other models are ignored.

    Raises:
        RequestError: The family or an option is unknown.
    """
    spec = _spec_class(family)
    own = {option.name for option in fields(spec)}
    if others := options.keys() - own:
        known = {one.name for name in (*RANKING_MODELS.names, FusionSpec.family) for one in fields(_spec_class(name))}
        for name in options:
            if name in others - known:
                raise RequestError(f"The graph model has no option {name!r}: {nearest(name, known)}.")
    return spec(**{name: value for name, value in options.items() if name in own})


def _spec_class(family: str) -> type[GraphSpec]:
    if family == FusionSpec.family:  # built from other models, and not available by request
        return FusionSpec
    if family not in RANKING_MODELS:
        known = (*RANKING_MODELS.names, FusionSpec.family)
        raise RequestError(f"Unknown graph model {family!r}: {nearest(family, known)}.")
    return RANKING_MODELS.load(family).spec_class


def learned_model(family: str) -> "type[GraphModel[Any]]":
    """Return the class of a ranking model that is trained in steps."""
    return RANKING_MODELS.load(family)


def solved_model(family: str) -> "type[SolvedModel[Any]]":
    """Return the class of a ranking model with a closed form."""
    return RANKING_MODELS.load(family)


def learns_in_steps(family: str) -> bool:
    """Return True if the ranking model of this name is trained in steps."""
    return family in RANKING_MODELS and not is_solved(family)


def build_graph_model(
    spec: GraphSpec,
    graph: Graph,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    backend: "Backend" = "auto",
) -> "GraphModel":
    """Build a model with its initial weights, which are drawn on the CPU from the seed alone.

    Args:
        spec: Architecture of a model that is trained in steps.
        graph: Edges.
        seed: Seed of the initial weights.
        device: Device of the model.
        backend: Library of the propagation; `auto` uses DGL if it is installed.

    Raises:
        RequestError: A size is below one, or DGL is requested but not installed.
        DataError: The graph has no edge.
    """
    check_graph_spec(spec)
    graph.check()
    assert isinstance(spec, VectorSpec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return learned_model(spec.family)(spec, graph, device=device, backend=backend)


def check_graph_spec(spec: GraphSpec) -> None:
    """Raise `RequestError` if no model can be built with this configuration."""
    for option in fields(spec):
        value = getattr(spec, option.name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise RequestError(f"The option {option.name} of a graph model is {value}: use at least 1.")
        if option.name in POSITIVE and value <= 0:
            raise RequestError(f"The option {option.name} of a graph model is {value:g}: use a number above 0.")
        if option.name == "own_share" and not 0 <= value <= 1:
            raise RequestError(f"The option own_share of a graph model is {value:g}: use a number from 0 to 1.")
        if option.name == "heads" and (width := getattr(spec, "embedding_dim", value)) % value:
            raise RequestError(
                f"The width {width} of a graph model cannot be divided into {value} heads: choose a number "
                f"of heads that divides {width}."
            )
        if option.name == "dropout" and not 0 <= value < 1:
            raise RequestError(f"The dropout of a graph model is {value:g}: use at least 0 and below 1.")
