"""Recommenders that no gradient descends for: counted, or solved by linear algebra, in seconds."""

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
    """What solving asks of a machine, counted from the formula and the graph.

    Attributes:
        flops: Of one pass, multiply and add counted as two.
        parameters: Numbers that are learned.
        peak_bytes: Most memory at a time, beyond the graph.
    """

    flops: float
    parameters: int
    peak_bytes: int


class SolvedModel(ABC, Generic[Spec]):
    """A way from a graph to a ranker. What is chosen about it stands in its spec, and nothing else is learned with.

    Attributes:
        spec_class: Class of its configuration.
        is_iterative: Whether a further pass makes it better.
        cheaper: What takes less memory, for whoever has too little; empty where nothing is needed.
    """

    spec_class: ClassVar[type[GraphSpec]]
    is_iterative: ClassVar[bool] = False
    cheaper: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def rankers(cls, spec: Spec, graph: Graph, *, seed: int, device: torch.device) -> Iterator[Ranker]:
        """The ranker after each pass: one, or of an iterative model as many as are asked for.

        Args:
            spec: What is chosen.
            graph: Edges.
            seed: Seed of what is drawn.
            device: Where it is solved, and where the rankers lie.
        """

    @classmethod
    @abstractmethod
    def counts(cls, spec: Spec, graph: Graph) -> SolveCounts:
        """What a pass asks for."""

    @classmethod
    def check_fits(cls, spec: Spec, graph: Graph, available_bytes: int) -> None:
        """Refuse what is larger than memory.

        Raises:
            TooLargeError: It is; the message says by how much, and what takes less.
        """
        needed = cls.counts(spec, graph).peak_bytes
        if needed > available_bytes:
            instead = f": use {cls.cheaper}." if cls.cheaper else "."
            raise TooLargeError(
                f"A model of family {spec.family!r} takes {needed:,} bytes for {graph.items:,} items and "
                f"{graph.users:,} users, and {available_bytes:,} bytes of memory are left{instead}"
            )
