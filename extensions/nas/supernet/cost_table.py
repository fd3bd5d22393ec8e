"""What every operator of a super-net costs, in any unit."""

from dataclasses import dataclass
from typing import Protocol

from shunter.extensions.nas.supernet.paths import LayerCosts


class OperatorCosts(Protocol):
    """What each operator costs, forward, backward and update together."""

    unit: str
    base: float

    def linear(self, inputs: int, outputs: int, *, is_first: bool) -> float:
        """A linear layer; the first of the model has no gradient of its input."""
        ...

    def table(self, rows: int, width: int) -> float:
        """A table, and its lookups."""
        ...

    def interaction(self, name: str) -> float:
        """What the vectors meet in."""
        ...


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """The cost of every operator that an architecture of a super-net may have.

    Attributes:
        unit: Unit of all costs.
        bottom: Cost of the linear layer between two widths of the bottom MLP, see `paths`.
        top: Cost of the linear layer between two widths of the top MLP, likewise.
        interactions: Cost of each interaction.
        tables: Cost of each table, by the number of its share and of its width.
        base: Cost of what all architectures have.
        largest: Cost of the dearest architecture.
        smallest: Cost of the cheapest architecture.
    """

    unit: str
    bottom: LayerCosts
    top: LayerCosts
    interactions: tuple[float, ...]
    tables: tuple[tuple[tuple[float, ...], ...], ...]
    base: float
    largest: float
    smallest: float
