"""What a rule is: an exact change of a program at a site."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from torch import fx

from shunter.extensions.rewriting.program import Program

Site = tuple[fx.Node, ...]


class Rule(ABC):
    """An exact change: pattern and replacement; what it makes of weights stands in the graph, see `Program`.

    Attributes:
        name: Name in the steps of a model.
        number: Of the table of rules that the project follows, R1 to R12.
        keeps_learning: Whether a training goes the same way with it: each weight is still one number, that has moved.
        is_tidying: Whether it never costs anything, so that it is applied wherever it fits, without asking.
    """

    name: str
    number: str
    keeps_learning = True
    is_tidying = False

    @abstractmethod
    def find(self, program: Program) -> Iterator[Site]:
        """Sites where the rule fits, in the order of the graph."""

    @abstractmethod
    def apply(self, program: Program, site: Site) -> None:
        """Change the program in place; `tidied` then drops what nobody reads."""
