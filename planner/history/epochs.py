"""How many epochs a training needs at a batch size until it is good enough, learned from those that were run.

Small batches need about the same number of passes over the data whatever their size, large ones more and more
(McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, section 2), and both ends may never arrive. So
the logarithm of the epochs is a smooth function of the logarithm of the batch size, the same on every accelerator, and
a training that was stopped says that it would have needed more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.history.gaussian_process import Observations, Posterior, regress, similarity, with_lower_bounds

SPREAD = 0.6  # one standard deviation of the logarithm between distant batch sizes
OCTAVES = 3.0
NOISE = 0.12  # of one training to the next, with another seed


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


def estimate_epochs(seen: Sequence[EpochCount], batch_sizes: Sequence[int], *, spread: float = SPREAD) -> Posterior:
    """Belief about the natural logarithm of the epochs needed at each batch size.

    Args:
        seen: Trainings of this workload, at least one of which was good enough.
        batch_sizes: Batch sizes to judge, one each.
        spread: Standard deviation of the logarithm between distant batch sizes.
    """

    def kernel(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return spread**2 * similarity(first[:, 0], second[:, 0], OCTAVES)

    done = [count for count in seen if count.reached]
    stopped = [count for count in seen if not count.reached]
    observations = Observations(
        _octaves([count.batch_size for count in done]),
        np.log([count.epochs for count in done]),
        np.full(len(done), NOISE),
    )
    observations = with_lower_bounds(
        kernel,
        observations,
        _octaves([count.batch_size for count in stopped]),
        [float(np.log(count.epochs)) for count in stopped],
        NOISE,
    )
    return regress(kernel, observations, _octaves(batch_sizes))


def _octaves(batch_sizes: Sequence[int]) -> np.ndarray:
    return np.log2(np.asarray(batch_sizes, dtype=float)).reshape(-1, 1)
