"""What a schedule looks like over time: jobs that wait, accelerators that are held, watts."""

from collections.abc import Sequence

from shunter.extensions.fleet.schedule import Schedule

Steps = Sequence[tuple[float, float]]
"""Moments, each with the value from then on."""


def queue_steps(schedule: Schedule) -> Steps:
    """Jobs that have come and do not run."""
    changes = [(outcome.arrival_seconds, 1.0) for outcome in schedule.outcomes]
    for span in schedule.spans:
        changes.append((span.begin_seconds, -1.0))
        changes.append((span.end_seconds, 1.0))
    changes += [(outcome.end_seconds, -1.0) for outcome in schedule.outcomes]
    return _sum_up(changes)


def utilisation_steps(schedule: Schedule) -> Steps:
    """Share of all accelerators that jobs hold."""
    changes = []
    for span in schedule.spans:
        share = sum(count for _, count in span.placement) / schedule.cluster.count
        changes += [(span.begin_seconds, share), (span.end_seconds, -share)]
    return _sum_up(changes)


def useful_steps(schedule: Schedule) -> Steps:
    """Share of all accelerators at work as if each job lay side by side and alone; of each job the mean of its life."""
    shares = {one.job: min(one.ideal_seconds / one.run_seconds, 1.0) for one in schedule.outcomes if one.run_seconds}
    changes = []
    for span in schedule.spans:
        share = shares.get(span.job, 0.0) * sum(count for _, count in span.placement) / schedule.cluster.count
        changes += [(span.begin_seconds, share), (span.end_seconds, -share)]
    return _sum_up(changes)


def power_steps(schedule: Schedule) -> Steps:
    """Watts of all accelerators, at rest and busy."""
    cluster = schedule.cluster
    rest = sum(cluster.type_of(name).idle_watts * count for name, count in cluster.count_of.items())
    changes = [(schedule.begin_seconds, rest)]
    for span in schedule.spans:
        kinds = [(cluster.type_of(cluster.machines[machine].accelerator), count) for machine, count in span.placement]
        watts = sum((kind.busy_watts * span.power_share - kind.idle_watts) * count for kind, count in kinds)
        changes += [(span.begin_seconds, watts), (span.end_seconds, -watts)]
    return _sum_up(changes)


def _sum_up(changes: Sequence[tuple[float, float]]) -> Steps:
    steps: list[tuple[float, float]] = []
    total = 0.0
    for moment, change in sorted(changes):
        total += change
        if steps and steps[-1][0] == moment:
            steps[-1] = moment, total
        else:
            steps.append((moment, total))
    return steps
