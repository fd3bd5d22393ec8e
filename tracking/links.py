"""Links to runs in MLflow's web pages."""

import sqlite3
from contextlib import closing, suppress
from urllib.parse import quote

from shunter.checked_json import json_object, read_or_quarantine
from shunter.errors import TrackingError
from shunter.markdown import plain
from shunter.settings import Settings
from shunter.tracking.store import EXPERIMENTS, open_store, store_file, tracking_address, tracking_errors

DEFAULT_PORT = 5000  # default port of `shunter ui` and `shunter up`
PORTS = "ports"  # file in the services folder with the ports of the last start
# Without this parameter MLflow shows pages for language models, which lack the columns of training runs.
VIEW = "workflowType=machine_learning"


def pages_address() -> str:
    """Return the address of MLflow's pages on the tracking server, or on the server that `shunter ui` starts."""
    link = tracking_address().link
    if link.startswith(("http://", "https://")):
        return link.rstrip("/")
    path = Settings().services_directory / PORTS
    port = read_or_quarantine(path, lambda text: int(json_object(text)["mlflow"]))
    return f"http://127.0.0.1:{port or DEFAULT_PORT}"


def run_link(run_id: str) -> str:
    """Return the address of the page of a run.

    Raises:
        TrackingError: The store cannot be read.
    """
    return f"{_run_page(run_id)}?{VIEW}"


def log_description(run_id: str, decision: str) -> None:
    """Write the description that MLflow shows above a run: the decision, and a link to the report page."""
    text = plain(decision)
    with suppress(TrackingError):  # without a store no address is known yet
        text = f"{text}\n\n[Report]({_run_page(run_id)}/artifacts/report.html?{VIEW})"
    store = open_store()
    with tracking_errors():
        store.set_tags(run_id, {"mlflow.note.content": text})


def runs_table_links() -> dict[str, str]:
    """Return the addresses of MLflow's tables of runs by experiment; empty for a store on a server.

    An experiment has a table after its first run.
    """
    file = store_file()
    if file is None or not file.exists():
        return {}
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as tables:
        ids = dict(tables.execute("SELECT name, experiment_id FROM experiments").fetchall())
        page = f"{pages_address()}/#/experiments"
        return {name: f"{page}/{ids[name]}/runs?{VIEW}" for name in EXPERIMENTS if name in ids}
    return {}


def _run_page(run_id: str) -> str:
    store = open_store()
    with tracking_errors():
        run_id = store.real_id(run_id)
        experiment = store.mlflow.get_run(run_id).info.experiment_id
    return f"{pages_address()}/#/experiments/{quote(experiment)}/runs/{quote(run_id)}"
