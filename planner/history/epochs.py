"""Model of the epochs that a training run needs at a batch size to reach the quality, learned from past runs.

Small batches need about the same number of epochs at any size, and large batches increasingly more (McCandlish et al.,
"An Empirical Model of Large-Batch Training", 2018, section 2); the data may cover neither end. The logarithm of the
epochs is therefore a rising line in the logarithm of the batch size plus a smooth function, equal on every accelerator.
A stopped training gives a lower bound.

The constants maximise the likelihood, rounded outwards, on the training runs recorded by the authors of Pollux (Qiao et
al., OSDI 2021: CIFAR-10, ImageNet, DeepSpeech2 and NCF at 6 to 8 batch sizes each, to nine tenths and to 97 % of the
quality that all of them reach). `python -m benchmarks.select.work_priors` recomputes them.
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

SLOPE, SLOPE_DEVIATION = 0.15, 0.10  # of log epochs, for each doubling of the batch size
SPREAD = 0.4  # standard deviation of log epochs about the line, between distant batch sizes
OCTAVES = 2.6
NOISE, NOISE_RUNS = 0.10, 3.0  # standard deviation between seeds, and its weight in repetitions
# Prior without runs: the plan is an upper estimate, and early stopping leaves about half of it.
PLAN = Level(mean=float(np.log(0.5)), deviation=0.7)

# Epochs of a training run without past training runs, beyond its patience, and their weight in training runs. On
# ml-100k and Frappe training runs with a patience of 2 took 3 to 4 epochs.
BEST_EPOCH, BEST_EPOCH_TRAININGS = 1.5, 3.0


@dataclass(frozen=True)
class EpochCount:
    """Number of epochs of one training run.

    Attributes:
        batch_size: Samples of a step.
        epochs: Epochs until the quality was reached, or until the training ended without it; any unit, such as a share.
        reached: Whether the quality was reached.
    """

    batch_size: int
    epochs: float
    reached: bool


def estimate_epochs(seen: Sequence[EpochCount], batch_sizes: Sequence[int], *, level: Level | None = None) -> Posterior:
    """Return the belief about the natural logarithm of the epochs needed at each batch size.

    Args:
        seen: Training runs of this workload; at least one reached the quality, unless a level is given.
        batch_sizes: Batch sizes to estimate, `[n]`.
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


def training_epochs(seen: Sequence[float], patience: int) -> float:
    """Return the expected epochs of a run that patience ends: geometric mean of past runs and a prior number.

    Args:
        seen: Epochs of past training runs that no limit ended.
        patience: Epochs without an improvement after which a training run ends.
    """
    logs = BEST_EPOCH_TRAININGS * np.log(BEST_EPOCH + patience) + sum(map(float, np.log(seen)))
    return float(np.exp(logs / (BEST_EPOCH_TRAININGS + len(seen))))


def _octaves(batch_sizes: Sequence[int]) -> np.ndarray:
    return np.log2(np.asarray(batch_sizes, dtype=float)).reshape(-1, 1)


def _noise(done: Sequence[EpochCount]) -> float:
    """Return the standard deviation between training runs, from the prior and from repetitions.

    The scale of a scaled inverse chi-squared distribution (Gelman et al., "Bayesian Data Analysis", section 2.6).
    """
    alike: dict[int, list[float]] = {}
    for count in done:
        alike.setdefault(count.batch_size, []).append(float(np.log(count.epochs)))
    squares = sum(float(((np.array(values) - np.mean(values)) ** 2).sum()) for values in alike.values())
    repetitions = sum(len(values) - 1 for values in alike.values())
    return float(np.sqrt((NOISE_RUNS * NOISE**2 + squares) / (NOISE_RUNS + repetitions)))
