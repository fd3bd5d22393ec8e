"""Graph recommenders: users and items as nodes, what was chosen as edges.

`spec` is what a model is built from. Some are learned step by step: `propagation` sums over neighbours, `model` is what
these have in common, `losses` what they learn by, and `lightgcn`, `xsimgcl`, `simplex`, `ultragcn`, `sage`, `hetero`,
`twotower` and `sasrec` are the models. Others are solved in seconds: `solved` is their role, and `popularity`,
`itemknn`, `ease` and `ials` play it. `ranker` and `history_rankers` score with what any of them ended with.
"""

from shunter.models.graph.model import GraphModel
from shunter.models.graph.ranker import Ranker, VectorRanker
from shunter.models.graph.registry import (
    RANKERS,
    build_graph_model,
    graph_spec,
    learned_model,
    learns_in_steps,
    solved_model,
)
from shunter.models.graph.spec import Attribute, Graph, GraphSpec, VectorSpec

__all__ = [
    "RANKERS",
    "Attribute",
    "Graph",
    "GraphModel",
    "GraphSpec",
    "Ranker",
    "VectorRanker",
    "VectorSpec",
    "build_graph_model",
    "graph_spec",
    "learned_model",
    "learns_in_steps",
    "solved_model",
]
