"""Loss of NE by batch size and precision, learned from past runs of the same job and from their exploring trials."""

from collections.abc import Sequence

import numpy as np

from shunter.hardware.types import Placement
from shunter.planner.assessment import QualityLoss
from shunter.planner.history.gaussian_process import Level, Observations, regress
from shunter.planner.history.runs import PastRun

SPREAD, OCTAVES = 0.05, 4.0  # standard deviation of log NE over batch sizes, and its length scale in doublings
OF_PRECISION = 0.01  # standard deviation of log NE between fp32 and bf16
NOISE, NOISE_RUNS = 0.01, 3.0  # standard deviation of log NE between seeds, and its weight in repetitions
Z = 1.645  # standard deviations to the ends of an interval of 90 %


def quality_losses(
    runs: Sequence[PastRun], placements: Sequence[Placement], most: float | None = None
) -> list[QualityLoss] | None:
    """Return the expected NE loss of each placement; None if no past run has an NE.

    Args:
        runs: Past runs of the job.
        placements: Placements to estimate.
        most: Largest permitted loss, as a share; None permits a loss within the noise of seeds.
    """
    seen = [(run.placement, run.ne) for run in runs if run.placement and run.ne and not run.is_censored]
    for run in runs:
        if run.pair and run.pair.ne_ratio and run.ne and not (run.is_censored or run.pair.is_stopped):
            seen.append((run.pair.placement, run.ne * run.pair.ne_ratio))
    offered = {_key(placement) for placement in placements}
    is_offered = np.array([_key(placement) in offered for placement, _ in seen])
    if not is_offered.any():
        return None
    values = np.log([ne for _, ne in seen])
    noise = _noise([_key(placement) for placement, _ in seen], values)
    known = _inputs([placement for placement, _ in seen])
    queries = np.vstack([_inputs(placements), known[is_offered]])
    level = Level(float(values.mean()), SPREAD)
    belief = regress(_kernel, Observations(known, values, np.full(len(values), noise)), queries, level)
    best = len(placements) + int(np.argmin(belief.mean[len(placements) :]))
    means = belief.mean - belief.mean[best]
    spreads = Z * belief.deviation_from(best)
    within = float(np.expm1(np.sqrt(2.0) * noise))  # one standard deviation of a difference
    is_asked, limit = most is not None, within if most is None else most
    ends = np.expm1([means, means - spreads, means + spreads])[:, : len(placements)].T.tolist()
    return [QualityLoss(expected=at, low=low, high=high, most=limit, is_asked=is_asked) for at, low, high in ends]


def _key(placement: Placement) -> tuple[int, str]:
    return placement.batch_size, placement.precision


def _inputs(placements: Sequence[Placement]) -> np.ndarray:
    return np.array([[np.log2(one.batch_size), float(one.precision != "fp32")] for one in placements])


def _kernel(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    # Exponential: a trend between two batch sizes says nothing of those beyond.
    of_batch = SPREAD**2 * np.exp(-np.abs(first[:, :1] - second[None, :, 0]) / OCTAVES)
    return of_batch + OF_PRECISION**2 * np.outer(first[:, 1], second[:, 1])


def _noise(alike: Sequence[tuple[int, str]], values: np.ndarray) -> float:
    """Return the standard deviation between seeds, from the prior and from repetitions; see `history.epochs`."""
    groups = [values[[one == key for one in alike]] for key in dict.fromkeys(alike)]
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
    return float(np.sqrt((NOISE_RUNS * NOISE**2 + squares) / (NOISE_RUNS + len(values) - len(groups))))
