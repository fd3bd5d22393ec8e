"""Configuration of graph recommenders, and the graph of users, items and their interactions."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from shunter.errors import DataError
from shunter.record import Record

Side = Literal["user", "item"]
By = Literal["z-scores", "reciprocal ranks"]
WAYS: tuple[By, ...] = ("z-scores", "reciprocal ranks")


@dataclass(frozen=True)
class Range:
    """Range of numbers, searched in log scale."""

    low: float
    high: float


Searched = Mapping[str, Range | tuple[float, ...]]  # a range or a list of values for each option


@dataclass(frozen=True, kw_only=True)
class GraphSpec(Record):
    """Configuration of one graph recommender; each model adds its own options in its module.

    `shunter.models.graph.registry.graph_spec` builds the spec of a model from a name and options as in files.

    Attributes:
        family: Name in the registry (`shunter.models.graph.registry`).
        searched: Values that a search tries for the options and, if they differ, for the training hyperparameters.
        learned_with: Default training hyperparameters (`shunter.engine.ranking.config.RankingHyperparameters`).
        points: Options that a search tries first, after the defaults; a baseline tries nothing else.
    """

    family: ClassVar[str]
    searched: ClassVar[Searched] = {}
    learned_with: ClassVar[Mapping[str, Any]] = {}
    points: ClassVar[tuple[Mapping[str, float], ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: all options, except optional ones at their default."""
        return {"family": self.family, **super().to_dict()}

    def as_text(self) -> str:
        """Return the options as text, for example `regularization 500`."""
        return ", ".join(f"{name} {value:g}" for name, value in asdict(self).items())


@dataclass(frozen=True, kw_only=True)
class VectorSpec(GraphSpec):
    """Options of models that learn a vector for each node in steps.

    Attributes:
        embedding_dim: Width of every node's vector, in every layer.
    """

    searched: ClassVar[Searched] = {"embedding_dim": (32, 64, 128)}

    embedding_dim: int = 64


@dataclass(frozen=True, kw_only=True)
class LayeredSpec(VectorSpec):
    """Options of models that propagate vectors along the edges.

    Attributes:
        layers: Number of propagation layers.
    """

    searched: ClassVar[Searched] = {**VectorSpec.searched, "layers": (1, 2, 3)}

    layers: int = 2


@dataclass(frozen=True, kw_only=True)
class FusionSpec(GraphSpec):
    """Configuration of an ensemble of graph models.

    Attributes:
        members: Families of the members, joined by plus signs.
        by: Quantity that is summed.
    """

    family: ClassVar[str] = "fusion"

    members: str
    by: By = "z-scores"

    def as_text(self) -> str:
        """Return the members as text: `of ease and lightgcn by z-scores`."""
        return f"of {' and '.join(self.members.split('+'))} by {self.by}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribute:
    """Property of users or of items, as edges from nodes to values.

    Attributes:
        name: Column of the source.
        side: Kind of node that has the attribute.
        values: Number of values, which are nodes too; 0 is the unknown value, which has no edge.
        nodes: User or item of each edge, int64 `[edges]`.
        ids: Value of each edge, int64 `[edges]`.
    """

    name: str
    side: Side
    values: int
    nodes: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Graph of interactions: an edge between a user and an item for each positive of the training part.

    The number of a node is its id in the data. Id 0 stands for every user or item that is not in the training data, and
    has no edge. Other nodes may have no edges either, if they have no interactions.

    Attributes:
        users: Number of users, including id 0.
        items: Number of items, including id 0.
        edge_users: User of each edge, int64 `[edges]`; each pair of user and item occurs once.
        edge_items: Item of each edge, int64 `[edges]`.
        attributes: Attributes of users and items, for models that read them.
        edge_order: Sort keys for the order of a user's edges in the log, int64 `[edges]`; None if the order is unknown.
    """

    users: int
    items: int
    edge_users: np.ndarray
    edge_items: np.ndarray
    attributes: tuple[Attribute, ...] = ()
    edge_order: np.ndarray | None = None

    @property
    def edges(self) -> int:
        """Number of edges of the graph."""
        return len(self.edge_users)

    def user_degrees(self) -> np.ndarray:
        """Return the number of items of each user, int64 `[users]`."""
        return np.bincount(self.edge_users, minlength=self.users)

    def item_degrees(self) -> np.ndarray:
        """Return the number of users of each item, int64 `[items]`."""
        return np.bincount(self.edge_items, minlength=self.items)

    def check(self) -> None:
        """Raise `DataError` if the graph has no edge."""
        if not self.edges:
            raise DataError(
                "The training part has no positive row of a known user and item, so the graph has no "
                "edges: give more rows, or lower positive_at_least or min_count in the schema."
            )
