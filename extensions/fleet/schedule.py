"""Schedule of a policy for a trace: all spans of the jobs, the outcome of each job, and metrics named as in MLflow."""

from dataclasses import dataclass

import numpy as np

from shunter.extensions.fleet.cluster import Cluster, Placement
from shunter.extensions.fleet.job import JobState

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Span:
    """Period in which a job held accelerators.

    Attributes:
        level: Distance level of the placement.
        power_share: Power draw under the caps of its machines, relative to that without caps.
    """

    job: str
    placement: Placement
    begin_seconds: float
    end_seconds: float
    level: int
    power_share: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a job; `isolated_seconds` is its time alone in a consolidated placement on its best type."""

    job: str
    accelerators: int
    arrival_seconds: float
    first_start_seconds: float
    end_seconds: float
    run_seconds: float
    ideal_seconds: float
    isolated_seconds: float
    preemptions: int
    migrations: int
    deadline_seconds: float | None = None

    @property
    def is_late(self) -> bool:
        """Return True if the job ended after its deadline."""
        return self.deadline_seconds is not None and self.completion_seconds > self.deadline_seconds * (1 + 1e-9)

    @property
    def completion_seconds(self) -> float:
        """Time from arrival to end: the job completion time (JCT)."""
        return self.end_seconds - self.arrival_seconds

    @property
    def queueing_seconds(self) -> float:
        """Time during which the job waited, at first and after it was stopped."""
        return self.completion_seconds - self.run_seconds


@dataclass(frozen=True, slots=True)
class Schedule:
    """Schedule of a policy for a trace on a cluster."""

    policy: str
    cluster: Cluster
    outcomes: tuple[Outcome, ...]
    spans: tuple[Span, ...]
    decisions: int

    @property
    def begin_seconds(self) -> float:
        """Arrival time of the first job, in seconds."""
        return min((outcome.arrival_seconds for outcome in self.outcomes), default=0.0)

    @property
    def end_seconds(self) -> float:
        """End time of the last job, in seconds."""
        return max((outcome.end_seconds for outcome in self.outcomes), default=0.0)


def outcome_of(state: JobState, cluster: Cluster, end_seconds: float) -> Outcome:
    """Return the outcome of a job that has ended."""
    job = state.job
    assert state.first_start is not None, f"{job.name} ended without a start"
    ideal = job.ideal(cluster)
    alone = job.work.seconds_left(0.0, ideal) + job.starts_in(ideal.accelerator)
    return Outcome(
        job=job.name,
        accelerators=job.accelerators,
        arrival_seconds=job.arrival_seconds,
        first_start_seconds=state.first_start,
        end_seconds=end_seconds,
        run_seconds=state.run_seconds,
        ideal_seconds=state.ideal_seconds,
        isolated_seconds=alone,
        preemptions=state.preemptions,
        migrations=state.migrations,
        deadline_seconds=job.deadline_seconds,
    )


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
    due = [outcome for outcome in outcomes if outcome.deadline_seconds is not None]
    prices = [cluster.type_of(name).price_per_hour * seconds / HOUR for name, seconds in held.items()]
    joules = 0.0
    for name, seconds in held.items():
        kind = cluster.type_of(name)
        joules += kind.idle_watts * (cluster.count_of[name] * length - seconds) + kind.busy_watts * drawn[name]
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
        **({"energy_joules": joules} if cluster.has_watts else {}),
        **({"cost": sum(prices)} if cluster.has_prices else {}),
        "fairness.rho": float(np.mean(rho)),
        "fairness.rho_worst": float(np.max(rho)),
        **({"deadlines.missed": float(sum(one.is_late for one in due))} if due else {}),
        "preemptions": float(sum(outcome.preemptions for outcome in outcomes)),
        "migrations": float(sum(outcome.migrations for outcome in outcomes)),
    }


def held_seconds(schedule: Schedule, *, drawn: bool = False) -> dict[str, float]:
    """Return the accelerator-seconds that jobs held, by accelerator type.

    With `drawn`, each period is weighted by its power draw under power caps, relative to that without caps.
    """
    held = dict.fromkeys(schedule.cluster.types, 0.0)
    for span in schedule.spans:
        for machine, count in span.placement:
            seconds = count * (span.end_seconds - span.begin_seconds)
            held[schedule.cluster.machines[machine].accelerator] += seconds * (span.power_share if drawn else 1.0)
    return held


def fairness(schedule: Schedule) -> list[float]:
    """Return the finish-time fairness of each job: 1 is fair, higher values are worse."""
    changes: dict[float, float] = {}  # of the number of accelerators that unfinished jobs request
    for outcome in schedule.outcomes:
        changes[outcome.arrival_seconds] = changes.get(outcome.arrival_seconds, 0.0) + outcome.accelerators
        changes[outcome.end_seconds] = changes.get(outcome.end_seconds, 0.0) - outcome.accelerators
    demanded: dict[float, float] = {}  # accelerator-seconds that were requested until a time
    total = number = before = 0.0
    for moment in sorted(changes):
        total += number * (moment - before)
        demanded[moment] = total
        number, before = number + changes[moment], moment
    found = []
    for outcome in schedule.outcomes:
        lasted = outcome.completion_seconds
        if lasted <= 0 or outcome.isolated_seconds <= 0:
            found.append(1.0)
            continue
        during = demanded[outcome.end_seconds] - demanded[outcome.arrival_seconds]
        contention = max(during / lasted / schedule.cluster.count, 1.0)
        found.append(lasted / (outcome.isolated_seconds * contention))
    return found
