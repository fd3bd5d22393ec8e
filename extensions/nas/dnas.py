"""Differentiable architecture search as a search method: train a super-net, then sample architectures from it.

The default architecture is tried first, so that the result is never worse than the default. The super-net is trained at
the next request for a point (`supernet_search`). If NE is weighed against a cost, it is trained at increasing weights
of the cost. Architectures are sampled at each weight, and the one with the largest expected gain of the front is tried
(`front_pool`). Each sampled architecture is trained from scratch like any other trial, because the weights of the
super-net are shared and mixtures score better than any single architecture. The results of trials are used too: if NE
alone counts, a linear model of the choices, fitted to the trials, selects among several samples.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from shunter.errors import RequestError
from shunter.extensions.nas.architecture_search import Learned, SupernetSchedule
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.front_pool import SHRINKAGE, FrontPool, one_hot
from shunter.extensions.nas.supernet.masks import draw
from shunter.extensions.nas.supernet.space import Coding
from shunter.extensions.nas.supernet_figure import publish_supernet
from shunter.extensions.nas.supernet_search import learned_stages, point_of, supernet_space
from shunter.models.spec import ModelSpec
from shunter.search.context import SearchContext
from shunter.search.protocol import BudgetLeft, Outcome, Parameters
from shunter.search.reward import scores

Theta = Mapping[str, Sequence[float]]
DRAWS = 30  # attempts per new architecture before the temperature rises
FEWEST_TOLD = 6  # trials before the linear model is used
CANDIDATES = 8  # new architectures among which the linear model selects
WARMER = (1.0, 1.5, 2.0, 4.0, 8.0, 1000.0)  # temperatures of the draws; the last is nearly uniform


class Dnas:
    """Search method that samples architectures from a super-net (Krishna et al., arXiv 2110.14812), each once.

    Args:
        schedule: Schedule of the super-net; None for the default.

    Raises:
        RequestError: The space is not one of architectures.
    """

    def __init__(self, context: SearchContext, schedule: SupernetSchedule | None = None) -> None:
        if not isinstance(context.space, ArchitectureSpace):
            raise RequestError(
                "The search method dnas needs the search space `architecture`: choose this space, or another method."
            )
        self._context, self._space, self._schedule = context, context.space, schedule
        self._coding = Coding(supernet_space(self._space), context.dataset.features)
        self._stages: list[Learned] = []
        self._seen: dict[ModelSpec, Parameters] = {}
        self._pool: FrontPool | None = None
        self._told: list[tuple[Parameters, Outcome]] = []

    def ask(self, left: BudgetLeft) -> Parameters | None:
        """Return an architecture that was not tried before; None if sampling finds no new one."""
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
        chosen = candidates[int(np.argmin(self._predictions(candidates)))] if has_say else candidates[0]
        self._seen[self._space.build(chosen)[0]] = chosen
        return chosen

    def tell(self, parameters: Parameters, outcome: Outcome) -> None:
        """Record the outcome of an architecture, so that it is not sampled again."""
        self._seen[self._space.build(parameters)[0]] = parameters
        self._told.append((parameters, outcome))

    def _of_front(self) -> Parameters | None:
        """Return the architecture with the largest expected gain of the front of NE and cost."""
        if self._pool is None:
            self._pool = FrontPool(self._context, self._space, self._stages, self._schedule)
        told = {self._space.build(parameters)[0]: outcome for parameters, outcome in self._told}
        chosen = self._pool.best(self._seen, told)
        if chosen is not None:
            self._seen[self._space.build(chosen)[0]] = chosen
        return chosen

    def _new_ones(self, theta: Theta, generator: torch.Generator, most: int) -> list[Parameters]:
        """Return untried architectures; the sampling temperature rises until at least one is found."""
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

    def _predictions(self, points: Sequence[Parameters]) -> np.ndarray:
        """Predict the values of points (lower is better) by a ridge regression on the trials."""
        tried = one_hot([point for point, _ in self._told], self._space)
        values = scores([outcome for _, outcome in self._told])
        penalty = SHRINKAGE * np.eye(tried.shape[1])
        return one_hot(points, self._space) @ np.linalg.solve(tried.T @ tried + penalty, tried.T @ values)
