"""What holds of every schedule, whoever decided."""

from collections.abc import Sequence
from itertools import pairwise
from math import inf

import pytest

from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.schedule import Schedule, Span


def check_schedule(schedule: Schedule, jobs: Sequence[Job]) -> None:
    """Capacity is never exceeded, no job is lost or runs twice at once, every job ends after it came."""
    assert sorted(outcome.job for outcome in schedule.outcomes) == sorted(job.name for job in jobs)
    _check_capacity(schedule)
    _check_memory(schedule, jobs)
    spans: dict[str, list[Span]] = {}
    for span in schedule.spans:
        spans.setdefault(span.job, []).append(span)
    by_name = {job.name: job for job in jobs}
    for outcome in schedule.outcomes:
        own = sorted(spans[outcome.job], key=lambda span: span.begin_seconds)
        assert all(before.end_seconds <= after.begin_seconds for before, after in pairwise(own))
        assert own[0].begin_seconds == outcome.first_start_seconds >= outcome.arrival_seconds
        assert own[-1].end_seconds == outcome.end_seconds
        held = sum(span.end_seconds - span.begin_seconds for span in own)
        assert held == pytest.approx(outcome.run_seconds, rel=1e-9, abs=1e-6)
        for span in own:
            on = schedule.cluster.machines[span.placement[0][0]].accelerator
            assert sum(count for _, count in span.placement) == by_name[outcome.job].asks(on)


def _check_capacity(schedule: Schedule) -> None:
    changes = []
    for span in schedule.spans:
        for machine, count in span.placement:
            changes.append((span.end_seconds, 0, machine, -count))
            changes.append((span.begin_seconds, 1, machine, count))
    held = [0] * len(schedule.cluster.machines)
    for _, _, machine, change in sorted(changes):
        held[machine] += change
        assert held[machine] <= schedule.cluster.machines[machine].count
    assert held == [0] * len(held)


def _check_memory(schedule: Schedule, jobs: Sequence[Job]) -> None:
    """At no moment do the jobs on a server need more than its memory, on whichever parts of it they run."""
    cluster, by_name = schedule.cluster, {job.name: job for job in jobs}
    changes = []
    for span in schedule.spans:
        for machine, count in span.placement:
            need = by_name[span.job].need(cluster.machines[machine].accelerator)
            server, memory = cluster.server_of[machine], need.memory(count)
            changes += [(span.end_seconds, 0, server, -memory), (span.begin_seconds, 1, server, memory)]
    held: dict[int, float] = {}
    for _, _, server, change in sorted(changes):
        held[server] = held.get(server, 0.0) + change
        assert held[server] <= cluster.memory_of.get(server, inf) + 1e-6
