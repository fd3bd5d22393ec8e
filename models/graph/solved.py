"""Base class of recommenders without gradient descent: counted, or solved by linear algebra, in seconds."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch

from shunter.errors import TooLargeError
from shunter.models.graph.ranker import Ranker
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
        cheaper: Alternatives with less memory, for the error message; empty if none are needed.
    """

    spec_class: ClassVar[type[GraphSpec]]
    is_iterative: ClassVar[bool] = False
    cheaper: ClassVar[str] = ""

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
            TooLargeError: The message has the needed and the available memory, and alternatives.
        """
        needed = cls.counts(spec, graph).peak_bytes
        if needed > available_bytes:
            instead = f": use {cls.cheaper}." if cls.cheaper else "."
            raise TooLargeError(
                f"A model of family {spec.family!r} takes {needed:,} bytes for {graph.items:,} items and "
                f"{graph.users:,} users, and {available_bytes:,} bytes of memory are left{instead}"
            )
