"""Where a person finds a run in MLflow's pages."""

from urllib.parse import quote

from shunter.checked_json import json_object, read_or_quarantine
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
    path = Settings().services_directory / PORTS
    port = read_or_quarantine(path, lambda text: int(json_object(text)["mlflow"]))
    return f"http://127.0.0.1:{port or DEFAULT_PORT}"


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
