"""Registration and loading of models in MLflow's registry: weights and encoder without pickled objects."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.metadata import requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from shunter.engine.checkpoint.checked_files import MODEL_FILES, read_json
from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking.storage import is_ranker
from shunter.errors import RequestError, TrackingError
from shunter.frozen import Frozen
from shunter.tracking.callbacks import call
from shunter.tracking.convention import SCHEMA_VERSION
from shunter.tracking.outbox import LOCAL, StoreAwayError
from shunter.tracking.patience import PatientCaller
from shunter.tracking.registry.client import RegistryClient, open_registry
from shunter.tracking.registry.signing import (
    DATA,
    LOADER_MODULE,
    MODEL_COPY,
    check_model_folder,
    checked_copy,
    copy_beside,
    sign_folder,
)
from shunter.tracking.registry.versions import CHAMPION, make_champion, only_model
from shunter.tracking.runs import Run, open_run
from shunter.tracking.store import open_store, tracking_errors, tracking_uri
from shunter.validation import parse_bytes

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature
    from mlflow.pyfunc import PyFuncModel


DATA_NAME = "data.name"  # tag of a version: name of its data set
FAMILIES = "model.families"  # tag of a run: model families in the version that it registered
NOT_PROMOTED = "model.not_promoted"  # tag of a version and of its run: reason why the version is not the champion


class RegisteredModel(Frozen):
    """Registered version of a model.

    Attributes:
        name: Name of the registered model.
        version: Number of the version, counted by MLflow from 1.
        uri: Address for `mlflow.pyfunc.load_model`.
        not_promoted: Reason why the version did not become the champion, in one sentence; None for a champion.
    """

    name: str
    version: int
    uri: str
    not_promoted: str | None = None


def register_model(
    parent_run_id: str,
    dataset: Dataset,
    model_directory: Path,
    name: str,
    *,
    metrics: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
    example: pd.DataFrame | None = None,
    not_promoted: str | None = None,
) -> RegisteredModel:
    """Register a model and make the new version the champion unless `not_promoted` is given.

    A run registers once: if the run has a version already, that version is returned. Calls to a failing or unreachable
    store are retried with growing delays and create nothing twice. A queued parent run is delivered first. The caller
    registers only models that meet the user's limits.

    Args:
        parent_run_id: Id of the run that produced the model.
        dataset: Training data set, whose encoder is registered with the model.
        model_directory: Folder from `shunter.engine.checkpoint.storage.save_model`, or from
            `shunter.engine.ranking.storage.save_ranker`.
        name: Name of the registered model.
        metrics: Metrics of the version, with the names of the convention.
        tags: Tags of the version.
        example: A few raw rows, stored as the model's input example.
        not_promoted: Reason why the version must not become the champion, in one sentence; None to promote the version.

    Raises:
        RequestError: MLflow does not accept the name.
        TrackingError: The store fails; the same training job, started again, resumes here.
        CallbackError: The version is registered, and a callback failed.
    """
    if not name.strip() or any(character in name for character in "/:"):
        raise RequestError(f"{name!r} is not a valid name of a registered model: use a name without `/` and `:`.")
    run, patiently = open_run(parent_run_id), PatientCaller("the model")
    registry = RegistryClient(run.client.mlflow)
    with tracking_errors():
        run_id = patiently(lambda: _id_in_store(run))
        registered = patiently(lambda: registry.version_of_run(name, run_id))
        if registered is None:
            logged = patiently(lambda: registry.logged_model(run_id, name))
            if logged.status != "READY":
                with _written(logged, run_id, dataset, model_directory, example) as folder:
                    for file, inside in _files(folder):
                        patiently(partial(registry.upload, logged.model_id, file, inside))
                patiently(lambda: registry.log_model_metrics(logged, run_id, metrics))
                patiently(lambda: registry.mlflow.finalize_logged_model(logged.model_id, "READY"))
            patiently(lambda: registry.ensure_registered_model(name, "Scores raw rows; trained by Shunter."))
            own_tags = {"schema.version": SCHEMA_VERSION, DATA_NAME: dataset.name}
            if not_promoted is not None:
                own_tags[NOT_PROMOTED] = not_promoted
            every_tag = {**own_tags, **(tags or {})}
            registered = patiently(lambda: registry.create_version(name, logged, run_id, every_tag))
        if not_promoted is None:
            patiently(lambda: make_champion(registry, name, registered))
    told = {NOT_PROMOTED: not_promoted} if not_promoted else {}
    run.set_tags({"model.registered": f"{name}/{registered}", FAMILIES: families_in(model_directory), **told})
    uri = f"models:/{name}/{registered}"
    model = RegisteredModel(name=name, version=registered, uri=uri, not_promoted=not_promoted)
    call("on_registered", model)
    return model


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


def load_champion(
    name: str | None = None, memory: str | None = None, *, max_unknown: float | None = None
) -> "PyFuncModel":
    """Load the champion from the tracking store; `.predict(frame)` scores raw rows.

    Args:
        name: Name of the registered model; None for the only one.
        memory: Memory limit of the embedding tables, such as `256MiB`; the rest of larger tables stays in the file of
            the weights, with bit-identical scores. None sets the free memory as limit.
        max_unknown: Largest share of a column's values, 0 to 1, that may be unknown or unreadable: beyond it `.predict`
            raises `UnusableValuesError`, as `shunter predict --max-unknown` does. None for any share; then a warning
            names the shares.

    Raises:
        SeveralModelsError: There are several registered models, and no name is given.
        RequestError: The memory is not a valid size or too small, or the model does not support tables in its file.
        TrackingError: The model does not exist, could run foreign code or does not match its signature, or the store
            fails.
    """
    import mlflow.pyfunc
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    from shunter.tracking.registry.serving import tables_within

    try:
        memory_bytes = None if memory is None else parse_bytes(memory)
    except ValueError as error:
        raise RequestError(f"The memory {error}.") from None
    name, client = name or only_model(), open_store().mlflow
    try:
        champion = client.get_model_version_by_alias(name, CHAMPION)
    except MlflowException as error:
        raise TrackingError(
            f"No registered model {name!r} has a champion in the tracking store: train and register a model first."
        ) from error
    with tracking_errors():
        source = client.get_model_version_download_uri(name, champion.version)
        folder = download_artifacts(artifact_uri=source, tracking_uri=tracking_uri())
    check_model_folder(Path(folder), name)
    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as temporary, tracking_errors():
        copy = Path(temporary, "model")  # a private copy cannot change between the check and MLflow's loading
        checked_copy(Path(folder, DATA), copy / DATA, name)
        copy_beside(Path(folder), copy)
        check_model_folder(copy, name)
        with tables_within(memory_bytes):
            model = mlflow.pyfunc.load_model(str(copy))
    model.get_raw_model().max_unknown = max_unknown
    return model


def families_in(model_directory: Path) -> str:
    """Return the families of the models in a folder, such as `dlrm+fm`, without members of weight 0."""
    described = read_json(model_directory / "model.json")
    specs = described.get("members") or [described["spec"]]
    weights = described.get("ensemble_weights") or [1.0] * len(specs)
    used = [spec["family"] for spec, weight in zip(specs, weights, strict=True) if np.any(weight)]
    return "+".join(dict.fromkeys(used))


def _id_in_store(run: Run) -> str:
    """Return the store's id of a run; a run queued in the outbox is delivered first."""
    if run.client.real_id(run.run_id).startswith(LOCAL):
        run.client.deliver()
    found = run.client.real_id(run.run_id)
    if found.startswith(LOCAL):
        raise StoreAwayError("the run is not delivered yet")
    return found


@contextmanager
def _written(
    logged: "LoggedModel", run_id: str, dataset: Dataset, model_directory: Path, example: pd.DataFrame | None
) -> Iterator[Path]:
    """Write the signed model to a temporary folder in MLflow's format, which exists during the block."""
    import mlflow.pyfunc
    from mlflow.models import Model

    with tempfile.TemporaryDirectory(prefix=MODEL_COPY) as folder:
        data, model = Path(folder, "recommender"), Path(folder, "model")
        shutil.copytree(
            model_directory,
            data / "model",
            ignore=lambda _, names: [name for name in names if name not in MODEL_FILES],  # the rest are checkpoints
        )
        shutil.copytree(dataset.directory / "encoder", data / "encoder")
        sign_folder(data)
        # Shunter's requirements with the installed versions, since Shunter's own code loads the model.
        lines = [line for line in requires("shunter") or [] if "extra ==" not in line]
        names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines]
        with _requirements_met():
            mlflow.pyfunc.save_model(
                model,
                loader_module=LOADER_MODULE,
                data_path=str(data),
                pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in names],
                signature=raw_signature(dataset, "score" if is_ranker(model_directory) else None),
                input_example=example,  # pyright: ignore[reportArgumentType] - None is MLflow's own default
                metadata={"shunter_version": version("shunter")},
                mlflow_model=Model(
                    run_id=run_id, model_id=logged.model_id, artifact_path=logged.artifact_location, name="model"
                ),
            )
        yield model


def _files(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Yield each file below `folder` with the path of its subfolder; None for a file in `folder` itself."""
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        inside = file.parent.relative_to(folder).as_posix()
        yield file, None if inside == "." else inside


def raw_signature(dataset: Dataset, output: str | None = None) -> "ModelSignature":
    """Return MLflow's signature: the source's columns as input, and one number, or one number per task, as output.

    The number is named `output`; if that is None, the name is that of the prediction of the data set's label.

    Columns have any type: the encoder accepts numbers and texts, while MLflow would refuse, for instance, integers in a
    float column. All columns are optional in the signature, since the encoder reports missing columns by name.
    """
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, Schema, TensorSpec

    weights = (field.weights for field in dataset.features.categorical if field.weights is not None)
    columns = dict.fromkeys([*(field.name for field in dataset.fields), *weights, *dataset.derived_from])
    inputs: list[ColSpec | TensorSpec] = [ColSpec(AnyType(), name, required=False) for name in columns]
    named = output or dataset.features.score_name
    outputs: list[ColSpec | TensorSpec] = [ColSpec("double", name) for name in dataset.features.tasks or (named,)]
    return ModelSignature(Schema(inputs), Schema(outputs))


@contextmanager
def _requirements_met() -> Iterator[None]:
    """Skip MLflow's check of the requirements, which are met since they list the installed versions.

    For this check MLflow 3.17 reads the file lists of all installed packages, which takes half a second.
    """
    from mlflow.utils import environment

    module: Any = environment
    warn = module.warn_dependency_requirement_mismatches
    module.warn_dependency_requirement_mismatches = lambda model_requirements: None
    try:
        yield
    finally:
        module.warn_dependency_requirement_mismatches = warn
