"""The page that compares schedules: every policy, every bar, no script, nothing from elsewhere."""

import re

import pytest

from shunter.extensions.fleet.cluster import AcceleratorType, Cluster, Machine
from shunter.extensions.fleet.drawing import assign_lanes, round_up, useful_steps, utilisation_steps
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.page import fleet_page, markdown_table
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate

CLUSTER = Cluster(
    machines=(Machine(name="<b>one", count=2), Machine(name="two", count=2)),
    accelerators={"gpu": AcceleratorType(idle_watts=10, busy_watts=100)},
)
JOBS = [Job(f"job <{i}>", 10.0 * i, 1 + i % 3, Iterations(100 + i, {"": 1.0})) for i in range(9)]


def test_page_shows_each_policy_and_runs_nothing() -> None:
    schedules = [simulate(JOBS, CLUSTER, make_policy(name)) for name in ("fifo", "dally")]
    values = [figures(schedule) for schedule in schedules]
    page = fleet_page(schedules, values, "jobs & cluster")
    assert "<script" not in page
    assert "<b>" not in page.replace("&lt;b>", "")
    assert not re.search(r"https?://", page)
    assert [page.count(f'<h2 id="{name}">') for name in ("fifo", "dally")] == [1, 1]
    assert page.count("power (W)") == 2 * 2  # caption and label
    assert page.count("<title>job &lt;0&gt;</title>") == 2
    assert markdown_table(schedules, values).count("\n") == 3


def test_what_is_useful_is_what_is_held_but_for_the_network() -> None:
    tight = simulate([JOBS[0]], CLUSTER, make_policy("fifo"))
    assert useful_steps(tight) == utilisation_steps(tight) == [(0.0, 0.25), (100.0, 0.0)]
    waits = Iterations(100, {"": 1.0}, {"": (0.0, 1.0, 1.0)})
    jobs = [Job(name, 0.0, 2, waits) for name in ("first", "second", "spread")]  # over what these two leave
    cluster = Cluster(machines=(Machine(name="one", count=3), Machine(name="two", count=3)))
    apart = simulate(jobs, cluster, make_policy("fifo"))
    assert utilisation_steps(apart)[0] == (0.0, pytest.approx(1.0))
    assert useful_steps(apart)[0] == (0.0, pytest.approx((2 + 2 + 2 / 2) / 6))


def test_no_two_jobs_are_drawn_on_one_accelerator() -> None:
    schedule = simulate(JOBS, CLUSTER, make_policy("srtf"))
    lanes = assign_lanes(schedule)
    assert len(lanes) == sum(count for span in schedule.spans for _, count in span.placement)
    ends: dict[tuple[int, int], float] = {}
    for span, machine, lane in lanes:
        assert ends.get((machine, lane), 0.0) <= span.begin_seconds
        ends[machine, lane] = span.end_seconds


def test_what_rests_on_unknown_watts_and_prices_is_unknown() -> None:
    schedule = simulate(JOBS, Cluster(machines=CLUSTER.machines), make_policy("fifo"))
    values = figures(schedule)
    assert not {"energy_joules", "cost"} & set(values)
    assert "power (W)" not in fleet_page([schedule], [values], "jobs")
    assert markdown_table([schedule], [values]).count("unknown") == 2


@pytest.mark.parametrize(
    ("value", "above"), [(0.7, 1.0), (1.0, 1.0), (2.2, 2.5), (3.0, 5.0), (60.0, 100.0), (0.0, 0.0)]
)
def test_ticks_are_round(value: float, above: float) -> None:
    assert round_up(value) == pytest.approx(above)
