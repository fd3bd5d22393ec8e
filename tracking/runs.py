"""Tree of runs: one parent run for each flow run, with a child run for each trial, member and ensemble."""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

from shunter.engine.data.dataset import Dataset
from shunter.engine.executors.energy import add_readings
from shunter.engine.stopping import StoppedError
from shunter.errors import ProcessLostError, TrackingError
from shunter.hardware.types import EnergyReading
from shunter.requests import JobRequest
from shunter.tracking.client import TrackingClient
from shunter.tracking.convention import (
    LEARNED,
    LEARNED_PARTS,
    SCHEMA_VERSION,
    TOTAL_SECONDS,
    WATTS,
    RunKind,
    data_params,
    energy_metrics,
    energy_series,
    energy_tags,
    headline_metrics,
    part_metrics,
    part_tags,
    request_params,
)
from shunter.tracking.entries import AWAY
from shunter.tracking.outbox import LOCAL
from shunter.tracking.store import open_store, tracking_errors, tracking_uri

Status = Literal["FINISHED", "FAILED", "KILLED", "SCHEDULED"]
UNFINISHED = "RUNNING"
INTERRUPTED: Status = "SCHEDULED"  # status of a run that can be resumed; MLflow would show KILLED in red, like failures
DETAILS = "details"  # folder of the artifacts with all figures of a parent run
LONGEST_TAG = 5_000  # largest number of characters in a tag that every MLflow store accepts


@dataclass(frozen=True)
class Run:
    """MLflow run for writing metrics, parameters and tags; thread-safe.

    Attributes:
        run_id: MLflow's id of the run.
        client: Client of the store with the run.
    """

    run_id: str
    client: TrackingClient = field(repr=False, compare=False)

    def log_params(self, values: Mapping[str, Any]) -> None:
        """Write parameters of the run.

        Raises:
            TrackingError: The store fails, or a parameter of the same name has another value.
        """
        with tracking_errors():
            self.client.log_params(self.run_id, {name: str(value) for name, value in values.items()})

    def log_metrics(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Write metrics at one step; for points of a training curve `step` is the epoch."""
        self._log([(name, value, step or 0) for name, value in values.items()])

    def log_figures(self, part: str, figures: Mapping[str, Any]) -> None:
        """Write figures of a parent run to `details/PART.json`, and the figures for comparisons of runs as metrics.

        Args:
            part: Part of the run; a second call with the same part replaces its figures.
            figures: Values by name; if empty, nothing is written.
        """
        if not figures:
            return
        text = json.dumps(dict(figures), separators=(",", ":"))
        with tracking_errors():
            self.client.log_text(self.run_id, text, f"{DETAILS}/{part}.json")
        if part in LEARNED_PARTS:
            self.set_tags({f"{LEARNED}{part}": text})
        self.log_metrics(headline_metrics(figures))

    def log_series(self, series: Mapping[str, Sequence[float]]) -> None:
        """Write whole curves by metric name, with the values at steps 1, 2, ..."""
        self._log([(name, value, step) for name, values in series.items() for step, value in enumerate(values, 1)])

    def log_energy(self, reading: EnergyReading) -> None:
        """Write energy in joules, its uncertainty, power in watts over time, and the source of the figures."""
        self.log_metrics(energy_metrics(reading))
        self._log(energy_series(reading))
        self.set_tags(energy_tags(reading))

    def log_power(self, reading: EnergyReading) -> None:
        """Write power in watts over time to a parent run."""
        self._log(energy_series(reading, WATTS))

    def log_command(self, seconds: float, parts: Mapping[str, EnergyReading]) -> EnergyReading:
        """Write wall clock and energy of the whole command, and return the energy."""
        total = reduce(add_readings, parts.values())
        self.log_figures("command", {TOTAL_SECONDS: seconds, **energy_metrics(total), **part_metrics(parts)})
        self.set_tags({**energy_tags(total), **part_tags(parts)})
        return total

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Write tags, cut to `LONGEST_TAG` characters; existing tags are replaced."""
        with tracking_errors():
            self.client.set_tags(self.run_id, {name: text[:LONGEST_TAG] for name, text in tags.items()})

    def rename(self, name: str) -> None:
        """Rename the run in MLflow's lists and charts."""
        self.set_tags({"mlflow.runName": name})

    def _log(self, points: Sequence[tuple[str, float, int]]) -> None:
        now_milliseconds = int(time.time() * 1000)
        metrics = [(name, float(value), now_milliseconds, step) for name, value, step in points]
        with tracking_errors():
            for start in range(0, len(metrics), 1000):  # MLflow's limit for one call
                self.client.log_metrics(self.run_id, metrics[start : start + 1000])


def open_run(run_id: str) -> Run:
    """Return the run with this id for writing."""
    return Run(run_id, open_store())


def start_run_tree(
    request: JobRequest,
    dataset: Dataset,
    *,
    flow_run_id: str | None = None,
    parent_run_id: str | None = None,
    kind: RunKind = "train",
) -> str:
    """Create or resume the parent run of one flow run, with request and data as parameters; return its id.

    Args:
        request: Request of the user.
        dataset: Ingested data set.
        flow_run_id: Prefect's id of the flow run, written as a tag for cross-reference.
        parent_run_id: Interrupted run to resume; if the run is deleted, a new run is created. Child runs that a kill
            left open are ended as KILLED.
        kind: Kind of the run.

    Raises:
        TrackingError: the store cannot be reached or written.
    """
    client = open_store()
    if parent_run_id is not None and _reopen(client, parent_run_id):
        run = Run(parent_run_id, client)
    else:
        name = f"{dataset.name} {request.model}"
        run = _create(client, name, kind)
        run.log_params({**request_params(request), **data_params(dataset)})
        _log_input(run, dataset)
    if flow_run_id is not None:
        run.set_tags({"prefect.flow_run_id": flow_run_id})
    return run.run_id


def start_run(name: str, kind: RunKind, *, flow_run_id: str | None = None, run_id: str | None = None) -> str:
    """Create or resume a run outside any training job, for instance the profile of a machine.

    Args:
        name: Name of the run.
        kind: Kind of the run.
        flow_run_id: Prefect's id of the flow run, written as a tag for cross-reference.
        run_id: Interrupted run to resume, see `parent_run_id` of `start_run_tree`.

    Returns:
        Id of the run.

    Raises:
        TrackingError: the store cannot be reached or written.
    """
    client = open_store()
    is_there = run_id is not None and _reopen(client, run_id)
    run = Run(str(run_id), client) if is_there else _create(client, name, kind)
    if flow_run_id is not None:
        run.set_tags({"prefect.flow_run_id": flow_run_id})
    return run.run_id


def finish(run_id: str, status: Status = "FINISHED", reason: str | None = None) -> None:
    """End a run with a status.

    Args:
        run_id: Id of a parent or child run.
        status: Final status of the run.
        reason: Sentence written as the tag `run.reason`.

    Raises:
        TrackingError: the store cannot be reached or written.
    """
    run = open_run(run_id)
    if reason:
        run.set_tags({"run.reason": reason})
    with tracking_errors():
        run.client.set_terminated(run_id, status)


def status_of(run_id: str) -> str:
    """Return the status of a run in the store, such as `FINISHED`.

    Raises:
        TrackingError: the store cannot be reached, or does not have the run.
    """
    client = open_store()
    with tracking_errors():
        return client.mlflow.get_run(client.real_id(run_id)).info.status


def give_up(run_id: str) -> None:
    """End an unfinished run as KILLED, because it can no longer be resumed.

    Raises:
        TrackingError: the store cannot be reached or written.
    """
    if status_of(run_id) in {UNFINISHED, INTERRUPTED}:
        finish(run_id, "KILLED", reason="The state of the interrupted run was removed.")


@contextlib.contextmanager
def child_run(parent_run_id: str, name: str, kind: RunKind) -> Iterator[Run]:
    """Create a child run, and end it after the block as FINISHED, as FAILED on an error, or as KILLED on Ctrl-C.

    Raises:
        TrackingError: the store cannot be reached or written.
    """
    run = _create(open_store(), name, kind, parent_run_id)
    with closing(run.run_id):
        yield run


@contextlib.contextmanager
def closing(run_id: str, *, is_resumable: bool = False) -> Iterator[None]:
    """End the run after the block, with a status for success, error or interruption; errors are raised unchanged."""
    try:
        yield
    except BaseException as error:
        # Only an error is a failure: Ctrl-C, a cancelled flow and a lost process are interruptions, and an exploration
        # that exceeds its bound is stopped as intended.
        is_given_up = isinstance(error, StoppedError) and error.is_exploration
        is_failure = isinstance(error, Exception) and not (isinstance(error, ProcessLostError) or is_given_up)
        status = "FAILED" if is_failure else INTERRUPTED if is_resumable else "KILLED"
        with contextlib.suppress(TrackingError):  # the error of the block is raised instead
            finish(run_id, status, reason=f"{type(error).__name__}: {error}")
        raise
    finish(run_id)


@contextlib.contextmanager
def system_metrics(run_id: str, interval_seconds: int = 5) -> Iterator[None]:
    """Sample CPU, memory, disk, network and GPU use into the run (metrics `system/*`) during the block.

    The samples are numerous and of little value, so a run that is not yet delivered to the store gets no samples.
    """
    run_id = open_store().real_id(run_id)
    if run_id.startswith(LOCAL):
        yield
        return
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

    monitor = SystemMetricsMonitor(
        run_id, sampling_interval=interval_seconds, resume_logging=True, tracking_uri=tracking_uri()
    )
    monitor.start()
    try:
        yield
    finally:
        monitor.finish()


def _create(client: TrackingClient, name: str, kind: RunKind, parent_run_id: str | None = None) -> Run:
    tags = {"run.kind": kind, "schema.version": SCHEMA_VERSION}
    if parent_run_id is not None:
        tags["mlflow.parentRunId"] = parent_run_id
    with tracking_errors():
        return Run(client.create_run(name, tags), client)


def _reopen(client: TrackingClient, run_id: str) -> bool:
    """Set a run to RUNNING again; return False if the run no longer exists."""
    from mlflow.exceptions import MlflowException

    run_id = client.real_id(run_id)
    if run_id.startswith(LOCAL):
        return True  # the run is not delivered to the store yet
    try:
        info = client.mlflow.get_run(run_id).info
    except MlflowException as error:
        return error.error_code in AWAY
    if info.lifecycle_stage == "deleted":
        return False
    with tracking_errors():
        left_open = client.mlflow.search_runs(
            [info.experiment_id],
            f"tags.mlflow.parentRunId = '{run_id}' and attributes.status = 'RUNNING'",
            max_results=1000,
        )
        for child in left_open:
            client.set_terminated(child.info.run_id, "KILLED")
        client.mlflow.update_run(run_id, status="RUNNING")  # not queued: it fails while the store is unreachable
        if "run.reason" in client.mlflow.get_run(run_id).data.tags:
            client.delete_tag(run_id, "run.reason")  # the reason of an earlier attempt
    return True


def _log_input(run: Run, dataset: Dataset) -> None:
    """Write the data set as MLflow's run input, so that the compare view shows the data set of each run."""
    from mlflow.entities import Dataset as InputDataset
    from mlflow.entities import DatasetInput, InputTag

    entity = InputDataset(
        name=dataset.name,
        digest=dataset.fingerprint[:36],
        source_type="local",
        source=json.dumps({"uri": str(dataset.directory)}),
        profile=json.dumps({name: split.rows for name, split in dataset.splits.items()}),
    )
    with tracking_errors():
        run.client.log_inputs(run.run_id, [DatasetInput(entity, [InputTag("mlflow.data.context", "training")])])
