"""Cost of every operator of a super-net, in any unit."""

from dataclasses import dataclass
from typing import Protocol

from shunter.extensions.nas.supernet.paths import LayerCosts


class OperatorCosts(Protocol):
    """Cost of each operator, including forward, backward and update."""

    unit: str
    base: float

    def linear(self, inputs: int, outputs: int, *, is_first: bool) -> float:
        """Return the cost of a linear layer; the first layer of the model has no input gradient."""
        ...

    def table(self, rows: int, width: int) -> float:
        """Return the cost of a table and its lookups."""
        ...

    def interaction(self, name: str) -> float:
        """Return the cost of an interaction."""
        ...


@dataclass(frozen=True, kw_only=True)
class CostTable:
    """Cost of every operator that an architecture of a super-net may have.

    Attributes:
        unit: Unit of all costs.
        bottom: Cost of the linear layer between two widths of the bottom MLP, see `paths`.
        top: Cost of the linear layer between two widths of the top MLP, see `paths`.
        interactions: Cost of each interaction.
        tables: Cost of each table, by the index of its share and of its width.
        base: Cost that all architectures have in common.
        largest: Cost of the most expensive architecture.
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
