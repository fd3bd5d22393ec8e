"""Selection of the architecture with the largest expected gain of the front, by the super-net's costs and the trials.

The super-net samples architectures and gives their costs. Their NE is predicted from the trials alone, by a linear
model of the choices. The NE with the super-net's shared weights is not used. On some data it predicts little
(`benchmarks/search/one_shot.py`). It added two thirds to the search time, and gave no larger fronts on Frappe. The
method was chosen on Frappe. On MovieLens-1M, fronts of 16 trials have 1.14 times the area of fronts from
architectures sampled at each cost weight in turn.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from shunter.extensions.nas.architecture_search import Learned, SupernetSchedule
from shunter.extensions.nas.architecture_space import ArchitectureSpace
from shunter.extensions.nas.supernet.costs import cost_of
from shunter.extensions.nas.supernet.masks import draw
from shunter.extensions.nas.supernet.space import Coding
from shunter.extensions.nas.supernet_search import architecture_of, point_of, supernet_costs, supernet_space
from shunter.models.spec import ModelSpec
from shunter.pareto import hypervolume
from shunter.search.context import SearchContext
from shunter.search.protocol import Outcome, Parameters

POOL = 96  # number of architectures sampled at a time
EVEN_SHARE = 0.25  # share of them that is sampled uniformly, in case theta is wrong
EVENLY = 1000.0  # temperature of nearly uniform sampling
DRAWS = 3  # draws per architecture of the pool: many are duplicates
SHRINKAGE = 1.0  # of the linear model: a value seen in one trial gets half of its effect


class FrontPool:
    """Architectures sampled from the stages of a super-net, each with its cost.

    Args:
        context: Context of a search that weighs NE against a cost.
        space: Search space of the context.
        stages: Learned theta at each weight of the cost.
    """

    def __init__(
        self,
        context: SearchContext,
        space: ArchitectureSpace,
        stages: Sequence[Learned],
        schedule: SupernetSchedule | None = None,
    ) -> None:
        self._context, self._space, self._stages = context, space, stages
        self._costs = supernet_costs(context, schedule)
        self._coding = Coding(supernet_space(space), context.dataset.features)
        self._points: dict[ModelSpec, Parameters] = {}
        self._log_costs: list[float] = []
        self._pools = 0

    def best(self, asked: Mapping[ModelSpec, Parameters], told: Mapping[ModelSpec, Outcome]) -> Parameters | None:
        """Return the architecture with the largest expected area added to the front; None if there is no new one.

        Args:
            asked: Architectures that were requested, trained or running.
            told: Results of completed trials.
        """
        while self._pools < 1 + len(asked) // (POOL // 2):
            self._add(self._drawn(self._pools))
            self._pools += 1
        self._add(asked)
        numbers = {spec: number for number, spec in enumerate(self._points)}
        open_ones = [number for spec, number in numbers.items() if spec not in asked]
        if not open_ones:
            return None
        came_to = {numbers[spec]: figures for spec, outcome in told.items() if (figures := self._figures(outcome))}
        expected = self._expected(came_to)
        known = [*came_to.values(), *(tuple(expected[numbers[spec]].tolist()) for spec in asked if spec not in told)]
        reference = tuple(np.max([*expected.tolist(), *came_to.values()], axis=0).tolist())
        areas = [hypervolume([*known, tuple(expected[number].tolist())], reference) for number in open_ones]
        return list(self._points.values())[open_ones[int(np.argmax(areas))]]

    def _figures(self, outcome: Outcome) -> tuple[float, float] | None:
        cost = outcome.costs.get(self._context.cost) if self._context.cost else None
        return (outcome.loss, math.log(cost)) if outcome.loss is not None and cost else None

    def _expected(self, came_to: Mapping[int, tuple[float, float]]) -> np.ndarray:
        """Predict loss and log cost of each architecture, `[architectures, 2]`; without trials all losses are equal.

        The predicted cost is that of the super-net's cost table, corrected by the trials.
        """
        log_costs = np.array(self._log_costs)
        said = np.column_stack([np.zeros(len(log_costs)), log_costs])
        if not came_to:
            return said
        tried, encoded = list(came_to), one_hot(list(self._points.values()), self._space)
        spread = log_costs.std() or 1.0
        columns = np.column_stack([(log_costs - log_costs.mean()) / spread, encoded])
        wrong = np.array(list(came_to.values())) - said[tried]
        return said + np.column_stack([ridge(encoded, tried, wrong[:, 0]), ridge(columns, tried, wrong[:, 1])])

    def _drawn(self, pool: int) -> dict[ModelSpec, Parameters]:
        """Sample `POOL` different architectures, seeded by `pool`; return fewer if most samples are duplicates."""
        generator = torch.Generator().manual_seed(self._context.seed * 1_000_003 + pool)
        found: dict[ModelSpec, Parameters] = {}
        for turn in range(DRAWS * POOL):
            stage = self._stages[turn % len(self._stages)]
            is_even = turn * EVEN_SHARE % 1.0 < EVEN_SHARE
            picked = draw(stage.theta, generator, EVENLY if is_even else 1.0)
            point = point_of(self._coding.decode(picked), self._space)
            found.setdefault(self._space.build(point)[0], point)
            if len(found) == POOL:
                break
        return found

    def _add(self, points: Mapping[ModelSpec, Parameters]) -> None:
        """Add sampled architectures, with their costs, to the pool."""
        assert self._costs is not None, "a cost is weighed"
        for spec, point in points.items():
            if spec not in self._points:
                self._points[spec] = point
                cost = cost_of(architecture_of(point, self._space), self._coding, self._costs)
                self._log_costs.append(math.log(cost))


def one_hot(points: Sequence[Parameters], space: ArchitectureSpace) -> np.ndarray:
    """Return the one-hot encoding of points, `[points, values of all factors]`."""
    factors = space.factors()
    return np.array(
        [[point[name] == value for name, values in factors.items() for value in values] for point in points], float
    )


def ridge(columns: np.ndarray, tried: Sequence[int], values: np.ndarray) -> np.ndarray:
    """Predict the values of all rows, `[rows]`, by a ridge regression on the tried rows; the mean is not shrunk."""
    centred = columns - columns[tried].mean(0)
    of_tried, penalty = centred[tried], SHRINKAGE * np.eye(columns.shape[1])
    weights = np.linalg.solve(of_tried.T @ of_tried + penalty, of_tried.T @ (values - values.mean()))
    return values.mean() + centred @ weights
