"""Graph recommenders: users and items as nodes, what was chosen as edges.

`spec` is what a model is built from, `propagation` sums over neighbours, `model` is what all have in common, and
`lightgcn`, `sage` and `hetero` are the three; `ranker` scores with the vectors that one of them ended with.
"""

from models.graph.model import GraphModel
from models.graph.ranker import Ranker
from models.graph.registry import GRAPH_FAMILIES, build_graph_model, graph_spec
from models.graph.spec import Attribute, Graph, GraphSpec

__all__ = [
    "GRAPH_FAMILIES",
    "Attribute",
    "Graph",
    "GraphModel",
    "GraphSpec",
    "Ranker",
    "build_graph_model",
    "graph_spec",
]
