"""Values of a schedule over time: waiting jobs, held accelerators, watts."""

from collections.abc import Sequence

from shunter.extensions.fleet.schedule import Schedule

Steps = Sequence[tuple[float, float]]
"""Pairs of a time and the value from that time on."""


def queue_steps(schedule: Schedule) -> Steps:
    """Return the number of waiting jobs over time."""
    changes = [(outcome.arrival_seconds, 1.0) for outcome in schedule.outcomes]
    for span in schedule.spans:
        changes.append((span.begin_seconds, -1.0))
        changes.append((span.end_seconds, 1.0))
    changes += [(outcome.end_seconds, -1.0) for outcome in schedule.outcomes]
    return _sum_up(changes)


def utilisation_steps(schedule: Schedule) -> Steps:
    """Return the share of all accelerators that jobs hold, over time."""
    changes = []
    for span in schedule.spans:
        share = sum(count for _, count in span.placement) / schedule.cluster.count
        changes += [(span.begin_seconds, share), (span.end_seconds, -share)]
    return _sum_up(changes)


def useful_steps(schedule: Schedule) -> Steps:
    """Return the utilisation weighted by each job's ratio of ideal time to running time, averaged over its life."""
    shares = {one.job: min(one.ideal_seconds / one.run_seconds, 1.0) for one in schedule.outcomes if one.run_seconds}
    changes = []
    for span in schedule.spans:
        share = shares.get(span.job, 0.0) * sum(count for _, count in span.placement) / schedule.cluster.count
        changes += [(span.begin_seconds, share), (span.end_seconds, -share)]
    return _sum_up(changes)


def power_steps(schedule: Schedule) -> Steps:
    """Return the watts of all accelerators, idle and busy, over time."""
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
