"""What was tried, as arrays: on one data set in each history, in units that data sets share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.extensions.nas.reinforce.actions import Actions
from shunter.search.protocol import COSTS, Cost, Outcome, Parameters
from shunter.search.reward import COST_WEIGHT

FIGURES = len(COSTS) + 1  # NE, and the logarithm of each cost
MOST_DEVIATION = 3.0  # in spreads: a diverged training shall not hide what distinguishes the others


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Where the figures of one data set lie: the centre and the spread of each (figures)."""

    centre: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, kw_only=True)
class History:
    """What was tried on one data set.

    Attributes:
        features: Meta-features of the data, and the limits, by name.
        actions: Actions that were tried (points, factors).
        figures: NE and the logarithms of the `COSTS` (points, figures); NaN where one was not measured.
    """

    features: Mapping[str, float]
    actions: np.ndarray
    figures: np.ndarray

    @classmethod
    def of(
        cls, actions: Actions, features: Mapping[str, float], trials: Iterable[tuple[Parameters, Outcome]]
    ) -> "History":
        """From points and what came of them, without those that came to nothing or lie outside of the space."""
        pairs = [(actions.encode(parameters), outcome) for parameters, outcome in trials]
        kept = [(action, figures_of(outcome)) for action, outcome in pairs if action and is_known(outcome)]
        return cls(
            features=dict(features),
            actions=np.array([action for action, _ in kept], dtype=np.int64).reshape(len(kept), len(actions.sizes)),
            figures=np.array([figures for _, figures in kept]).reshape(len(kept), FIGURES),
        )

    @property
    def levels(self) -> Levels:
        """The median and the interquartile range, as a standard deviation, of each figure."""
        return levels_of(self.figures)

    @property
    def standardised(self) -> np.ndarray:
        """The figures in spreads from their centre (points, figures), so that those of data sets can be mixed."""
        levels = self.levels
        return np.clip((self.figures - levels.centre) / levels.spread, -MOST_DEVIATION, MOST_DEVIATION)


def is_known(outcome: Outcome) -> bool:
    """Whether it says what the point is worth."""
    return outcome.loss is not None and math.isfinite(outcome.loss)


def figures_of(outcome: Outcome) -> list[float]:
    """NE and the logarithms of the costs; NaN where one is missing."""
    costs = [outcome.costs.get(cost) for cost in COSTS]
    return [float(outcome.loss or math.nan), *(math.log(cost) if cost else math.nan for cost in costs)]


def levels_of(figures: np.ndarray) -> Levels:
    """Centre and spread of each column without its NaN; 0 and 1 where there is nothing to tell them from."""
    centre, spread = np.zeros(figures.shape[1]), np.ones(figures.shape[1])
    for column in range(figures.shape[1]):
        known = figures[:, column][~np.isnan(figures[:, column])]
        if known.size == 0:
            continue
        centre[column] = np.median(known)
        low, high = np.percentile(known, (25, 75))
        spread[column] = (high - low) / 1.349 or np.std(known) or 1.0
    return Levels(centre=centre, spread=spread)


def predicted_reward(
    standardised: np.ndarray, levels: Levels, cost: Cost | None, weight: float = COST_WEIGHT
) -> np.ndarray:
    """The reward of predicted figures (points, figures) in spreads of NE above an ordinary point (points)."""
    if cost is None:
        return -standardised[:, 0]
    column = 1 + COSTS.index(cost)
    dear = np.nan_to_num(standardised[:, column]) * levels.spread[column]
    return -(standardised[:, 0] + weight * dear / levels.spread[0])


def pooled_levels(histories: Sequence[History]) -> Levels:
    """What levels a data set has of which nothing is known: the mean spread of the others around 0."""
    spreads = [history.levels.spread for history in histories] or [np.ones(FIGURES)]
    return Levels(centre=np.zeros(FIGURES), spread=np.mean(spreads, axis=0))


class States:
    """Turns meta-features into vectors, as differences from the mean of all data sets that are known.

    They are not divided by their spread, which of a handful of data sets says nothing: they come in units in which
    a difference of one matters.

    Args:
        known: The features of each data set; one that is missing counts as the mean.
    """

    def __init__(self, known: Sequence[Mapping[str, float]]) -> None:
        self.names = sorted({name for features in known for name in features})
        given = [[features[name] for features in known if name in features] for name in self.names]
        self._mean = np.array([np.mean(values) for values in given])

    def vector(self, features: Mapping[str, float]) -> np.ndarray:
        """Of one data set (state size)."""
        row = np.array([features.get(name, mean) for name, mean in zip(self.names, self._mean, strict=True)])
        return np.clip(row - self._mean, -MOST_DEVIATION, MOST_DEVIATION)
