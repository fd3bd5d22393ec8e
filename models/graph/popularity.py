"""Items ranked by their number of interactions: the baseline of every other ranking."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from shunter.models.graph.ranker import Ranker, popularity_ranker
from shunter.models.graph.solved import SolveCounts, SolvedModel
from shunter.models.graph.spec import Graph, GraphSpec


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
