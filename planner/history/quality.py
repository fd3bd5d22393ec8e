"""Probability that a training run reaches the quality, from earlier runs of the same data."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field
from scipy.special import expit, logit, stdtr

from shunter.frozen import Frozen
from shunter.planner.history.runs import PastRun

OCTAVES = 2.0  # length scale over batch sizes: a run at a factor of four has weight e^-1/2
# Prior spread of the AUC's log odds (about 0.01 to 0.02 of AUC), and its weight in runs.
PRIOR_DEVIATION, PRIOR_RUNS = 0.08, 1.0
# Length scale of success over batch sizes, in doublings. Prior success probability at a size with a success, and the
# factor on it for each doubling away from the nearest success.
SUCCESS_OCTAVES, PRIOR_SUCCESS, SUCCESS_OF_AN_OCTAVE = 1.0, 0.95, 0.93


class QualityOutlook(Frozen):
    """Expected quality of the next run, from past runs."""

    probability: float = Field(ge=0, le=1, description="Probability that the next run reaches the requested AUC.")
    expected_auc: float
    runs: int = Field(description="Number of past runs from which the probability is estimated.")
    text: str = Field(description="Explanation of the expected quality for the user, without a full stop.")


def quality_outlook(runs: Sequence[PastRun], min_auc: float, *, batch_size: int | None = None) -> QualityOutlook | None:
    """Return the predictive probability of an AUC of at least `min_auc`; None without informative runs.

    The log odds of the AUC are assumed normal with unknown mean and variance. The next value then follows Student's
    distribution (Gelman et al., "Bayesian Data Analysis", 3rd ed., section 3.3). Runs at similar batch sizes have more
    weight.

    Args:
        runs: Runs of the same data and family.
        min_auc: AUC to reach.
        batch_size: Batch size of the next run; None weights all runs equally.
    """
    known = [run for run in runs if run.auc is not None and 0 < run.auc < 1]
    weights = np.array([_weight(run, batch_size) for run in known])
    weight = float(weights.sum())
    if weight < 0.1:
        return None
    values = logit(np.array([run.auc for run in known]))
    mean = float(weights @ values) / weight
    degrees = PRIOR_RUNS + max(weight - 1, 0.0)
    spread = PRIOR_RUNS * PRIOR_DEVIATION**2 + float(weights @ (values - mean) ** 2)
    scale = (spread / degrees * (1 + 1 / weight)) ** 0.5
    probability = float(stdtr(degrees, (mean - logit(min_auc)) / scale))
    text = f"AUC {expit(mean):.4f} is expected from {len(known)} past run(s), so {min_auc:g} with {probability:.0%}"
    return QualityOutlook(probability=probability, expected_auc=float(expit(mean)), runs=len(known), text=text)


def _weight(run: PastRun, batch_size: int | None) -> float:
    if batch_size is None or run.placement is None:
        return 1.0
    return float(np.exp(-0.5 * (np.log2(run.placement.batch_size / batch_size) / OCTAVES) ** 2))


def success_chances(ends: Sequence[tuple[int, bool]], batch_sizes: Sequence[int]) -> list[float]:
    """Return the probability that a run reaches the quality at each batch size, from the outcomes of nearby runs.

    This is for runs with a known outcome but without a known quality. The probabilities are those of a beta
    distribution (Gelman et al., section 2.4) in which runs at similar batch sizes have more weight.

    Args:
        ends: Batch size of a run, and whether it reached the quality, at least one; stopped runs are not included.
        batch_sizes: Batch sizes to estimate, `[n]`.
    """
    octaves = np.log2([size for size, _ in ends])
    good = np.array([is_good for _, is_good in ends], dtype=float)
    anchors = octaves[good > 0] if good.any() else octaves
    chances = []
    for size in batch_sizes:
        distances = octaves - np.log2(size)
        weights = np.exp(-0.5 * (distances / SUCCESS_OCTAVES) ** 2)
        prior = PRIOR_SUCCESS * SUCCESS_OF_AN_OCTAVE ** float(np.abs(anchors - np.log2(size)).min())
        chances.append(float((prior + weights @ good) / (1 + weights.sum())))
    return chances
