"""Trials as arrays: one history for each data set, in units that data sets share."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shunter.extensions.nas.reinforce.actions import Actions
from shunter.search.protocol import COSTS, Cost, Outcome, Parameters
from shunter.search.reward import COST_WEIGHT

FIGURES = len(COSTS) + 1  # NE, and the log of each cost
MOST_DEVIATION = 3.0  # clip in standard deviations: a diverged training must not hide differences between the others


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Centre and spread of each figure on one data set, each `[figures]`."""

    centre: np.ndarray
    spread: np.ndarray


@dataclass(frozen=True, kw_only=True)
class History:
    """Trials on one data set.

    Attributes:
        features: Meta-features of the data and the limits, by name.
        actions: Actions of the trials, `[points, factors]`.
        figures: NE and the logs of the `COSTS`, `[points, figures]`; NaN for missing measurements.
    """

    features: Mapping[str, float]
    actions: np.ndarray
    figures: np.ndarray

    @classmethod
    def of(
        cls, actions: Actions, features: Mapping[str, float], trials: Iterable[tuple[Parameters, Outcome]]
    ) -> "History":
        """Build a history from points and outcomes, without failed ones and points outside of the space."""
        pairs = [(actions.encode(parameters), outcome) for parameters, outcome in trials]
        kept = [(action, figures_of(outcome)) for action, outcome in pairs if action and is_known(outcome)]
        return cls(
            features=dict(features),
            actions=np.array([action for action, _ in kept], dtype=np.int64).reshape(len(kept), len(actions.sizes)),
            figures=np.array([figures for _, figures in kept]).reshape(len(kept), FIGURES),
        )

    @property
    def levels(self) -> Levels:
        """Return the median of each figure, and its interquartile range scaled to a standard deviation."""
        return levels_of(self.figures)

    @property
    def standardised(self) -> np.ndarray:
        """Return the figures as distances from their centre in units of the spread, `[points, figures]`."""
        levels = self.levels
        return np.clip((self.figures - levels.centre) / levels.spread, -MOST_DEVIATION, MOST_DEVIATION)


def is_known(outcome: Outcome) -> bool:
    """Return True if the outcome has a finite loss."""
    return outcome.loss is not None and math.isfinite(outcome.loss)


def figures_of(outcome: Outcome) -> list[float]:
    """Return NE and the logs of the costs; NaN for missing ones."""
    costs = [outcome.costs.get(cost) for cost in COSTS]
    return [float(outcome.loss or math.nan), *(math.log(cost) if cost else math.nan for cost in costs)]


def levels_of(figures: np.ndarray) -> Levels:
    """Return centre and spread of each column without its NaN; 0 and 1 without data."""
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
    """Return the rewards `[points]` of standardised figures `[points, figures]`.

    A reward is the gain over a median point, in units of the spread of NE.
    """
    if cost is None:
        return -standardised[:, 0]
    column = 1 + COSTS.index(cost)
    dear = np.nan_to_num(standardised[:, column]) * levels.spread[column]
    return -(standardised[:, 0] + weight * dear / levels.spread[0])


def pooled_levels(histories: Sequence[History]) -> Levels:
    """Return the assumed levels of a data set without trials: centre 0, and the mean spread of the other data sets."""
    spreads = [history.levels.spread for history in histories] or [np.ones(FIGURES)]
    return Levels(centre=np.zeros(FIGURES), spread=np.mean(spreads, axis=0))


class States:
    """Converter of meta-features to vectors of differences from the mean of all known data sets.

    Meta-features are not divided by their spread, which is unreliable for a few data sets; in their units a difference
    of one is relevant.

    Args:
        known: Features of each data set; a missing feature counts as the mean.
    """

    def __init__(self, known: Sequence[Mapping[str, float]]) -> None:
        self.names = sorted({name for features in known for name in features})
        given = [[features[name] for features in known if name in features] for name in self.names]
        self._mean = np.array([np.mean(values) for values in given])

    def vector(self, features: Mapping[str, float]) -> np.ndarray:
        """Return the vector of one data set, `[state size]`."""
        row = np.array([features.get(name, mean) for name, mean in zip(self.names, self._mean, strict=True)])
        return np.clip(row - self._mean, -MOST_DEVIATION, MOST_DEVIATION)
