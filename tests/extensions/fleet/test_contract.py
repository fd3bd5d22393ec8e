"""Every policy over random clusters and traces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from shunter.errors import RequestError
from shunter.extensions.fleet.cluster import Cluster, Machine, Network, Outage
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.policies import POLICIES, make_policy
from shunter.extensions.fleet.simulator import simulate
from tests.extensions.fleet.checks import check_schedule

TYPES = ("new", "old")


@some.composite
def clusters(draw: some.DrawFn) -> Cluster:
    machines = []
    for i in range(draw(some.integers(1, 4))):
        last = machines[-1] if machines else None
        own = {"rack": f"r{draw(some.integers(0, 1))}", "memory_gib": draw(some.sampled_from((0.0, 4.0, 8.0)))}
        if last is not None and not last.server and draw(some.booleans()):  # another part of the same box
            own = {"server": last.name, "rack": last.rack, "memory_gib": last.memory_gib}
        kind, count = draw(some.sampled_from(TYPES)), draw(some.integers(1, 4))
        machines.append(Machine.model_validate({"name": f"m{i}", "accelerator": kind, "count": count, **own}))
    away = draw(some.lists(some.sampled_from(machines), max_size=1))
    begin = draw(some.floats(0, 500))
    outages = [Outage(machine=one.name, begin_seconds=begin, end_seconds=begin + 300) for one in away]
    network = Network(congestion=draw(some.sampled_from((1.0, 3.0))), shared_uplinks=draw(some.booleans()))
    return Cluster(machines=tuple(machines), outages=tuple(outages), network=network)


@some.composite
def cases(draw: some.DrawFn) -> tuple[Cluster, list[Job]]:
    cluster = draw(clusters())
    jobs = []
    for i in range(draw(some.integers(1, 7))):
        usable = draw(some.lists(some.sampled_from(cluster.types), min_size=1, max_size=2, unique=True))
        most = max(cluster.count_of[name] for name in usable)
        asked = draw(some.integers(1, most))
        on = {name: draw(some.integers(1, min(cluster.count_of[name], 3))) for name in usable}
        waits = draw(some.sampled_from((0.0, 0.5, 4.0)))
        work = Iterations(
            draw(some.sampled_from((10.0, 100.0, 1000.0))),
            {name: draw(some.sampled_from((0.5, 1.0, 2.0))) for name in usable},
            dict.fromkeys(usable, (0.0, waits / 2, waits)),
        )
        job = Job(
            name=f"job{i}",
            arrival_seconds=draw(some.sampled_from((0.0, 10.0, 333.3, 5000.0))),
            accelerators=asked,
            accelerators_on=on if draw(some.booleans()) else {},
            work=work,
            start_seconds=draw(some.sampled_from((0.0, 3.0))),
            checkpoint_seconds=1.0,
            restore_seconds=draw(some.sampled_from((0.0, 7.0))),
            checkpoint_every_seconds=50.0,
            preemptible=draw(some.booleans()),
            server_memory_gib=draw(some.sampled_from((0.0, 2.5, 6.0))),
        )
        if job.types(cluster):  # else it needs more memory than there is
            jobs.append(job)
    return cluster, jobs


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_every_policy_runs_every_job_within_the_cluster_and_always_alike(
    name: str, case: tuple[Cluster, list[Job]]
) -> None:
    cluster, jobs = case
    schedule = simulate(jobs, cluster, make_policy(name))
    check_schedule(schedule, jobs)
    assert simulate(jobs, cluster, make_policy(name)) == schedule


@settings(max_examples=12, deadline=None)
@given(case=cases())
def test_dally_that_never_waits_is_first_come_first_served_with_overtaking(case: tuple[Cluster, list[Job]]) -> None:
    cluster, jobs = case
    skipping = simulate(jobs, cluster, make_policy("fifo-skip"))
    nowait = simulate(jobs, cluster, make_policy("dally-nowait"))
    assert nowait.outcomes == skipping.outcomes or cluster.outages  # who was stopped keeps its age with Dally alone


def test_an_unknown_policy_is_refused_with_what_is_near() -> None:
    with pytest.raises(RequestError, match="fifo"):
        make_policy("fifoo")
