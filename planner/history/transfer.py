"""By how much a step takes longer than was promised, from other workloads there and the same workload elsewhere.

The logarithm of the ratio is a sum of effects: of the workload, of its batch size, of the accelerator, and of each
meeting the others (a Gaussian process with an analysis-of-variance kernel; Durrande et al., "ANOVA kernels and RKHS of
zero mean functions", 2013). Workloads are alike when they are of one family and their demands are close, accelerators
when their catalogue figures are, so a workload never seen on an accelerator is judged by its likes there and by itself
elsewhere. That is how a job that runs slower on the newer GPU is noticed: peak rates alone never tell.

How far promises err is another matter for every store of runs: all effects together are believed to be as large as
makes what was seen most likely (type II maximum likelihood; MacKay, "Bayesian interpolation", 1992), among a few
multiples of what is believed beforehand.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shunter.hardware.catalogue.rows import AcceleratorRow
from shunter.planner.history.gaussian_process import Kernel, Observations, Posterior, log_evidence, regress, similarity


@dataclass(frozen=True)
class Priors:
    """What the effects are believed to be worth before anything was seen; round numbers, set on no table.

    Attributes:
        family: Standard deviation of the natural logarithm between kinds of workloads.
        batch: Standard deviation between distant batch sizes of one kind.
        accelerator: Standard deviation between accelerators that have nothing in common.
        family_on_accelerator: Standard deviation of a kind's liking for an accelerator, beyond what each of them is
            worth.
        batch_on_accelerator: Standard deviation of an accelerator's liking for a batch size.
        all_three: Standard deviation of what is left.
        noise: Standard deviation of one measurement to the next of the same configuration, on shared machines.
        octaves: Power of two within which batch sizes and counts tell of each other.
        catalogue_distance: Power of e within which the rates of accelerators tell of each other.
        demand_distance: Power of e within which the demands of workloads of one kind tell of each other.
    """

    family: float = 0.3
    batch: float = 0.2
    accelerator: float = 0.5
    family_on_accelerator: float = 0.2
    batch_on_accelerator: float = 0.1
    all_three: float = 0.1
    noise: float = 0.15
    octaves: float = 2.0
    catalogue_distance: float = 1.0
    demand_distance: float = 1.0


PRIORS = Priors()
SPREADS = (1.0, 2.0, 4.0)  # multiples of the deviations of all effects; the noise stays
SPREAD_OCTAVES = 1.0  # standard deviation of the belief in them, about 1


@dataclass(frozen=True)
class Traits:
    """An accelerator as the catalogue knows it; one that it does not know resembles nothing but itself.

    Attributes:
        name: Name of the accelerator.
        log_rates: Natural logarithms of its single-precision rate and memory bandwidth; None when unknown.
    """

    name: str
    log_rates: tuple[float, float] | None = None

    @classmethod
    def of(cls, row: AcceleratorRow) -> "Traits":
        """Traits of a row of the catalogue."""
        rates = row.peak_flops_per_second
        flops = rates.get("fp32") or max(rates.values())
        return cls(row.name, (math.log(flops), math.log(row.memory_bytes_per_second)))


@dataclass(frozen=True)
class Situation:
    """A workload at a batch size on an accelerator.

    Attributes:
        family: Name of the kind of model; two families have nothing in common but the accelerators.
        accelerator: Accelerator that runs it.
        batch_size: Samples of a step of one accelerator.
        count: Accelerators that share the work.
        log_demands: Natural logarithms of what a sample asks, the same ones for all of a family; may be empty.
    """

    family: str
    accelerator: Traits
    batch_size: int
    count: int = 1
    log_demands: tuple[float, ...] = ()


def estimate(
    seen: Sequence[tuple[Situation, float]], asked: Sequence[Situation], *, priors: Priors = PRIORS
) -> Posterior:
    """Belief about the natural logarithm of the ratio in the situations asked for.

    Args:
        seen: Situations with the positive ratio that was measured, at least one.
        asked: Situations to judge.
        priors: Beliefs beforehand.
    """
    covariance = _covariance([*(situation for situation, _ in seen), *asked], priors)
    index = np.arange(len(covariance))[:, None]
    values = np.log([ratio for _, ratio in seen])
    observations = Observations(index[: len(seen)], values, np.full(len(seen), priors.noise))

    def kernel(spread: float) -> Kernel:
        return lambda first, second: spread**2 * covariance[np.ix_(first[:, 0], second[:, 0])]

    def likelihood(spread: float) -> float:
        return log_evidence(kernel(spread), observations) - 0.5 * (math.log2(spread) / SPREAD_OCTAVES) ** 2

    belief = regress(kernel(max(SPREADS, key=likelihood)), observations, index[len(seen) :])
    return replace(belief, noise=priors.noise)


def _covariance(situations: Sequence[Situation], priors: Priors) -> np.ndarray:
    """Prior covariance of all situations with each other, `[n, n]`."""
    family = _alike([situation.family for situation in situations]) * _near(
        [situation.log_demands for situation in situations], priors
    )
    accelerator = _near_accelerators([situation.accelerator for situation in situations], priors)
    batch = np.log2([situation.batch_size for situation in situations])
    count = np.log2([situation.count for situation in situations])
    size = similarity(batch, batch, priors.octaves) * similarity(count, count, priors.octaves)
    return (
        priors.family**2 * family
        + priors.batch**2 * family * size
        + priors.accelerator**2 * accelerator
        + priors.family_on_accelerator**2 * family * accelerator
        + priors.batch_on_accelerator**2 * size * accelerator
        + priors.all_three**2 * family * size * accelerator
    )


def _alike(names: Sequence[str]) -> np.ndarray:
    array = np.array(names)
    return (array[:, None] == array[None, :]).astype(float)


def _near(demands: Sequence[tuple[float, ...]], priors: Priors) -> np.ndarray:
    """1 for the same demands, falling with the distance."""
    longest = max(map(len, demands))
    padded = np.array([(*demand, *[0.0] * (longest - len(demand))) for demand in demands])
    return np.exp(-0.5 * _squared_distances(padded) / priors.demand_distance**2)


def _near_accelerators(accelerators: Sequence[Traits], priors: Priors) -> np.ndarray:
    """1 for the same accelerator, falling with the distance of the rates; 0 where those are not known."""
    same = _alike([accelerator.name for accelerator in accelerators])
    known = np.array([accelerator.log_rates is not None for accelerator in accelerators])
    rates = np.array([accelerator.log_rates or (0.0, 0.0) for accelerator in accelerators])
    near = np.exp(-0.5 * _squared_distances(rates) / priors.catalogue_distance**2)
    return np.maximum(same, near * (known[:, None] & known[None, :]))


def _squared_distances(points: np.ndarray) -> np.ndarray:
    return ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
