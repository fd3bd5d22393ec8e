"""One figure for what came of a point: its NE, what it costs, and the limits that it breaks; and its rank in a study.

Whoever follows one figure, as a policy or a super-net does, follows this one, so that the ways of searching can be
compared.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from shunter.search.protocol import Cost, Outcome

# NE per factor e of cost: half the cost is worth as much as 0.007 of NE.
COST_WEIGHT = 0.01
# A prediction of the base rate alone has NE 1: a training that failed is worth a whole NE less than that.
FAILED_NE = 2.0


def reward(
    outcome: Outcome, *, reference_cost: float | None = None, cost: Cost | None = None, weight: float = COST_WEIGHT
) -> float:
    """What a point is worth, more being better: `-(NE + weight * log(cost / reference_cost)) - penalty`.

    Where the user selects by another figure, `Outcome.loss` takes the place of NE.

    Args:
        outcome: Outcome of the point.
        reference_cost: Cost of an ordinary point, where the cost's term is 0; None leaves the cost out.
        cost: Name of the cost that counts; None leaves the cost out, and so does one that was not measured.
        weight: NE that a factor e of cost is worth.
    """
    if outcome.loss is None:
        return -FAILED_NE - violation_penalty(outcome.violations)
    paid = outcome.costs.get(cost) if cost else None
    dear = weight * math.log(paid / reference_cost) if paid and reference_cost else 0.0
    return -(outcome.loss + dear) - violation_penalty(outcome.violations)


def violation_penalty(violations: Mapping[str, float]) -> float:
    """The NE that broken limits cost: 1 for each, so that no quality makes up for one, and more the more it breaks it.

    It grows with the logarithm of the excess, whose unit is the limit's own.
    """
    return sum(1.0 + math.log1p(excess) for excess in violations.values() if excess > 0)


def losses_of(outcomes: Sequence[Outcome], cost: Cost | None) -> np.ndarray:
    """Return the negative reward of each outcome; a cost counts relative to the median of those that were paid."""
    paid = [outcome.costs[cost] for outcome in outcomes if cost and outcome.costs.get(cost)]
    reference = float(np.median(paid)) if paid else None
    return np.array([-reward(outcome, reference_cost=reference, cost=cost) for outcome in outcomes])


def scores(outcomes: Sequence[Outcome], cost: Cost | None = None) -> np.ndarray:
    """What came of the points of one study, the lower the better, on a scale that all studies share: `[points]`.

    Their ranks as quantiles of the normal distribution (Salinas et al., "A Quantile-based Approach for Hyperparameter
    Transfer Learning", ICML 2020, section 4.1): NE of two data sets cannot be compared, and one learning rate that is
    too high must not make all others look alike.

    Args:
        outcomes: Outcomes of the points, failed ones among them.
        cost: Cost that NE is weighed against; see `reward`.
    """
    from scipy.stats import norm, rankdata

    losses = losses_of(outcomes, cost)
    return norm.ppf((rankdata(losses) - 0.5) / len(losses))
