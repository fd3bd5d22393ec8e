"""Where a person finds a run in MLflow's pages."""

import json
from urllib.parse import quote

from shunter.settings import Settings
from shunter.tracking.store import open_store, tracking_address, tracking_errors

DEFAULT_PORT = 5000  # of `shunter ui` and `shunter up`, unless another was named
PORTS = "ports"  # file among the services' that names those of the last start
# Without it MLflow opens on pages for language models, where the columns of trainings are missing.
VIEW = "workflowType=machine_learning"


def pages_address() -> str:
    """Address of MLflow's pages: of the server that keeps the runs, or of the one that `shunter ui` starts."""
    link = tracking_address().link
    if link.startswith(("http://", "https://")):
        return link.rstrip("/")
    try:
        port = int(json.loads((Settings().services_directory / PORTS).read_text())["mlflow"])
    except (OSError, ValueError, KeyError, TypeError):
        port = DEFAULT_PORT
    return f"http://127.0.0.1:{port}"


def run_link(run_id: str) -> str:
    """Address of the page of a run.

    Raises:
        TrackingError: The store cannot be read.
    """
    store = open_store()
    with tracking_errors():
        run_id = store.real_id(run_id)
        experiment = store.mlflow.get_run(run_id).info.experiment_id
    return f"{pages_address()}/#/experiments/{quote(experiment)}/runs/{quote(run_id)}?{VIEW}"


def runs_link() -> str:
    """Address of the list of trainings; the first experiment of a store of our own is that of the trainings."""
    return f"{pages_address()}/#/experiments/1/runs?{VIEW}"
