"""Reader of the workloads of Pollux' simulator: applications with the placement and batch that users requested."""

from pathlib import Path

from shunter.errors import DataError
from shunter.extensions.fleet.applications import Application, ElasticWork
from shunter.extensions.fleet.job import Job
from shunter.extensions.fleet.traces.table import count, folder_name, name, rows, seconds
from shunter.ingestion.sources.guard import check_text

RESCALE_SECONDS = 30.0
COLUMNS = {"name": name, "time": seconds, "application": folder_name, "num_replicas": count, "batch_size": count}


def read_pollux(path: Path, *, adaptive: bool = False) -> list[Job]:
    """Read the jobs of a workload; the measurements are in `traces/` beside its folder.

    Args:
        path: CSV file with columns name, time, application, num_replicas and batch_size.
        adaptive: If True, the batch follows the placement instead of the request.

    Raises:
        DataError: A line is invalid, or an application has no measurements.
        RequestError: The measurements are outside the folders that a request may read.
    """
    applications: dict[str, Application] = {}
    jobs = []
    for line, row in rows(path, COLUMNS):
        application = row["application"]
        if application not in applications:
            directory = path.parent.parent / "traces" / application
            check_text(str(directory))
            if not directory.is_dir():
                raise DataError(
                    f"line {line} of {path}: application is {application!r}, and {directory} has no measurements of it"
                )
            applications[application] = Application(directory)
        jobs.append(
            Job(
                name=row["name"],
                arrival_seconds=row["time"],
                accelerators=row["num_replicas"],
                work=ElasticWork(applications[application], None if adaptive else row["batch_size"]),
                start_seconds=RESCALE_SECONDS,
                restore_seconds=RESCALE_SECONDS,
            )
        )
    return jobs
