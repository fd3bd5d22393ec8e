"""The writes to the registry that there are: they go to the store at once, and fail with it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shunter.secrets import without_secrets
from tracking.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel


class RegistryClient:
    """Writes of models, versions and their aliases; texts pass through `without_secrets`.

    Args:
        mlflow: MLflow's client.

    Attributes:
        mlflow: The same, for reading.
    """

    def __init__(self, mlflow: "MlflowClient") -> None:
        self.mlflow = mlflow

    def create_logged_model(self, run_id: str) -> "LoggedModel":
        """Begin a model of a run."""
        experiment = self.mlflow.get_run(run_id).info.experiment_id
        return self.mlflow.create_logged_model(experiment, name="model", source_run_id=run_id, model_type="recommender")

    def finish_logged_model(
        self, model_id: str, run_id: str, folder: "Path", metrics: Mapping[str, float]
    ) -> "LoggedModel":
        """Give a model its files and figures, and declare it ready.

        Args:
            model_id: Id of the model, as `create_logged_model` gave it.
            run_id: Id of the run that the model came out of.
            folder: Folder in MLflow's format.
            metrics: Figures of the model, under the names of the convention.
        """
        self.mlflow.log_model_artifacts(model_id, str(folder))
        for metric, value in metrics.items():
            self.mlflow.log_metric(run_id, metric, value, model_id=model_id)
        return self.mlflow.finalize_logged_model(model_id, "READY")

    def ensure_registered_model(self, name: str, description: str) -> None:
        """Make a registered model, unless there is one of that name."""
        from mlflow.exceptions import MlflowException

        try:
            self.mlflow.create_registered_model(name, description=without_secrets(description))
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise

    def create_version(self, name: str, model: "LoggedModel", run_id: str, tags: Mapping[str, str]) -> int:
        """Make a logged model a version of a registered one; its number."""
        created = self.mlflow.create_model_version(
            name,
            source=model.artifact_location,
            run_id=run_id,
            tags={key: without_secrets(text) for key, text in tags.items()},
            model_id=model.model_id,
        )
        return int(created.version)

    def describe_version(self, name: str, version: int, text: str) -> None:
        """Let the registry's page of a version show a text."""
        self.mlflow.update_model_version(name, str(version), without_secrets(text))

    def set_version_tag(self, name: str, version: int, key: str, text: str) -> None:
        """Write a tag of a version."""
        self.mlflow.set_model_version_tag(name, str(version), key, without_secrets(text))

    def set_alias(self, name: str, alias: str, version: int) -> None:
        """Put an alias on a version."""
        self.mlflow.set_registered_model_alias(name, alias, str(version))

    def delete_alias(self, name: str, alias: str) -> None:
        """Take an alias away."""
        self.mlflow.delete_registered_model_alias(name, alias)


def open_registry() -> RegistryClient:
    """Client of the registry, which lies in the store of the runs.

    Raises:
        TrackingError: The store cannot be reached or created.
    """
    return RegistryClient(open_store().mlflow)
