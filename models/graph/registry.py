"""The graph models, by name."""

import torch

from models.graph.hetero import Hetero
from models.graph.lightgcn import LightGcn
from models.graph.model import GraphModel
from models.graph.propagation import Backend
from models.graph.sage import Sage
from models.graph.spec import Graph, GraphSpec
from models.spec import nearest
from shunter.errors import RequestError

MODELS: dict[str, type[GraphModel]] = {"lightgcn": LightGcn, "sage": Sage, "hetero": Hetero}
GRAPH_FAMILIES = tuple(MODELS)


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
        spec: the architecture.
        graph: the edges.
        seed: of the initial weights.
        device: where the model shall lie.
        backend: of the propagation; `auto` takes DGL where it is there.

    Raises:
        RequestError: the family is unknown, a size is below one, or DGL is asked for and is not there.
        DataError: the graph has no edge.
    """
    check_graph_spec(spec)
    graph.check()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[spec.family](spec, graph, device=device, backend=backend)


def check_graph_spec(spec: GraphSpec) -> None:
    """Raise a `RequestError` for a model that cannot be built."""
    if spec.family not in MODELS:
        raise RequestError(f"Unknown graph model {spec.family!r}: {nearest(spec.family, MODELS)}.")
    for name in ("embedding_dim", "layers", "neighbours"):
        if getattr(spec, name) < 1:
            raise RequestError(f"A graph model needs at least one of {name}, not {getattr(spec, name)}: raise it.")


def default_spec(family: str) -> GraphSpec:
    """The architecture to start from: three layers, or two where neighbours are drawn or weights lie in each layer."""
    return GraphSpec(family=family, layers=3 if family == "lightgcn" else 2)
