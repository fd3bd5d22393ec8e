"""Storage of the model card in MLflow: artifacts, links to artifacts, and the description of a version."""

from collections.abc import Mapping

from shunter.tracking.patience import PatientCaller
from shunter.tracking.registry.client import open_registry
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.runs import open_run
from shunter.tracking.store import open_store, tracking_errors


def log_texts(run_id: str, files: Mapping[str, str]) -> None:
    """Write texts as artifacts by their paths within the run; existing artifacts are replaced.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        for path, text in files.items():
            run.client.log_text(run_id, text, path)


def artifact_link(run_id: str, path: str) -> str:
    """Return the link to an artifact relative to any page of MLflow's UI; the read is retried if the store fails.

    Raises:
        TrackingError: the store cannot be read.
    """
    client = open_store()
    real = client.real_id(run_id)
    with tracking_errors():
        run = PatientCaller("the lookup of the run")(lambda: client.mlflow.get_run(real))
    return f"#/experiments/{run.info.experiment_id}/runs/{real}/artifacts/{path}"


def describe_model(model: RegisteredModel, markdown: str) -> None:
    """Set the description of a version on its registry page; the write is retried if the store fails.

    Raises:
        TrackingError: The store cannot be written, or the version does not exist.
    """
    registry = open_registry()
    with tracking_errors():
        PatientCaller("the description of the model")(
            lambda: registry.describe_version(model.name, model.version, markdown)
        )
