"""Small graphs for the tests of graph models."""

import numpy as np

from shunter.models.graph import Attribute, Graph


def random_graph(users: int = 9, items: int = 7, edges: int = 20, seed: int = 0, *, attributes: bool = False) -> Graph:
    """Random distinct edges between known nodes; user 1 and item 1 have none, and neither has the unknown node 0."""
    random = np.random.default_rng(seed)
    pairs = random.choice((users - 2) * (items - 2), min(edges, (users - 2) * (items - 2)), replace=False)
    pairs.sort()
    found = (
        Attribute(name="genre", side="item", values=4, nodes=np.array([2, 2, 3, 4]), ids=np.array([1, 2, 1, 3])),
        Attribute(name="job", side="user", values=3, nodes=np.array([1, 2, 3]), ids=np.array([1, 1, 2])),
    )
    return Graph(
        users=users,
        items=items,
        edge_users=pairs // (items - 2) + 2,
        edge_items=pairs % (items - 2) + 2,
        attributes=found if attributes else (),
    )
