"""The graph models, by name."""

from dataclasses import fields
from typing import Any

import torch

from models.graph.hetero import Hetero
from models.graph.lightgcn import LightGcn
from models.graph.model import GraphModel
from models.graph.propagation import Backend
from models.graph.sage import Sage
from models.graph.spec import Graph, GraphSpec
from models.spec import nearest
from shunter.errors import RequestError

MODELS: dict[str, type[GraphModel[Any]]] = {
    model.spec_class.family: model
    for model in (
        LightGcn,
        Sage,
        Hetero,
    )
}
GRAPH_FAMILIES = tuple(MODELS)


def graph_spec(family: str = "lightgcn", **options: int) -> GraphSpec:
    """The architecture of a graph model with some options, as files have them; what other models read is left out.

    Raises:
        RequestError: The family or an option is unknown.
    """
    if family not in MODELS:
        raise RequestError(f"Unknown graph model {family!r}: {nearest(family, MODELS)}.")
    known = {option.name for model in MODELS.values() for option in fields(model.spec_class)}
    for name in options:
        if name not in known:
            raise RequestError(f"The graph model has no option {name!r}: {nearest(name, known)}.")
    chosen = MODELS[family].spec_class
    own = {option.name for option in fields(chosen)}
    return chosen(**{name: value for name, value in options.items() if name in own})


def build_graph_model(
    spec: GraphSpec,
    graph: Graph,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    backend: Backend = "auto",
) -> GraphModel:
    """Build a model with its initial weights, which are drawn on the CPU from the seed alone.

    Args:
        spec: Architecture.
        graph: Edges.
        seed: Seed of the initial weights.
        device: Device where the model shall lie.
        backend: Library of the propagation; `auto` takes DGL where it is there.

    Raises:
        RequestError: A size is below one, or DGL is asked for and is not there.
        DataError: The graph has no edge.
    """
    check_graph_spec(spec)
    graph.check()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[spec.family](spec, graph, device=device, backend=backend)


def check_graph_spec(spec: GraphSpec) -> None:
    """Raise a `RequestError` for a model that cannot be built."""
    for option in fields(spec):
        value = getattr(spec, option.name)
        if value < 1:
            raise RequestError(f"A graph model needs at least one of {option.name}, not {value}: raise it.")
