"""MLflow run of a flow run, which all its attempts write to."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from prefect.runtime import flow_run
from pydantic import BaseModel

from shunter.engine.checkpoint.checked_files import write_json, write_text
from shunter.engine.data.dataset import Dataset
from shunter.requests import TrainRequest
from shunter.requests.job import model_name_of
from shunter.requests.job_file import JOB_FILE, job_text
from shunter.requests.training import parse_loggers
from shunter.settings import settings
from shunter.tasks.run_state import DATA, StateFolder
from shunter.tracking.loggers import OPEN_LOGGERS, opened
from shunter.tracking.reports import log_request
from shunter.tracking.runs import RunKind, closing, start_run_tree


class RunIdentity(BaseModel):
    """MLflow run that later attempts of an interrupted run continue."""

    parent_run_id: str


def logged_to(log_to: str | None, run_id: str, tree: str) -> AbstractContextManager[None]:
    """Write the figures of a run and its children to the requested loggers too, inside the block.

    Args:
        log_to: Names of the loggers, with commas; None for no logger.
        run_id: MLflow run.
        tree: Name of the run in the loggers' files.
    """
    return OPEN_LOGGERS.of_tree(run_id, tree, opened(parse_loggers(log_to), settings().tracking_root, tree))


@contextmanager
def tracked_run(
    request: TrainRequest, dataset: Dataset, state: StateFolder, *, kind: RunKind = "train"
) -> Iterator[str]:
    """Open the MLflow run of the flow, or that of an interrupted attempt, while the block runs; yield its id.

    The requested loggers get what is written to the run and its children.
    """
    earlier = state.recall("identity", RunIdentity)
    run_id = start_run_tree(
        request,
        dataset,
        flow_run_id=flow_run.get_id(),
        parent_run_id=earlier.parent_run_id if earlier else None,
        kind=kind,
    )
    state.remember("identity", RunIdentity(parent_run_id=run_id))
    write_text(state.directory / JOB_FILE, job_text(request, kind))
    write_json(state.directory / DATA, json.dumps({"folder": dataset.directory.name}))
    tree = f"{model_name_of(dataset.name)}-{request.model}-{run_id[:8]}"
    with logged_to(request.log_to, run_id, tree), closing(run_id, is_resumable=True):
        log_request(run_id, request, kind)
        yield run_id
