"""Files of users: a cluster, jobs of our own, and what is refused in one sentence."""

from itertools import pairwise
from pathlib import Path

import pytest

from shunter.errors import DataError, RequestError
from shunter.extensions.fleet.drawing import power_steps, queue_steps, utilisation_steps
from shunter.extensions.fleet.files import check_fit, is_own, read_cluster, read_jobs, read_own_jobs
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.policies import POLICIES, make_policy, policy_names
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate
from shunter.hardware.catalogue.rows import load_catalogue

CLUSTER = """
machines:
- {name: gpu1, accelerator: A100, count: 2}
- {name: cpu1, accelerator: cpu}
accelerators:
  A100: {idle_watts: 50, busy_watts: 300}
  cpu: {idle_watts: 5, busy_watts: 100}
"""
JOBS = """
jobs:
- {name: both, train_seconds: {A100: 600, cpu: 3600}, train: {data: ml-100k, model: dlrm}}
- {name: wide, train_seconds: {A100: 1200}, accelerators: 2, network_share: 0.5}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def jobs_of(path: Path) -> list[Job]:
    return [job.job() for job in read_own_jobs(path)] if is_own(path) else read_jobs(path)


def test_own_jobs_run_where_they_can(tmp_path: Path) -> None:
    cluster, jobs = read_cluster(write(tmp_path, "c.yaml", CLUSTER)), jobs_of(write(tmp_path, "j.yaml", JOBS))
    check_fit(jobs, cluster)
    schedule = simulate(jobs, cluster, make_policy("fifo"))
    assert [outcome.end_seconds for outcome in schedule.outcomes] == [600.0, 1800.0]
    assert queue_steps(schedule) == [(0.0, 1.0), (600.0, 0.0), (1800.0, 0.0)]
    assert [round(share, 9) for _, share in utilisation_steps(schedule)] == [round(1 / 3, 9), round(2 / 3, 9), 0.0]
    power = power_steps(schedule)
    assert power == [(0.0, 355.0), (600.0, 605.0), (1800.0, 105.0)]
    energy = sum(watts * (after - at) for (at, watts), (after, _) in pairwise(power))
    assert energy == figures(schedule)["energy_joules"]


def test_a_job_asks_for_cores_or_a_gpu_and_both_share_the_memory_of_their_server(tmp_path: Path) -> None:
    """Eight cores and a GPU are free, and the memory is enough for two at a time."""
    box = "server: box, memory_gib: 10"
    text = f"machines: [{{name: gpu, accelerator: A100, {box}}}, {{name: cores, accelerator: cpu, count: 8, {box}}}]"
    each = "train_seconds: {A100: 50, cpu: 200}, accelerators: {cpu: 4}, server_memory_gib: 4"
    cluster = read_cluster(write(tmp_path, "c.yaml", text))
    jobs = jobs_of(write(tmp_path, "j.yaml", f"jobs: [{{name: a, {each}}}, {{name: b, {each}}}, {{name: c, {each}}}]"))
    check_fit(jobs, cluster)
    schedule = simulate(jobs, cluster, make_policy("fifo-skip"))
    assert [span.placement for span in schedule.spans] == [((0, 1),), ((0, 1),), ((1, 4),)]
    assert [outcome.end_seconds for outcome in schedule.outcomes] == [50.0, 200.0, 100.0]


def test_watts_that_the_file_does_not_give_are_the_catalogues(tmp_path: Path) -> None:
    cluster = read_cluster(write(tmp_path, "c.yaml", CLUSTER.split("accelerators:", maxsplit=1)[0]))
    row = load_catalogue().find_accelerator("A100")
    assert cluster.type_of("A100").busy_watts == row.tdp_watts
    assert 0 < cluster.type_of("A100").idle_watts < cluster.type_of("A100").busy_watts
    assert cluster.type_of("cpu").busy_watts == 0
    assert not cluster.has_watts, "of the type cpu nothing is known"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("machines: []", "it has no machines"),
        ("machines: [{name: a}, {name: a}]", "two machines of the cluster are called 'a'"),
        ("machines: [{name: a, cont: 3}]", "did you mean count"),
        ("machines: [{name: a, count: 0}]", "count in entry 1 of machines is 0: give a number above 0"),
        ("machines: [{name: a}]\noutages: [{machine: b, begin_seconds: 1}]", "names the unknown machine 'b'"),
        ("machines: [{name: a, server: s, memory_gib: 1}, {name: b, server: s}]", "'a' and 'b' belong to one server"),
        ("machines: [{name: a, count: 1000000000000000}]", "count in entry 1 of machines is 1000000000000000"),
        ("machines: [{name: a, memory_gib: .inf}]", "give a finite number"),
        (
            "machines: [{name: a}]\noutages: [{machine: a, begin_seconds: 1e+300}]",
            "begin_seconds in entry 1 of outages",
        ),
        ('machines: [{name: "\\e[2Ja"}]', r"printable characters, unlike '\\x1b\[2Ja'"),
        ("- 1", "holds no keys"),
    ],
)
def test_a_wrong_cluster_is_refused_in_words(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        read_cluster(write(tmp_path, "c.yaml", text))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("j.yaml", "jobs: [{name: a}]", "job 'a': give its train_seconds by accelerator, or its training options"),
        ("j.yaml", "jobs: [{name: a, train_seconds: {x: -1}}]", "give a number above 0"),
        (
            "j.yaml",
            "jobs: [{name: a, train_seconds: {x: 1}, accelerators: {x: 0}}]",
            "accelerators is 0: give a number",
        ),
        ("j.yaml", "jobs: [{name: a, train_seconds: {x: 1}, accelerators: -3}]", "accelerators is -3: give a number"),
        ("j.yaml", "jobs: [{name: a, train_seconds: {x: .inf}}]", "give a"),
        ("j.yaml", 'jobs: [{name: "a\\nb", train_seconds: {x: 1}}]', "printable characters"),
        ("j.csv", "job_id,num_gpu,submit_time,duration\n\x1b[2J,1,1,1\n", "printable characters"),
        ("j.csv", "job_id,num_gpu,submit_time,duration\n1,1e15,1,1\n", "and at most 1,000,000"),
        ("j.csv", "job_id,num_gpu,submit_time,duration\n1,1,1e300,1\n", "and at most 10,000,000,000"),
        (
            "j.yaml",
            "jobs: [{name: a, train_seconds: {x: 1}, accelerators: {x: 2}, speedups: {1: 0.5}}]",
            "job 'a': speedups apply when",
        ),
        ("j.csv", "a,b\n1,2\n", "match no known trace format"),
        ("j.csv", "job_id,num_gpu,submit_time,duration\n", "has no job"),
        ("j.trace", "x\n", "needs the file simulation_throughputs.json"),
    ],
)
def test_wrong_jobs_are_refused_in_words(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    with pytest.raises((RequestError, DataError), match=complaint):
        jobs_of(write(tmp_path, name, text))


def test_jobs_for_accelerators_that_are_not_there_are_named(tmp_path: Path) -> None:
    jobs = jobs_of(write(tmp_path, "j.yaml", "jobs: [{name: a, train_seconds: {H100: 5}}]"))
    with pytest.raises(RequestError, match="'a'"):
        check_fit(jobs, read_cluster(write(tmp_path, "c.yaml", CLUSTER)))


def test_policies_are_named_once_and_known() -> None:
    assert policy_names("fifo, dally") == ["fifo", "dally"]
    assert policy_names("all") == list(POLICIES)
    for text, complaint in (
        ("fifo,fifo", "twice"),
        (",", "no scheduling policy is given"),
        ("dalli", "did you mean dally"),
    ):
        with pytest.raises(RequestError, match=complaint):
            policy_names(text)


def test_what_can_never_run_is_refused_by_what_it_lacks(tmp_path: Path) -> None:
    text = CLUSTER.replace("busy_watts: 300", "busy_watts: 300, memory_gib: 40")
    cluster = read_cluster(write(tmp_path, "c.yaml", text))
    jobs = jobs_of(write(tmp_path, "j.yaml", "jobs: [{name: big, train_seconds: {A100: 60}, memory_gib: 80}]"))
    with pytest.raises(RequestError, match="'big'"):
        check_fit(jobs, cluster)
    jobs = jobs_of(write(tmp_path, "j.yaml", "jobs: [{name: fat, train_seconds: {A100: 6}, server_memory_gib: 9}]"))
    small = read_cluster(write(tmp_path, "s.yaml", "machines: [{name: m, accelerator: A100, memory_gib: 8}]"))
    with pytest.raises(RequestError, match="'fat'"):
        check_fit(jobs, small)
    limited = read_cluster(write(tmp_path, "d.yaml", "power_limit_watts: 900\nmachines: [{name: m, accelerator: odd}]"))
    with pytest.raises(RequestError, match="needs the power of odd"):
        check_fit([], limited)
