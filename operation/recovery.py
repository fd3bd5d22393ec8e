"""Stopping and resuming of flow runs whose worker was lost or is about to be stopped.

A home is a folder SHUNTER_HOME; each home has at most one worker.
"""

import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from prefect import get_client
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.filters import FlowRunFilter, WorkPoolFilter
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import AwaitingRetry, Cancelled, Cancelling, Crashed

from shunter.hardware.devices.process_mark import process_mark
from shunter.operation.servers import WORK_POOL, worker_name
from shunter.tasks.flow_runs import notify_about

MOST_ATTEMPTS = 3  # limit for runs that make their worker crash each time
GRACE_SECONDS = 60.0
POLL_SECONDS = 0.5
SILENCE = timedelta(minutes=10)  # time without a heartbeat until a foreign worker is lost; usual are two a minute
WORKER_LABEL = "prefect.worker.name"  # label that Prefect's worker gives to a run before it starts the run's process
UNFINISHED = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]

Say = Callable[[str], None]


def recover(say: Say, *, server_since: datetime, has_worker: bool = False) -> None:
    """Clean up the runs of a worker that was killed or was lost with its machine.

    A worker is lost if it is this home's former worker, or if it has sent no heartbeat for `SILENCE` while the server
    was up. Runs of all other workers are skipped. Remaining processes of the lost worker's runs on this machine are
    stopped. A run that was being cancelled is cancelled. Any other run is marked as crashed, and the next worker
    resumes it from its last checkpoint, in at most `MOST_ATTEMPTS` attempts.

    Args:
        say: Called with a message about each run.
        server_since: Time from which on Prefect's server has received heartbeats.
        has_worker: Whether this home's worker is alive; its runs are then skipped.
    """
    with get_client(sync_client=True) as client:
        for run in _abandoned(client, server_since, has_worker, say):
            _stop_processes(run.id)
            if run.state is not None and run.state.is_cancelling():
                client.set_flow_run_state(run.id, Cancelled(), force=True)
                continue
            crashed = Crashed(message="Its worker is gone, and so is the process of the run.")
            client.set_flow_run_state(run.id, crashed, force=True)
            if run.run_count < MOST_ATTEMPTS:
                _resume(client, run)
                say(f"{run.name} has lost its worker: it resumes from its last checkpoint.")
            else:
                notify_about(client.read_flow(run.flow_id).name, run, crashed)
                say(f"{run.name} has lost its worker {run.run_count} times: start it again once you know why.")


def interrupt(say: Say) -> None:
    """Stop the runs of this home's live worker, each after a checkpoint; the next worker resumes them."""
    with get_client(sync_client=True) as client:
        runs = _runs(client, [StateType.RUNNING, StateType.PENDING])
        interrupted = [run for run in runs if _is_ours(run)]
        _name_others([run for run in runs if not _is_ours(run)], say)
        for run in interrupted:
            client.set_flow_run_state(run.id, Cancelling(message="Shunter is stopped."), force=True)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and any(map(_is_ours, _runs(client, UNFINISHED))):
            time.sleep(POLL_SECONDS)
        for run in interrupted:
            _stop_processes(run.id)
            state = client.read_flow_run(run.id).state
            if state is not None and state.is_completed():
                continue
            _resume(client, run)
            say(f"{run.name} was stopped: it resumes from its last checkpoint with the next `shunter up`.")


def processes_of(flow_run_id: UUID) -> list[int]:
    """Return the ids of this user's processes of a flow run, wherever they are in the process tree."""
    variable = f"PREFECT__FLOW_RUN_ID={flow_run_id}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (folder / "environ").read_bytes().split(b"\0") and process_mark(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue  # the process belongs to another user, or has ended meanwhile
    return found


def _runs(client: SyncPrefectClient, states: list[StateType]) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter.model_validate({"state": {"type": {"any_": states}}}),
        work_pool_filter=WorkPoolFilter.model_validate({"name": {"any_": [WORK_POOL]}}),
    )


def _abandoned(client: SyncPrefectClient, server_since: datetime, has_worker: bool, say: Say) -> list[FlowRun]:
    """Return the unfinished runs whose worker is gone."""
    runs = _runs(client, UNFINISHED)
    ours, others = [run for run in runs if _is_ours(run)], [run for run in runs if not _is_ours(run)]
    gone = []
    if others and datetime.now(UTC) - server_since > SILENCE:
        heard = {one.name: one.last_heartbeat_time for one in client.read_workers_for_work_pool(WORK_POOL)}
        alive = {name for name, last in heard.items() if last and datetime.now(UTC) - last < SILENCE}
        gone = [run for run in others if run.labels[WORKER_LABEL] not in alive]
    _name_others([run for run in others if run not in gone], say)
    return gone if has_worker else ours + gone


def _is_ours(run: FlowRun) -> bool:
    """Return True if this home's worker runs the flow run, or if it was lost before a worker labelled it."""
    name = str(run.labels.get(WORKER_LABEL, worker_name()))
    return name.rpartition("-")[2] == worker_name().rpartition("-")[2]


def _name_others(runs: list[FlowRun], say: Say) -> None:
    for run in runs:
        say(f"{run.name} is run by the worker {run.labels[WORKER_LABEL]} and left to it.")


def _resume(client: SyncPrefectClient, run: FlowRun) -> None:
    client.set_flow_run_state(run.id, AwaitingRetry(message="It resumes from its last checkpoint."), force=True)


def _stop_processes(flow_run_id: UUID) -> None:
    """Send SIGTERM to the processes of a run, so that they save their state, and SIGKILL after `GRACE_SECONDS`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes_of(flow_run_id):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + GRACE_SECONDS
        while processes_of(flow_run_id) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
