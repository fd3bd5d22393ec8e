"""Interface of a rule: an exact change of a program at a site."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from torch import fx

from shunter.extensions.rewriting.program import Program

Site = tuple[fx.Node, ...]


class Rule(ABC):
    """Exact change of a program, with pattern and replacement; operations on weights become part of the graph.

    Attributes:
        name: Name of the rule in the rewriting steps of a model.
        number: Number in the project's table of rules, R1 to R12.
        keeps_learning: Whether training gives the same results, because weights are only rearranged.
        is_tidying: Whether the rule never makes a program slower, so that it is applied wherever it fits.
    """

    name: str
    number: str
    keeps_learning = True
    is_tidying = False

    @abstractmethod
    def find(self, program: Program) -> Iterator[Site]:
        """Yield the sites where the rule fits, in the order of the graph."""

    @abstractmethod
    def apply(self, program: Program, site: Site) -> None:
        """Change the program in place; `tidied` then removes unused nodes."""
