"""What a graph recommender is built from: its architecture, and the graph of who chose what."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from shunter.errors import DataError
from shunter.record import Record

Side = Literal["user", "item"]


@dataclass(frozen=True)
class Range:
    """Every number between two, tried along its logarithm."""

    low: float
    high: float


Searched = Mapping[str, Range | tuple[float, ...]]  # of each option a range, or its values


@dataclass(frozen=True, kw_only=True)
class GraphSpec(Record):
    """The architecture of one graph recommender. Each model adds its own options in its file.

    `shunter.models.graph.registry.graph_spec` builds the spec of a model from its name and options, as files have them.

    Attributes:
        family: Name in the registry (`shunter.models.graph.registry`).
        searched: What a search tries of its options, and where it differs, of what it is learned with.
        learned_with: Settings of `shunter.engine.ranking.config.RankingHyperparameters` that are usual for it.
        points: Options that a search tries first, after the defaults, and a baseline alone.
    """

    family: ClassVar[str]
    searched: ClassVar[Searched] = {}
    learned_with: ClassVar[Mapping[str, Any]] = {}
    points: ClassVar[tuple[Mapping[str, float], ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: all options, but for optional ones at their default."""
        return {"family": self.family, **super().to_dict()}

    def in_words(self) -> str:
        """Its options, for a person: `regularization 500`."""
        return ", ".join(f"{name} {value:g}" for name, value in asdict(self).items())


@dataclass(frozen=True, kw_only=True)
class VectorSpec(GraphSpec):
    """What the models have in common that learn a vector for each node, step by step.

    Attributes:
        embedding_dim: Width of every node's vector, in every layer.
    """

    searched: ClassVar[Searched] = {"embedding_dim": (32, 64, 128)}

    embedding_dim: int = 64


@dataclass(frozen=True, kw_only=True)
class LayeredSpec(VectorSpec):
    """What the models have in common in which vectors pass along the edges.

    Attributes:
        layers: Number of times that they do.
    """

    searched: ClassVar[Searched] = {**VectorSpec.searched, "layers": (1, 2, 3)}

    layers: int = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribute:
    """A property of users or of items, as edges from nodes to values.

    Attributes:
        name: Column of the source.
        side: Kind of node whose property it is.
        values: Number of values, so of nodes of their own; 0 is the unknown value, which has no edge.
        nodes: Users or items, int64 `[edges]`.
        ids: Their values, int64 `[edges]`.
    """

    name: str
    side: Side
    values: int
    nodes: np.ndarray
    ids: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """Who chose what: an edge between a user and an item for each positive of the training part.

    A node is known by its id in the data, so that 0 is every user, or item, which training did not know; it has no
    edge. Other nodes may have none either: whoever chose nothing, whatever nobody chose.

    Attributes:
        users: Number of users, 0 included.
        items: Number of items, 0 included.
        edge_users: User of each pair, int64 `[edges]`; each pair of user and item is there once.
        edge_items: Item of each pair, int64 `[edges]`.
        attributes: What is known of users and items, for the model that reads it.
        edge_order: Numbers by which the edges of a user are in the order of their rows in the log, int64 `[edges]`;
            None where it is not known.
    """

    users: int
    items: int
    edge_users: np.ndarray
    edge_items: np.ndarray
    attributes: tuple[Attribute, ...] = ()
    edge_order: np.ndarray | None = None

    @property
    def edges(self) -> int:
        """Number of pairs."""
        return len(self.edge_users)

    def user_degrees(self) -> np.ndarray:
        """Items that each user chose, int64 `[users]`."""
        return np.bincount(self.edge_users, minlength=self.users)

    def item_degrees(self) -> np.ndarray:
        """Users who chose each item, int64 `[items]`."""
        return np.bincount(self.edge_items, minlength=self.items)

    def check(self) -> None:
        """Raise a `DataError` for a graph that nothing can be learned from."""
        if not self.edges:
            raise DataError(
                "The training part holds no positive of a known user and item, so the graph has no edge: give more "
                "rows, or lower positive_at_least or min_count in the schema."
            )
