"""Differentiable architecture search as a way of searching: a super-net first, then architectures drawn from it.

The super-net learns when the search is first asked for a point (`search.methods.supernet`). Where NE is weighed against
a cost, it goes through weights of the cost from nothing to much, and points are drawn from what it had learned at each
of them in turn, from both ends towards the middle: together they are a front. What is drawn is trained from scratch
like any other trial, for within the super-net all architectures share their weights, and mixtures do better than any
one of them.
"""

import torch

from engine.loop.architecture_search import Learned, SupernetSchedule
from models.spec import ModelSpec
from models.supernet.masks import draw
from models.supernet.space import Coding
from search.context import SearchContext
from search.methods.supernet import learned_stages, point_of, supernet_space
from search.methods.supernet_figure import publish_supernet
from search.protocol import BudgetLeft, Outcome, Parameters
from search.space.architecture import ArchitectureSpace
from shunter.errors import RequestError

DRAWS = 30  # for an architecture that is new, before the next ones are drawn warmer
WARMER = (1.0, 1.5, 2.0, 4.0, 8.0, 1000.0)  # temperatures of the draws; the last is as good as even


class Dnas:
    """Draws architectures from a super-net (Krishna et al., arXiv 2110.14812), each once.

    Args:
        context: Context of the search.
        schedule: Schedule of the super-net; None is the default.

    Raises:
        RequestError: The space is not one of architectures.
    """

    def __init__(self, context: SearchContext, schedule: SupernetSchedule | None = None) -> None:
        if not isinstance(context.space, ArchitectureSpace):
            raise RequestError("The search method dnas chooses architectures: search the space architecture with it.")
        self._context, self._space, self._schedule = context, context.space, schedule
        self._coding = Coding(supernet_space(self._space), context.dataset.features)
        self._stages: list[Learned] = []
        self._seen: set[ModelSpec] = set()

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """An architecture that was not asked for or told yet; None when there is hardly another one."""
        if not self._stages:
            self._stages = learned_stages(self._context, left, self._schedule)
            if self._context.run_id is not None:
                publish_supernet(self._stages, self._space, self._context.directory, self._context.run_id)
        drawn, count = len(self._seen), len(self._stages)
        turn, is_heavy = divmod(drawn % count, 2)
        theta = self._stages[count - 1 - turn if is_heavy else turn].theta
        generator = torch.Generator().manual_seed(self._context.seed * 1_000_003 + drawn)
        for temperature in WARMER:
            for _ in range(DRAWS):
                architecture = self._coding.decode(draw(theta, generator, temperature))
                parameters = point_of(architecture, self._space)
                spec, _ = self._space.build(parameters)
                if spec not in self._seen:
                    self._seen.add(spec)
                    return parameters
        return None

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Note that this architecture need not be drawn any more; the super-net has learned all that it learns."""
        self._seen.add(self._space.build(parameters)[0])
