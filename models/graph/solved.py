"""Recommenders without gradient descent: counted, or solved by linear algebra, in seconds.

`SolvedModel` is the base class. `Popularity` is the simplest model, and the baseline of every other ranking.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch

from shunter.errors import ModelTooLargeError
from shunter.models.graph.ranker import Ranker, popularity_ranker
from shunter.models.graph.spec import Graph, GraphSpec

Spec = TypeVar("Spec", bound=GraphSpec)


@dataclass(frozen=True, kw_only=True)
class SolveCounts:
    """Resource demand of solving a model, computed from its formula and the graph.

    Attributes:
        flops: FLOPs of one pass, multiply and add counted as two.
        parameters: Number of learned parameters.
        peak_bytes: Peak memory, without the graph.
    """

    flops: float
    parameters: int
    peak_bytes: int


class SolvedModel(ABC, Generic[Spec]):
    """Algorithm that computes a ranker from a graph; its spec has all options.

    Attributes:
        spec_class: Class of the configuration.
        is_iterative: Whether further passes improve the result.
        sparse_form: Similar family with weights for only some item pairs, which needs less memory; empty for none.
        low_rank_form: Similar family with vectors instead of item pairs, which needs less memory; empty for none.
    """

    spec_class: ClassVar[type[GraphSpec]]
    is_iterative: ClassVar[bool] = False
    sparse_form: ClassVar[str] = ""
    low_rank_form: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def rankers(cls, spec: Spec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """Yield the ranker after each pass: one pass, or endlessly many for an iterative model.

        Args:
            spec: Configuration.
            graph: Edges.
            seed: Seed of random numbers.
            device: Device of the solution and of the rankers.
        """

    @classmethod
    @abstractmethod
    def counts(cls, spec: Spec, graph: Graph) -> SolveCounts:
        """Count the resource demand of a pass."""

    @classmethod
    def check_fits(cls, spec: Spec, graph: Graph, available_bytes: int) -> None:
        """Raise if the model needs more memory than available.

        Raises:
            ModelTooLargeError: The message gives the needed and available memory, and the families that need less.
        """
        needed = cls.counts(spec, graph).peak_bytes
        if needed > available_bytes:
            raise ModelTooLargeError(spec.family, needed, available_bytes, cls.sparse_form, cls.low_rank_form)


@dataclass(frozen=True, kw_only=True)
class PopularitySpec(GraphSpec):
    """Configuration of the order by popularity, which has no options."""

    family: ClassVar[str] = "popularity"


class Popularity(SolvedModel[PopularitySpec]):
    """Order by popularity, the same for every user."""

    spec_class = PopularitySpec

    @classmethod
    def rankers(cls, spec: PopularitySpec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """Yield one ranker, computed from the number of interactions of each item."""
        degrees = (torch.from_numpy(counts).to(device) for counts in (graph.user_degrees(), graph.item_degrees()))
        yield popularity_ranker(*degrees)

    @classmethod
    def counts(cls, spec: PopularitySpec, graph: Graph) -> SolveCounts:
        """Count the operations of counting the edges."""
        return SolveCounts(
            flops=float(graph.edges), parameters=graph.items, peak_bytes=16 * (graph.users + graph.items)
        )
