"""What a model card needs of MLflow: texts as artifacts, a link to one of them, and the description of a version."""

from collections.abc import Mapping

from shunter.tracking.patience import PatientCaller
from shunter.tracking.registry.client import open_registry
from shunter.tracking.registry.models import RegisteredModel
from shunter.tracking.runs import open_run
from shunter.tracking.store import open_store, tracking_errors


def log_texts(run_id: str, files: Mapping[str, str]) -> None:
    """Keep texts as artifacts, by their paths within the run; one that is there is replaced.

    Raises:
        TrackingError: the store fails.
    """
    run = open_run(run_id)
    with tracking_errors():
        for path, text in files.items():
            run.client.log_text(run_id, text, path)


def artifact_link(run_id: str, path: str) -> str:
    """Where MLflow's UI shows an artifact, from any of its own pages; a store that fails is asked again.

    Raises:
        TrackingError: the store cannot be read.
    """
    client = open_store()
    real = client.real_id(run_id)
    with tracking_errors():
        run = PatientCaller("a question")(lambda: client.mlflow.get_run(real))
    return f"#/experiments/{run.info.experiment_id}/runs/{real}/artifacts/{path}"


def describe_model(model: RegisteredModel, markdown: str) -> None:
    """Let the registry's page of a version show a text; a store that fails is asked again.

    Raises:
        TrackingError: the store cannot be written, or holds no such version.
    """
    registry = open_registry()
    with tracking_errors():
        PatientCaller("the description of the model")(
            lambda: registry.describe_version(model.name, model.version, markdown)
        )
