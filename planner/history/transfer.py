"""Ratio of measured to predicted step times, transferred across workloads and accelerators.

The log ratio is a sum of effects: of the workload, its batch size, the accelerator, and their interactions (a Gaussian
process with an analysis-of-variance kernel; Durrande et al., "ANOVA kernels and RKHS of zero mean functions", 2013).
Workloads are similar if they share a family and their demands are close; accelerators are similar if their catalogue
rates are close. A workload without measurements on an accelerator is thus estimated from similar workloads there and
from itself on other accelerators. This reveals jobs that run slower on a newer GPU, which peak rates cannot show.

The size of the errors differs between stores of runs. A common factor on all effects is therefore chosen by type II
maximum likelihood (MacKay, "Bayesian interpolation", 1992), among a few multiples of the prior.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shunter.hardware.catalogue.rows import AcceleratorRow
from shunter.planner.history.gaussian_process import Kernel, Observations, Posterior, log_evidence, regress, similarity


@dataclass(frozen=True)
class Priors:
    """Prior standard deviations and length scales of the effects; round numbers, not fitted.

    Attributes:
        family: Standard deviation of the natural logarithm between kinds of workloads.
        batch: Standard deviation between distant batch sizes of one kind.
        accelerator: Standard deviation between accelerators that have nothing in common.
        family_on_accelerator: Standard deviation of the interaction of family and accelerator.
        batch_on_accelerator: Standard deviation of the interaction of batch size and accelerator.
        all_three: Standard deviation of the interaction of all three.
        noise: Standard deviation of one measurement to the next of the same configuration, on shared machines.
        octaves: Length scale of batch sizes and counts, in doublings.
        catalogue_distance: Length scale of accelerator rates, in natural logarithms.
        demand_distance: Length scale of the demands of workloads of one family, in natural logarithms.
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
    """Accelerator rates from the catalogue; an accelerator without a row is similar only to itself.

    Attributes:
        name: Name of the accelerator.
        log_rates: Natural logarithms of the accelerator's single-precision rate and memory bandwidth; None when
            unknown.
    """

    name: str
    log_rates: tuple[float, float] | None = None

    @classmethod
    def of(cls, row: AcceleratorRow) -> "Traits":
        """Return the traits of a catalogue row."""
        rates = row.peak_flops_per_second
        flops = rates.get("fp32") or max(rates.values())
        return cls(row.name, (math.log(flops), math.log(row.memory_bytes_per_second)))

    def dominates(self, other: "Traits") -> bool:
        """Return True if this accelerator publishes higher rates than another one."""
        if self.log_rates is None or other.log_rates is None or self.log_rates == other.log_rates:
            return False
        return all(own >= others for own, others in zip(self.log_rates, other.log_rates, strict=True))


@dataclass(frozen=True)
class Situation:
    """Workload at a batch size on an accelerator.

    Attributes:
        family: Name of the kind of model; two families share only the accelerator effects.
        accelerator: Accelerator that runs it.
        batch_size: Samples of a step of one accelerator.
        count: Accelerators that share the work.
        log_demands: Natural logarithms of the demands of a sample, in the same order within a family; may be empty.
    """

    family: str
    accelerator: Traits
    batch_size: int
    count: int = 1
    log_demands: tuple[float, ...] = ()


def estimate(
    seen: Sequence[tuple[Situation, float]], asked: Sequence[Situation], *, priors: Priors = PRIORS
) -> Posterior:
    """Return the belief about the log of measured over predicted step time in each situation of `asked`.

    Args:
        seen: Situations with the positive ratio that was measured, at least one.
        asked: Situations to estimate.
        priors: Priors of the effects.
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
    """Return the prior covariance of all pairs of situations, `[n, n]`."""
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
    """Return the similarity of demands, `[n, n]`: 1 for equal demands, falling with distance."""
    longest = max(map(len, demands))
    padded = np.array([(*demand, *[0.0] * (longest - len(demand))) for demand in demands])
    return np.exp(-0.5 * _squared_distances(padded) / priors.demand_distance**2)


def _near_accelerators(accelerators: Sequence[Traits], priors: Priors) -> np.ndarray:
    """Return the similarity of accelerators, `[n, n]`: 1 for the same, falling with distance of rates; 0 if unknown."""
    same = _alike([accelerator.name for accelerator in accelerators])
    known = np.array([accelerator.log_rates is not None for accelerator in accelerators])
    rates = np.array([accelerator.log_rates or (0.0, 0.0) for accelerator in accelerators])
    near = np.exp(-0.5 * _squared_distances(rates) / priors.catalogue_distance**2)
    return np.maximum(same, near * (known[:, None] & known[None, :]))


def _squared_distances(points: np.ndarray) -> np.ndarray:
    return ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
