"""The graph models, by name."""

from typing import Protocol

import torch

from models.graph.hetero import Hetero
from models.graph.lightgcn import LightGcn
from models.graph.model import GraphModel
from models.graph.propagation import Backend
from models.graph.sage import Sage
from models.graph.spec import Graph, GraphSpec


class _Build(Protocol):
    def __call__(
        self, spec: GraphSpec, graph: Graph, *, device: str | torch.device, backend: Backend
    ) -> GraphModel: ...


MODELS: dict[str, _Build] = {"lightgcn": LightGcn, "sage": Sage, "hetero": Hetero}


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
    spec.check()
    graph.check()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MODELS[spec.family](spec, graph, device=device, backend=backend)


def default_spec(family: str) -> GraphSpec:
    """The architecture to start from: three layers, or two where neighbours are drawn or weights lie in each layer."""
    return GraphSpec(family=family, layers=3 if family == "lightgcn" else 2)
