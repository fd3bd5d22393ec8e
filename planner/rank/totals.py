"""Totals of the whole job for every candidate, one numpy column each, for tens of thousands of candidates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shunter.hardware.cost.billing import BILLED_UNIT_SECONDS, SHORTEST_BILLED_SECONDS
from shunter.hardware.cost.grid import Grid
from shunter.hardware.units import JOULES_PER_KWH
from shunter.planner.assessment import Candidate
from shunter.planner.calibration import UNCALIBRATED, Calibration, Ratios
from shunter.planner.job_size import JobSize
from shunter.requests import Billing, Limits, Weights

Column = NDArray[np.float64]
# Start of separate training processes beside each other: on two cores of an AMD EPYC of the fifth generation their
# first trials took 1.4 to 1.6 s longer than in a process that ran already (ml-100k, by hand).
START_SECONDS = 3.0
# Start on an accelerator that is not in this machine, where nothing is measured yet: 15 s for the command and 13.5 s
# for measuring the machine, read by hand from the first training run on an H200.
START_ELSEWHERE_SECONDS = 28.5
# Smallest gain in training runs per time for parallel trials of a search; parallel trials slow each other down and
# learn less from each other. Set by hand.
LEAST_TRIAL_GAIN = 0.25


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Limits, objective and job size by which candidates are compared.

    Attributes:
        limits: Hard limits of the whole job.
        weights: Quantities to minimise.
        job: Size of the whole job.
        billing: Billing unit of time.
        grid: Carbon intensity of the electricity; None where unknown.
        calibration: Ratios of measured to predicted totals of past runs of the job.
    """

    limits: Limits
    weights: Weights
    job: JobSize
    billing: Billing = Billing.EXACT
    grid: Grid | None = None
    calibration: Calibration = UNCALIBRATED

    @classmethod
    def of(
        cls,
        limits: Limits,
        objective: str,
        job: JobSize,
        billing: Billing = Billing.EXACT,
        *,
        grid: Grid | None = None,
        calibration: Calibration | None = None,
    ) -> Self:
        """Create terms with the objective of a request: a quantity, `edp`, or weights as `Weights.parse` reads them."""
        weights, calibration = Weights.parse(objective), calibration or UNCALIBRATED
        return cls(limits=limits, weights=weights, job=job, billing=billing, grid=grid, calibration=calibration)


@dataclass(frozen=True, kw_only=True)
class Totals:
    """Totals of the whole job, one column `[candidates]` each; NaN if unknown.

    `*_low` and `*_high` are the ends of intervals as multiples of the figure. Time and energy intervals have the level
    of the calibration where `is_calibrated` and `is_metered` are true; otherwise they follow the step time alone.
    """

    calibration: Calibration
    hours: Column
    kwh: Column
    cost: Column
    carbon: Column
    watts: Column
    price: Column
    memory_gib: Column
    accelerator_gib: Column
    quality: Column
    expected_runs: Column
    quality_loss: Column
    most_quality_loss: Column
    loss_is_limited: bool
    step_high: Column
    time_low: Column
    time_high: Column
    energy_low: Column
    energy_high: Column
    memory_low: Column
    memory_high: Column
    cost_low: Column
    cost_high: Column
    machines: Column
    threads: Column
    label_order: NDArray[np.intp]
    is_calibrated: NDArray[np.bool_]
    is_metered: NDArray[np.bool_]
    out_of_memory: NDArray[np.bool_]


def totals_of(candidates: Sequence[Candidate], terms: Terms) -> Totals:
    """Return time, energy, cost and memory of the whole job at each candidate."""
    raw = np.array([_raw(candidate) for candidate in candidates], dtype=np.float64).T
    step, epoch_seconds, epoch_joules, memory, accelerator, price, machines, quality, threads, low, high, oom = raw[:-8]
    work, searched, expected_runs, here, metered, quality_loss, most_loss, at_once = raw[-8:]
    calibration = terms.calibration
    is_here, is_metered = here.astype(bool), here.astype(bool) & metered.astype(bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        watts = epoch_joules / epoch_seconds
    starting = np.where(is_here, 0.0, START_ELSEWHERE_SECONDS)
    searching = _search_seconds(terms.job, watts) + terms.job.overhead_seconds + starting
    epochs = terms.job.epochs * work * searched  # in epochs of the default architecture
    trials = trial_seconds(terms.job, epoch_seconds * work * searched)
    saved = trials - parallel_seconds(trials, at_once)
    seconds = (epoch_seconds * epochs + searching - saved) * calibration.seconds.centre
    price = price * machines

    def cost(seconds: Column) -> Column:
        return billed_seconds(seconds, terms.billing) * price / 3600

    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = np.minimum(low / step, 1.0), np.maximum(high / step, 1.0)
    kwh = (epoch_joules * epochs + searching * (watts if searching.any() else 0.0)) / JOULES_PER_KWH
    kwh = kwh * calibration.energy_centre
    time_low, time_high = _ends(calibration.seconds, is_here, low, high)
    energy_low, energy_high = _ends(calibration.joules, is_metered, low, high)
    unknown = np.full_like(kwh, np.nan)
    memory_low, memory_high = _ends(calibration.memory, is_here, unknown, unknown, centre=1.0)  # not corrected
    labels = np.array([candidate.placement.label for candidate in candidates])
    return Totals(
        calibration=calibration,
        hours=seconds / 3600,
        kwh=kwh,
        cost=cost(seconds),
        carbon=unknown if terms.grid is None else kwh * terms.grid.mean_grams_per_kwh(seconds / 3600),
        watts=watts,
        price=price,
        memory_gib=memory / 2**30,
        accelerator_gib=accelerator / 2**30,
        quality=quality,
        expected_runs=expected_runs,
        quality_loss=quality_loss,
        most_quality_loss=most_loss,
        loss_is_limited=any(one.quality_loss is not None and one.quality_loss.is_asked for one in candidates),
        step_high=high,
        time_low=time_low,
        time_high=time_high,
        energy_low=energy_low,
        energy_high=energy_high,
        memory_low=memory_low,
        memory_high=memory_high,
        cost_low=cost(seconds * time_low),
        cost_high=cost(seconds * time_high),
        machines=machines,
        threads=threads,
        label_order=np.unique(labels, return_inverse=True)[1],
        out_of_memory=oom.astype(bool),
        is_calibrated=is_here & calibration.promises & (calibration.seconds.level is not None),
        is_metered=is_metered & calibration.promises & (calibration.joules.level is not None),
    )


def _ends(
    ratios: Ratios, applies: NDArray[np.bool_], low: Column, high: Column, *, centre: float | None = None
) -> tuple[Column, Column]:
    """Return the interval ends as multiples of the figure: calibrated where `applies`, else the given ends.

    Args:
        ratios: Measured totals of past jobs as multiples of their predictions.
        applies: Candidates to which the ratios apply.
        low: Lower ends of the other candidates.
        high: Upper ends of the other candidates.
        centre: Factor by which the figure was already corrected; `ratios.centre` if None.
    """
    interval = ratios.interval()
    if interval is None:
        return low, high
    ends = [end / (centre or ratios.centre) for end in interval]
    return np.where(applies, ends[0], low), np.where(applies, ends[1], high)


def _search_seconds(job: JobSize, watts: Column) -> Column:
    """Return the seconds until a search uses up its time or energy budget; its time budget if power is unknown."""
    if job.tuning_joules is None:
        return np.full_like(watts, job.tuning_seconds or 0.0)
    by_energy = job.tuning_joules / watts
    return by_energy if job.tuning_seconds is None else np.fmin(by_energy, job.tuning_seconds)


def trial_seconds(job: JobSize, epoch_seconds: Column) -> Column:
    """Return the seconds of all trials one after another, including the time outside of their steps.

    Args:
        job: Size of the whole job.
        epoch_seconds: Seconds of a planned epoch, `[candidates]`.
    """
    share = job.tuning_epochs / max(job.tuning_epochs + job.final_epochs, 1e-9)
    return epoch_seconds * job.tuning_epochs * job.passes_per_epoch + share * job.overhead_seconds


def parallel_seconds(seconds: Column, at_once: Column) -> Column:
    """Return the seconds of a search whose trials take `seconds` one after another.

    Args:
        seconds: Seconds of all trials, `[candidates]`.
        at_once: Trials that could run at the same time, `[candidates]`; they do so if that gains enough.
    """
    parallel = seconds / at_once + START_SECONDS
    return np.where((at_once > 1) & (parallel * (1 + LEAST_TRIAL_GAIN) <= seconds), parallel, seconds)


def _raw(candidate: Candidate) -> tuple[float | None, ...]:
    """Return the figures of one candidate as a row of the columns of totals; unknown figures are None."""
    prediction = candidate.prediction
    low, high = prediction.step_seconds_interval or (None, None)
    return (
        prediction.step_seconds,
        prediction.epoch_seconds,
        prediction.epoch_joules,
        prediction.memory_bytes,
        candidate.accelerator_memory_bytes,
        candidate.price_per_hour,
        candidate.machines,
        candidate.quality_probability,
        candidate.placement.threads,
        low,
        high,
        candidate.out_of_memory,
        candidate.work_share,
        candidate.searched_share,
        candidate.expected_runs,
        candidate.is_here,
        prediction.energy_source == "measured",
        None if candidate.quality_loss is None else candidate.quality_loss.expected,
        None if candidate.quality_loss is None else candidate.quality_loss.most,
        candidate.trials_at_once,
    )


def billed_seconds(seconds: Column, billing: Billing) -> Column:
    """Return the billed seconds: whole started units and at least 60 s; the time itself if billing is exact."""
    unit = BILLED_UNIT_SECONDS.get(billing)
    if unit is None:
        return seconds
    return np.maximum(SHORTEST_BILLED_SECONDS, np.ceil(seconds / unit - 1e-9) * unit)


def scores_of(totals: Totals, weights: Weights) -> Column:
    """Return the objective of each candidate: the weighted totals of all expected runs; infinite if unknown."""
    columns = {"time": totals.hours, "energy": totals.kwh, "cost": totals.cost, "carbon": totals.carbon}
    used = weights.used
    if len(used) == 1:
        scores = columns[next(iter(used))] * totals.expected_runs
    else:
        scores = np.prod([(columns[name] * totals.expected_runs) ** weight for name, weight in used.items()], axis=0)
    return np.where(np.isnan(scores), np.inf, scores)
