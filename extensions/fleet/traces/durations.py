"""Readers of traces that give each job's duration and number of accelerators: Philly, Tiresias, Alibaba."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from shunter.errors import DataError
from shunter.extensions.fleet.job import Iterations, Job
from shunter.extensions.fleet.traces.table import count, name, open_text, positive, rows, seconds


def moment_of(text: str) -> float:
    """Return the seconds of a date and time since a fixed day."""
    try:
        return (datetime.fromisoformat(text) - datetime(2017, 1, 1)).total_seconds()
    except ValueError as error:
        raise ValueError("a date and time such as 2017-10-09 07:01:55") from error


PHILLY = {"timestamp": moment_of, "duration": positive, "num_gpus": count}
TIRESIAS = {"job_id": name, "num_gpu": count, "submit_time": seconds, "duration": positive}
ALIBABA = {
    "instance_sn": name,
    "gpu_request": lambda text: float(text or 0),
    "creation_time": lambda text: seconds(text) if text else None,
    "scheduled_time": lambda text: seconds(text) if text else None,
    "deletion_time": lambda text: seconds(text) if text else None,
}


def read_philly(path: Path) -> list[Job]:
    """Read jobs of Microsoft's Philly cluster in the format of Pollux; the first arrival is second 0."""
    found = [(line, row) for line, row in rows(path, PHILLY)]
    first = min((row["timestamp"] for _, row in found), default=0.0)
    return [_job(f"philly-{line}", row["timestamp"] - first, row["num_gpus"], row["duration"]) for line, row in found]


def read_msr(path: Path) -> list[Job]:
    """Read `cluster_job_log` of Microsoft's Philly cluster, as Microsoft Research publishes it.

    A job takes the seconds of all its attempts together, on the accelerators of the last one. Jobs without a recorded
    attempt, and jobs that were still running, are skipped. The first arrival is second 0.

    Raises:
        DataError: The file is not such a log.
    """
    try:
        with open_text(path) as file:
            log = json.load(file)
        found = [(str(job["jobid"]), moment_of(job["submitted_time"]), *_attempts(job["attempts"])) for job in log]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a cluster_job_log of Microsoft's Philly traces ({error})") from error
    found = [job for job in found if job[2] > 0 and job[3] > 0]
    first = min((arrival for _, arrival, _, _ in found), default=0.0)
    return [_job(job, arrival - first, accelerators, taken) for job, arrival, accelerators, taken in found]


def _attempts(attempts: list[dict[str, Any]]) -> tuple[int, float]:
    """Return the accelerator count of the last attempt, and the total seconds; zeros if an attempt has not ended."""
    taken, accelerators = 0.0, 0
    for attempt in attempts:
        begun, ended = attempt["start_time"], attempt["end_time"]
        if begun in (None, "None") or ended in (None, "None"):
            return 0, 0.0
        taken += max(0.0, moment_of(ended) - moment_of(begun))
        accelerators = sum(len(part["gpus"]) for part in attempt["detail"])
    return accelerators, taken


def read_tiresias(path: Path) -> list[Job]:
    """Read jobs of Tiresias' simulator."""
    return [
        _job(f"job-{row['job_id']}", row["submit_time"], row["num_gpu"], row["duration"])
        for _, row in rows(path, TIRESIAS)
    ]


def read_alibaba(path: Path) -> list[Job]:
    """Read Alibaba's instances of disaggregated recommendation models that used GPUs and began and ended in the trace.

    Instances that began before the trace or ended after it have no duration and are skipped.
    """
    jobs = []
    for _, row in rows(path, ALIBABA):
        begin, end = row["scheduled_time"], row["deletion_time"]
        if row["gpu_request"] >= 1 and row["creation_time"] is not None and begin is not None and (end or 0) > begin:
            jobs.append(_job(row["instance_sn"], row["creation_time"], int(row["gpu_request"]), end - begin))
    return jobs


def _job(job: str, arrival: float, accelerators: int, duration: float) -> Job:
    return Job(job, arrival, accelerators, Iterations(duration, {"": 1.0}))
