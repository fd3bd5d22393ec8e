"""Traces: what is read of each format, and how a broken line is refused."""

import json
import os
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.fleet_loads import uniform_cluster
from shunter.errors import DataError, RequestError
from shunter.extensions.fleet.files import read_jobs
from shunter.extensions.fleet.job import Conditions
from shunter.extensions.fleet.policies import make_policy
from shunter.extensions.fleet.schedule import figures
from shunter.extensions.fleet.simulator import simulate
from shunter.extensions.fleet.traces import pollux
from shunter.extensions.fleet.traces.durations import read_alibaba, read_philly, read_tiresias
from shunter.extensions.fleet.traces.gavel import read_throughputs
from shunter.extensions.fleet.traces.pollux import read_pollux
from tests.extensions.fleet.checks import check_schedule

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_philly_arrivals_count_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY + "2017-10-09 07:01:55,66.0,1,66.0,a\n2017-10-09 07:00:55,10,8,80,a\n")
    jobs = read_philly(path)
    assert [(job.arrival_seconds, job.accelerators) for job in jobs] == [(60.0, 1), (0.0, 8)]
    schedule = simulate(jobs, uniform_cluster(1, 1, 8), make_policy("fifo"))
    assert [outcome.end_seconds for outcome in schedule.outcomes] == [10.0, 126.0]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("yesterday,66.0,1,66.0,a", "line 3 of .*: timestamp is 'yesterday', but should be a date and time"),
        ("2017-10-09 07:01:55,long,1,66.0,a", "line 3 of .*: duration is 'long', but should be a number above 0"),
        ("2017-10-09 07:01:55,nan,1,66.0,a", "line 3 of .*: duration is 'nan'"),
        ("2017-10-09 07:01:55,66.0,0.5,66.0,a", "line 3 of .*: num_gpus is '0.5', but should be a whole number"),
        ("2017-10-09 07:01:55,66.0", "line 3 of .*: num_gpus is None, but should be a whole number"),
    ],
)
def test_a_broken_line_is_refused_by_its_number_and_field(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "philly.csv"
    path.write_text(PHILLY + "2017-10-09 07:00:55,10,8,80,a\n" + line + "\n")
    with pytest.raises(DataError, match=complaint):
        read_philly(path)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,num_gpu,duration\n1,1,1\n")
    with pytest.raises(DataError, match="'submit_time'"):
        read_tiresias(path)


def test_unknown_application_of_a_workload_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "workloads" / "one.csv"
    path.parent.mkdir()
    path.write_text("name,time,application,num_replicas,batch_size\na,0,chess,1,32\n")
    with pytest.raises(DataError, match="'chess'"):
        read_pollux(path)


def test_an_application_leads_to_no_other_folder(tmp_path: Path) -> None:
    path = tmp_path / "workloads" / "one.csv"
    path.parent.mkdir()
    (tmp_path / "traces").mkdir()
    path.write_text("name,time,application,num_replicas,batch_size\na,0,../workloads,1,32\n")
    with pytest.raises(DataError, match=r"'\.\./workloads'"):
        read_pollux(path)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "jobs.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_jobs(tmp_path / "jobs.csv")


def test_a_request_from_elsewhere_reads_no_measurements_outside_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs" / "one.csv"
    path.parent.mkdir()
    path.write_text("name,time,application,num_replicas,batch_size\na,0,bert,1,32\n")
    refused: list[str] = []

    def check(part: str) -> None:
        refused.append(part)
        raise RequestError("outside")

    monkeypatch.setattr(pollux, "check_text", check)
    with pytest.raises(RequestError, match="outside"):
        read_pollux(path)
    assert refused == [str(tmp_path / "traces" / "bert")]


def test_shockwave_is_told_by_its_fields_and_needs_no_table(tmp_path: Path) -> None:
    line = "LM (batch size 10)\tpython3 main.py\tlanguage_modeling\t--steps\t1\t134583\t{}\tgns\t2\t-1.000000\t1418\t55"
    path = tmp_path / "120_dynamic.trace"
    path.write_text(line.format(4) + "\n")
    (job,) = read_jobs(path)
    assert (job.arrival_seconds, job.accelerators, job.weight) == (55.0, 4, 2.0)
    schedule = simulate([job], uniform_cluster(1, 1, 4), make_policy("fifo"))
    assert schedule.outcomes[0].end_seconds == 55.0 + 1418.0
    path.write_text(line.format(4) + "\n" + line.format("many") + "\n")
    with pytest.raises(DataError, match="scale_factor"):
        read_jobs(path)


def test_microsofts_log_counts_all_attempts_and_skips_what_has_not_ended(tmp_path: Path) -> None:
    def attempt(start: str | None, end: str | None, gpus: int) -> dict[str, object]:
        return {
            "start_time": start,
            "end_time": end,
            "detail": [{"ip": "m1", "gpus": [f"gpu{i}" for i in range(gpus)]}],
        }

    days = "2017-10-07 "
    jobs = {
        "retried": [attempt(days + "01:00:00", days + "01:01:00", 8), attempt(days + "01:02:00", days + "01:04:00", 4)],
        "running": [attempt(days + "01:00:00", None, 8)],
        "never": [],
    }
    path = tmp_path / "cluster_job_log"
    log = [
        {"jobid": name, "submitted_time": f"{days}00:5{9 - place}:00", "attempts": attempts, "vc": "a", "user": "b"}
        for place, (name, attempts) in enumerate(jobs.items())
    ]
    path.write_text(json.dumps(log))
    (job,) = read_jobs(path)
    assert (job.name, job.arrival_seconds, job.accelerators) == ("retried", 0.0, 4)
    assert job.work.seconds_left(0.0, Conditions("any", (4,), 0)) == 180.0
    for damaged in ("[{}]", "[" * 100_000):
        path.write_text(damaged)
        with pytest.raises(DataError):
            read_jobs(path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"v100": {"a b": {"null": 1}}}', json.dumps({"v100": {"(" * 999: {}}})]
)
def test_a_damaged_table_of_throughputs_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text(text)
    with pytest.raises(DataError):
        read_throughputs(tmp_path / "table.json")


def test_published_files_are_read_as_they_are(shared_data: Path) -> None:
    assert len(read_philly(shared_data / "clusters/pollux_osdi21/traces/philly.csv")) == 82_247
    assert len(read_tiresias(shared_data / "clusters/tiresias/60_job.csv")) == 60
    alibaba = read_alibaba(shared_data / "clusters/alibaba/disaggregated_DLRM_trace.csv")
    assert alibaba
    assert {job.accelerators for job in alibaba} == {1}


@pytest.mark.parametrize("policy", ["fifo", "fifo-skip", "srtf", "las", "tiresias", "dally"])
def test_nobody_beats_the_lower_bound(shared_data: Path, policy: str) -> None:
    jobs = read_tiresias(shared_data / "clusters/tiresias/60_job.csv")
    schedule = simulate(jobs, uniform_cluster(1, 4, 4), make_policy(policy))
    check_schedule(schedule, jobs)
    alone_seconds = fmean(outcome.isolated_seconds for outcome in schedule.outcomes)
    assert figures(schedule)["jct.mean_seconds"] >= alone_seconds * (1 - 1e-12)


def test_a_job_larger_than_the_cluster_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,num_gpu,submit_time,duration\n7,5,0,10\n")
    with pytest.raises(RequestError, match="'job-7'"):
        simulate(read_tiresias(path), uniform_cluster(1, 1, 4), make_policy("fifo"))
