"""The graph models, by name."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from shunter.errors import RequestError
from shunter.models.graph.ease import Ease
from shunter.models.graph.fusion import MEMBERS, FusedRanker, FusionSpec
from shunter.models.graph.hetero import Hetero
from shunter.models.graph.ials import Ials
from shunter.models.graph.itemknn import ItemKnn
from shunter.models.graph.lightgcn import LightGcn
from shunter.models.graph.model import GraphModel
from shunter.models.graph.popularity import Popularity
from shunter.models.graph.propagation import Backend
from shunter.models.graph.ranker import Ranker
from shunter.models.graph.sage import Sage
from shunter.models.graph.sasrec import SasRec
from shunter.models.graph.simplex import Simplex
from shunter.models.graph.solved import SolvedModel
from shunter.models.graph.spec import Graph, GraphSpec, VectorSpec
from shunter.models.graph.twotower import TwoTower
from shunter.models.graph.ultragcn import UltraGcn
from shunter.models.graph.xsimgcl import XSimGcl
from shunter.models.spec import nearest

# Learned step by step.
MODELS: dict[str, type[GraphModel[Any]]] = {
    model.spec_class.family: model
    for model in (
        LightGcn,
        Sage,
        Hetero,
        TwoTower,
        SasRec,
        XSimGcl,
        Simplex,
        UltraGcn,
    )
}
# Solved at once, in seconds.
SOLVED: dict[str, type[SolvedModel[Any]]] = {
    model.spec_class.family: model
    for model in (
        Popularity,
        ItemKnn,
        Ease,
        Ials,
    )
}
GRAPH_FAMILIES = (*MODELS, *SOLVED)
SPECS: Mapping[str, type[GraphSpec]] = {
    **{family: model.spec_class for family, model in MODELS.items()},
    **{family: model.spec_class for family, model in SOLVED.items()},
    FusionSpec.family: FusionSpec,  # what comes of others, and cannot be asked for
}
POSITIVE = ("regularization", "relative_regularization", "unobserved_weight", "temperature")  # options above 0
RANKERS: dict[str, type[Ranker]] = {**MEMBERS, FusedRanker.kind: FusedRanker}


def graph_spec(family: str = "lightgcn", **options: float) -> GraphSpec:
    """The architecture of a graph model with some options, as files have them; what other models read is left out.

    Raises:
        RequestError: The family or an option is unknown.
    """
    if family not in SPECS:
        raise RequestError(f"Unknown graph model {family!r}: {nearest(family, SPECS)}.")
    known = {option.name for spec in SPECS.values() for option in fields(spec)}
    for name in options:
        if name not in known:
            raise RequestError(f"The graph model has no option {name!r}: {nearest(name, known)}.")
    own = {option.name for option in fields(SPECS[family])}
    return SPECS[family](**{name: value for name, value in options.items() if name in own})


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
        spec: Architecture of a model that is learned step by step.
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
    assert isinstance(spec, VectorSpec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[spec.family](spec, graph, device=device, backend=backend)


def check_graph_spec(spec: GraphSpec) -> None:
    """Raise a `RequestError` for a model that cannot be built."""
    for option in fields(spec):
        value = getattr(spec, option.name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise RequestError(f"A graph model needs at least one of {option.name}, not {value}: raise it.")
        if option.name in POSITIVE and value <= 0:
            raise RequestError(f"A graph model needs a {option.name} above 0, not {value:g}: raise it.")
        if option.name == "own_share" and not 0 <= value <= 1:
            raise RequestError(
                f"A graph model takes an own_share of at least 0 and at most 1, not {value:g}: change it."
            )
        if option.name == "heads" and (width := getattr(spec, "embedding_dim", value)) % value:
            raise RequestError(
                f"A graph model of width {width} has no {value} heads of one width: use a divisor of it."
            )
        if option.name == "dropout" and not 0 <= value < 1:
            raise RequestError(f"A graph model takes a dropout of at least 0 and below 1, not {value:g}: change it.")
