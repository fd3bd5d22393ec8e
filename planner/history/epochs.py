"""How many epochs a training needs at a batch size until it is good enough, learned from those that were run.

Small batches need about the same number of passes over the data whatever their size, large ones more and more
(McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, section 2), and both ends may never arrive. So
the logarithm of the epochs is a rising line in the logarithm of the batch size and a smooth function about it, the same
on every accelerator, and a training that was stopped says that it would have needed more.

The constants are those of greatest likelihood, rounded outwards, on the trainings that Pollux' authors recorded (Qiao
et al., OSDI 2021: CIFAR-10, ImageNet, DeepSpeech2 and NCF at 6 to 8 batch sizes each, to nine tenths and to 97 % of
what all of them reach); `python -m benchmarks.select.work_priors` derives them anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shunter.planner.history.gaussian_process import (
    Level,
    Observations,
    Posterior,
    regress,
    similarity,
    with_lower_bounds,
)

SLOPE, SLOPE_DEVIATION = 0.15, 0.10  # of the logarithm, for each doubling of the batch size
SPREAD = 0.4  # one standard deviation of the logarithm about the line, between distant batch sizes
OCTAVES = 2.6
NOISE, NOISE_RUNS = 0.10, 3.0  # of one training to the next, with another seed; and how many repetitions it is worth
# Before any run: the plan is an upper estimate, of which early stopping leaves a half or so.
PLAN = Level(mean=float(np.log(0.5)), deviation=0.7)


@dataclass(frozen=True)
class EpochCount:
    """Epochs of one training.

    Attributes:
        batch_size: Samples of a step.
        epochs: Epochs until it was good enough, or until it ended without; or anything else that is in proportion to
            them.
        reached: Whether it was good enough.
    """

    batch_size: int
    epochs: float
    reached: bool


def estimate_epochs(seen: Sequence[EpochCount], batch_sizes: Sequence[int], *, level: Level | None = None) -> Posterior:
    """Belief about the natural logarithm of the epochs needed at each batch size.

    Args:
        seen: Trainings of this workload; at least one was good enough, unless a level is given.
        batch_sizes: Batch sizes to judge, one each.
        level: Prior belief in the mean over batch sizes; unknown by default.
    """
    middle = float(_octaves([count.batch_size for count in seen] or batch_sizes).mean())

    def kernel(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        line = SLOPE_DEVIATION**2 * np.outer(first[:, 0] - middle, second[:, 0] - middle)
        return line + SPREAD**2 * similarity(first[:, 0], second[:, 0], OCTAVES)

    def trend(sizes: Sequence[int]) -> np.ndarray:
        return SLOPE * (_octaves(sizes)[:, 0] - middle)

    done = [count for count in seen if count.reached]
    stopped = [count for count in seen if not count.reached]
    noise = _noise(done)
    observations = Observations(
        _octaves([count.batch_size for count in done]),
        np.log([count.epochs for count in done]) - trend([count.batch_size for count in done]),
        np.full(len(done), noise),
    )
    observations = with_lower_bounds(
        kernel,
        observations,
        _octaves([count.batch_size for count in stopped]),
        list(np.log([count.epochs for count in stopped]) - trend([count.batch_size for count in stopped])),
        noise,
        level=level,
    )
    belief = regress(kernel, observations, _octaves(batch_sizes), level)
    return Posterior(belief.mean + trend(batch_sizes), belief.covariance, noise)


def _octaves(batch_sizes: Sequence[int]) -> np.ndarray:
    return np.log2(np.asarray(batch_sizes, dtype=float)).reshape(-1, 1)


def _noise(done: Sequence[EpochCount]) -> float:
    """Standard deviation from one training to the next: what is believed beforehand, and what repetitions show.

    The scale of a scaled inverse chi-squared distribution (Gelman et al., "Bayesian Data Analysis", section 2.6).
    """
    alike: dict[int, list[float]] = {}
    for count in done:
        alike.setdefault(count.batch_size, []).append(float(np.log(count.epochs)))
    squares = sum(float(((np.array(values) - np.mean(values)) ** 2).sum()) for values in alike.values())
    repetitions = sum(len(values) - 1 for values in alike.values())
    return float(np.sqrt((NOISE_RUNS * NOISE**2 + squares) / (NOISE_RUNS + repetitions)))
