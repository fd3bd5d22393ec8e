"""Differentiable architecture search as a way of searching: a super-net first, then architectures drawn from it.

The default is tried before anything else, so that no search ends below it. The super-net learns when the search is
asked for another point (`supernet_search`). Where NE is weighed against a cost, it goes through weights of the cost
from nothing to much, architectures are drawn from what it had learned at each of them, and of these the one is tried
that is expected to add most to the front (`front_pool`). What is drawn is trained from scratch like any other trial,
for within the super-net all architectures share their weights, and mixtures do better than any one of them. What these
trials come to is told back: where NE alone counts, of several draws the one is tried that the trials so far speak for,
by a linear model of what was chosen.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from shunter.errors import RequestError
from shunter.extensions.nas.architecture_search import Learned, SupernetSchedule
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.front_pool import FrontPool
from shunter.extensions.nas.supernet.masks import draw
from shunter.extensions.nas.supernet.space import Coding
from shunter.extensions.nas.supernet_figure import publish_supernet
from shunter.extensions.nas.supernet_search import learned_stages, point_of, supernet_space
from shunter.models.spec import ModelSpec
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Outcome, Parameters
from shunter.search.reward import scores

Theta = Mapping[str, Sequence[float]]
DRAWS = 30  # for an architecture that is new, before the next ones are drawn warmer
FEWEST_TOLD = 6  # trials, before they have a say in what is drawn
CANDIDATES = 8  # new architectures, of which the trials choose
SHRINKAGE = 1.0  # of the linear model: a candidate that one trial speaks for counts half of what it brought
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
        self._seen: dict[ModelSpec, Parameters] = {}
        self._pool: FrontPool | None = None
        self._told: list[tuple[Parameters, Outcome]] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """An architecture that was not asked for or told yet; None when there is hardly another one."""
        if not self._seen:
            default = self._space.defaults()[0]
            self._seen[self._space.build(default)[0]] = default
            return default
        if not self._stages:
            self._stages = learned_stages(self._context, left, self._schedule)
            if self._context.run_id is not None:
                publish_supernet(self._stages, self._space, self._context.directory, self._context.run_id)
        if self._context.cost is not None:
            return self._of_front()
        drawn = len(self._seen) - 1
        generator = torch.Generator().manual_seed(self._context.seed * 1_000_003 + drawn)
        has_say = len(self._told) >= FEWEST_TOLD
        candidates = self._new_ones(self._stages[0].theta, generator, CANDIDATES if has_say else 1)
        if not candidates:
            return None
        chosen = candidates[int(np.argmin(self._foretold(candidates)))] if has_say else candidates[0]
        self._seen[self._space.build(chosen)[0]] = chosen
        return chosen

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Note what came of an architecture, which need not be drawn any more."""
        self._seen[self._space.build(parameters)[0]] = parameters
        self._told.append((parameters, outcome))

    def _of_front(self) -> Parameters | None:
        """The architecture that is expected to add most to the front of NE and cost."""
        if self._pool is None:
            self._pool = FrontPool(self._context, self._space, self._stages, self._schedule)
        told = {self._space.build(parameters)[0]: outcome for parameters, outcome in self._told}
        chosen = self._pool.best(self._seen, told)
        if chosen is not None:
            self._seen[self._space.build(chosen)[0]] = chosen
        return chosen

    def _new_ones(self, theta: Theta, generator: torch.Generator, most: int) -> list[Parameters]:
        """Architectures that were not asked for or told yet; draws are warmer only until there is one."""
        found: dict[ModelSpec, Parameters] = {}
        for temperature in WARMER:
            for _ in range(DRAWS):
                architecture = self._coding.decode(draw(theta, generator, temperature))
                parameters = point_of(architecture, self._space)
                spec, _ = self._space.build(parameters)
                if spec not in self._seen:
                    found.setdefault(spec, parameters)
                if len(found) == most:
                    break
            if found:
                break
        return list(found.values())

    def _foretold(self, points: Sequence[Parameters]) -> np.ndarray:
        """What points may come to, the lower the better, by a ridge regression on the values that trials had."""
        tried = self._one_hot([point for point, _ in self._told])
        values = scores([outcome for _, outcome in self._told])
        penalty = SHRINKAGE * np.eye(tried.shape[1])
        return self._one_hot(points) @ np.linalg.solve(tried.T @ tried + penalty, tried.T @ values)

    def _one_hot(self, points: Sequence[Parameters]) -> np.ndarray:
        """`[points, values of all factors]`."""
        factors = self._space.factors()
        return np.array(
            [[point[name] == value for name, values in factors.items() for value in values] for point in points], float
        )
