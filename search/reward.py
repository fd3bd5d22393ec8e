"""Reward of a point from its NE, its cost and the limits that it exceeds, and the rank of a point in its study.

Every method that optimises a single number, such as a policy or a super-net, uses this reward, so that the methods can
be compared.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shunter.search.protocol import Cost, Outcome

# Weight of the logarithm of the cost, in units of NE: halving the cost is worth 0.007 of NE.
COST_WEIGHT = 0.01
# A constant prediction of the base rate has NE 1; a failed training counts as NE 2.
FAILED_NE = 2.0


def reward(
    outcome: Outcome, *, reference_cost: float | None = None, cost: Cost | None = None, weight: float = COST_WEIGHT
) -> float:
    """Return the reward of a point, higher is better: `-(NE + weight * log(cost / reference_cost)) - penalty`.

    If the user selects by another metric, `Outcome.loss` replaces NE.

    Args:
        outcome: Outcome of the point.
        reference_cost: Cost at which the cost term is 0; None ignores the cost.
        cost: Name of the cost. The cost is ignored if the name is None or the cost was not measured.
        weight: Weight of the logarithm of the cost, in NE.
    """
    if outcome.loss is None:
        return -FAILED_NE - violation_penalty(outcome.violations)
    paid = outcome.costs.get(cost) if cost else None
    dear = weight * math.log(paid / reference_cost) if paid and reference_cost else 0.0
    return -(outcome.loss + dear) - violation_penalty(outcome.violations)


def violation_penalty(violations: Mapping[str, float]) -> float:
    """Return the penalty for exceeded limits, in NE: at least 1 for each limit, more than any quality can gain.

    The penalty grows with the logarithm of the excess, in the unit of the limit.
    """
    return sum(1.0 + math.log1p(excess) for excess in violations.values() if excess > 0)


def losses_of(outcomes: Sequence[Outcome], cost: Cost | None) -> np.ndarray:
    """Return the negative reward of each outcome; the reference cost is the median of the measured costs."""
    paid = [outcome.costs[cost] for outcome in outcomes if cost and outcome.costs.get(cost)]
    reference = float(np.median(paid)) if paid else None
    return np.array([-reward(outcome, reference_cost=reference, cost=cost) for outcome in outcomes])


def scores(outcomes: Sequence[Outcome], cost: Cost | None = None) -> np.ndarray:
    """Return the outcomes of one study on a scale that all studies share, lower is better, `[points]`.

    The scores are ranks as quantiles of the normal distribution (Salinas et al., "A Quantile-based Approach for
    Hyperparameter Transfer Learning", ICML 2020, section 4.1). NE values of two data sets cannot be compared, and the
    outlier of a too high learning rate must not hide the differences between the other points.

    Args:
        outcomes: Outcomes of the points, including failed ones.
        cost: Name of the cost; see `reward`.
    """
    from scipy.stats import norm, rankdata

    losses = losses_of(outcomes, cost)
    return norm.ppf((rankdata(losses) - 0.5) / len(losses))
