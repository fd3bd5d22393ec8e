"""Which option to take when none is known for certain: to use what is best so far, or to try what may be better.

The rule is expected improvement (Jones, Schonlau and Welch, "Efficient Global Optimization", 1998, equation 15),
counted from the lowest expected value instead of the lowest observed one, which under noise is a lucky draw. An option
is tried while that promises a saving worth having, else the best one is used. Thompson sampling, optimism and greed
stand beside it; `benchmarks/select/benchmark.py` measures all four on recorded trainings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import norm

from planner.history.gaussian_process import Posterior
from shunter.errors import InfeasibleError

Strategy = Literal["expected_improvement", "thompson", "optimistic", "greedy"]

QUANTILES = norm.ppf((np.arange(50) + 0.5) / 50)
LEAST_GAIN = 0.02  # of the cost of one run: less is not worth a run that may be worse


@dataclass(frozen=True)
class Choice:
    """An option, and whether it is taken for what it is or for what it may teach.

    Attributes:
        index: Index of the option.
        tries: Whether another option is expected to need less.
        reason: Reason, for the user.
    """

    index: int
    tries: bool
    reason: str


def choose_under_uncertainty(
    log_cost: Posterior,
    *,
    excluded: Sequence[bool] | None = None,
    best_known: int | None = None,
    strategy: Strategy = "expected_improvement",
    least_gain: float = LEAST_GAIN,
    seed: int = 0,
) -> Choice:
    """Choose among options whose costs are believed to be `exp(log_cost)`.

    Args:
        log_cost: Belief about the natural logarithm of the cost of each option, in any unit.
        excluded: Options that must not be taken; none by default.
        best_known: Option that a saving is counted from, as it is known to do; if None, that of the least mean.
        strategy: Rule to choose by.
        least_gain: Share of the cost below which trying is not worth it; of expected improvement alone.
        seed: Seed of the draws of Thompson sampling; the same beliefs and seed give the same choice.

    Raises:
        InfeasibleError: every option is excluded.
    """
    allowed = np.flatnonzero(~np.asarray(excluded if excluded is not None else np.zeros(len(log_cost.mean)), bool))
    if not len(allowed):
        raise InfeasibleError("Every placement is excluded, so none can be tried: relax a limit.")
    mean = log_cost.mean[allowed]
    best = int(mean.argmin()) if best_known is None else int(np.flatnonzero(allowed == best_known)[0])
    deviation = log_cost.deviation_from(int(allowed[best]))[allowed]
    if strategy == "thompson":
        position = int(log_cost.draw(np.random.default_rng(seed))[allowed].argmin())
    elif strategy == "optimistic":
        position = int((mean - deviation).argmin())
    elif strategy == "greedy":
        position = int(mean.argmin())
    else:
        gains = expected_improvement(mean, deviation, best)
        position = int(gains.argmax()) if gains.max() > least_gain else best
    return Choice(int(allowed[position]), position != best, _reason(mean, deviation, position, best))


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: int) -> np.ndarray:
    """By how much each option is expected to undercut the best one, counted as 0 where it does not; in log cost.

    For small values this is the share of the cost that would be saved. The best option itself has none: it is what a
    saving is counted from.

    Args:
        mean: Mean of the log cost, `[n]`.
        deviation: Deviation of the log cost from that of the best option, `[n]`.
        best: Index of the option that a saving is counted from.
    """
    spread = np.maximum(deviation, 1e-12)
    distance = (mean[best] - mean) / spread
    gains = spread * (distance * norm.cdf(distance) + norm.pdf(distance))
    gains[best] = 0.0
    return gains


def knowledge_gradient(belief: Posterior) -> np.ndarray:
    """By how much one more observation of each option is expected to lower the least mean; in log cost, `[n]`.

    What is observed of one option tells of those that are believed to be like it (Frazier, Powell and Dayanik, "The
    Knowledge-Gradient Policy for Correlated Normal Beliefs", 2009, equation 12; by quantiles of the observation). To
    observe again what is known already promises nothing, which expected improvement does not notice.

    Args:
        belief: Belief about the log cost, with the noise of an observation.
    """
    variance = np.maximum(np.diag(belief.covariance), 0.0) + belief.noise**2
    shifts = belief.covariance / np.sqrt(np.maximum(variance, 1e-12))  # [n, observed]: by one deviation of what is seen
    least = (belief.mean[:, None, None] + shifts[:, :, None] * QUANTILES).min(axis=0)
    return np.maximum(belief.mean.min() - least.mean(axis=1), 0.0)


def _reason(mean: np.ndarray, deviation: np.ndarray, position: int, best: int) -> str:
    if position == best:
        return "it is expected to need least of all, and nothing else promises a saving worth a trial"
    more, doubt = np.expm1(mean[position] - mean[best]), np.expm1(deviation[position])
    expected = f"{more:.0%} more than the best known" if more >= 0.005 else "as much as the best known"
    return f"it is expected to need {expected}, give or take {doubt:.0%}: it may need less, which is worth a trial"
