"""Metrics of a schedule for comparisons, named as in MLflow."""

from bisect import bisect_right
from itertools import accumulate

import numpy as np

from shunter.extensions.fleet.schedule import Outcome, Schedule

HOUR = 3600.0


def figures(schedule: Schedule) -> dict[str, float]:
    """Return all metrics of a schedule by their names in MLflow; energy and cost only if power and price are known.

    `queueing` is the time from arrival to end minus the running time. `communication.overhead` is the share of running
    time that ideal placements and the absence of restarts would save. `fairness.rho` is the finish-time fairness of
    Themis: the completion time divided by the time that the job would take alone on its share of the cluster. A value
    of 1 is fair, higher values are worse. `energy_joules` counts all accelerators, idle and busy, from the first
    arrival to the last end. `cost` counts only accelerators while a job holds them.
    """
    outcomes, cluster = schedule.outcomes, schedule.cluster
    waited = [outcome.completion_seconds for outcome in outcomes]
    run = sum(outcome.run_seconds for outcome in outcomes)
    ideal = sum(outcome.ideal_seconds for outcome in outcomes)
    length = schedule.end_seconds - schedule.begin_seconds
    held, drawn = held_seconds(schedule), held_seconds(schedule, drawn=True)
    useful = sum(outcome.ideal_seconds * outcome.accelerators for outcome in outcomes)
    capacity = cluster.count * length
    rho = fairness(schedule)
    return {
        "jobs": float(len(outcomes)),
        "makespan_seconds": length,
        "jct.mean_seconds": float(np.mean(waited)),
        "jct.median_seconds": float(np.median(waited)),
        "jct.p95_seconds": float(np.percentile(waited, 95)),
        "jct.p99_seconds": float(np.percentile(waited, 99)),
        "queueing.mean_seconds": float(np.mean([outcome.queueing_seconds for outcome in outcomes])),
        "communication.overhead": max(1 - ideal / run, 0.0) if run else 0.0,
        "utilisation": sum(held.values()) / capacity if capacity else 0.0,
        "utilisation.useful": min(useful, sum(held.values())) / capacity if capacity else 0.0,
        **({"energy_joules": energy_joules(schedule, held, drawn, length)} if cluster.has_watts else {}),
        **({"cost": cost(schedule, held)} if cluster.has_prices else {}),
        "fairness.rho": float(np.mean(rho)),
        "fairness.rho_worst": float(np.max(rho)),
        **({"deadlines.missed": float(sum(late))} if (late := _lateness(outcomes)) else {}),
        "preemptions": float(sum(outcome.preemptions for outcome in outcomes)),
        "migrations": float(sum(outcome.migrations for outcome in outcomes)),
    }


def held_seconds(schedule: Schedule, *, drawn: bool = False) -> dict[str, float]:
    """Return the accelerator-seconds that jobs held, by accelerator type.

    Args:
        schedule: Schedule with its cluster.
        drawn: If True, each period is weighted by its power draw under power caps, relative to that without caps.
    """
    held = dict.fromkeys(schedule.cluster.types, 0.0)
    for span in schedule.spans:
        for machine, count in span.placement:
            seconds = count * (span.end_seconds - span.begin_seconds)
            held[schedule.cluster.machines[machine].accelerator] += seconds * (span.power_share if drawn else 1.0)
    return held


def energy_joules(schedule: Schedule, held: dict[str, float], drawn: dict[str, float], length: float) -> float:
    """Return the energy in joules of all accelerators, busy and idle, over a schedule.

    Args:
        schedule: Schedule with its cluster.
        held: Accelerator-seconds that jobs held, by accelerator type.
        drawn: `held` weighted by the relative power under power caps; see `held_seconds`.
        length: Length of the schedule in seconds.
    """
    total = 0.0
    for name, seconds in held.items():
        kind = schedule.cluster.type_of(name)
        total += kind.idle_watts * (schedule.cluster.count_of[name] * length - seconds) + kind.busy_watts * drawn[name]
    return total


def cost(schedule: Schedule, held: dict[str, float]) -> float:
    """Return the total price of the accelerator-seconds that jobs held; `held` maps accelerator types to them."""
    return sum(schedule.cluster.type_of(name).price_per_hour * seconds / HOUR for name, seconds in held.items())


def fairness(schedule: Schedule) -> list[float]:
    """Return the finish-time fairness of each job: 1 is fair, higher values are worse."""
    moments, integral = _demand(schedule.outcomes)
    found = []
    for outcome in schedule.outcomes:
        lasted = outcome.completion_seconds
        if lasted <= 0 or outcome.isolated_seconds <= 0:
            found.append(1.0)
            continue
        demanded = _at(moments, integral, outcome.end_seconds) - _at(moments, integral, outcome.arrival_seconds)
        contention = max(demanded / lasted / schedule.cluster.count, 1.0)
        found.append(lasted / (outcome.isolated_seconds * contention))
    return found


def _lateness(outcomes: tuple[Outcome, ...]) -> list[bool]:
    """Return a list with one bool for each job that has a deadline: True if the job ended after it."""
    return [outcome.is_late for outcome in outcomes if outcome.deadline_seconds is not None]


def _demand(outcomes: tuple[Outcome, ...]) -> tuple[list[float], list[tuple[float, float]]]:
    """Return the times at which the number of accelerators that unfinished jobs request changes.

    Returns:
        The times in ascending order; and for each, the accelerator-seconds requested before and the number after it.
    """
    changes: dict[float, float] = {}
    for outcome in outcomes:
        changes[outcome.arrival_seconds] = changes.get(outcome.arrival_seconds, 0.0) + outcome.accelerators
        changes[outcome.end_seconds] = changes.get(outcome.end_seconds, 0.0) - outcome.accelerators
    moments = sorted(changes)
    heights = list(accumulate(changes[moment] for moment in moments))
    integral, total = [], 0.0
    for i, moment in enumerate(moments):
        if i:
            total += heights[i - 1] * (moment - moments[i - 1])
        integral.append((total, heights[i]))
    return moments, integral


def _at(moments: list[float], integral: list[tuple[float, float]], moment: float) -> float:
    i = bisect_right(moments, moment) - 1
    total, height = integral[i]
    return total + height * (moment - moments[i])
