"""Graph recommenders: users and items are nodes, and interactions are edges.

`spec` has the configurations. Some models are trained in steps: `propagation` sums over neighbours, `model` is their
base class, `losses` has their losses, and `lightgcn`, `simplex`, `ultragcn`, `sage`, `hetero`, `twotower` and `sasrec`
have the models. Others are solved in seconds: `solved` has their base class, and `itemknn`, `ease` and
`ials` have the models. `ranker` and `history_rankers` score with the result of any model.
"""

from shunter.models.graph.registry import build_graph_model, graph_spec, learned_model, learns_in_steps, solved_model
from shunter.models.graph.spec import Attribute, Graph, GraphSpec, VectorSpec

__all__ = [
    "Attribute",
    "Graph",
    "GraphSpec",
    "VectorSpec",
    "build_graph_model",
    "graph_spec",
    "learned_model",
    "learns_in_steps",
    "solved_model",
]
