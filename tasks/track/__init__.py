"""Step `track`: every figure of every run goes to MLflow under one convention, and the winner into its registry."""

from collections.abc import Mapping
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE

from engine.dataset import Dataset
from tasks.faults import retried
from tasks.track.card import artifact_link, describe_model, log_texts
from tasks.track.convention import (
    SCHEMA_VERSION,
    RunKind,
    data_params,
    energy_metrics,
    energy_tags,
    epoch_metrics,
    model_params,
    placement_params,
    quality_metrics,
    request_params,
    schedule_params,
    training_metrics,
    workload_params,
)
from tasks.track.find import find_run
from tasks.track.history import TrackedRun, list_runs, read_children, read_runs
from tasks.track.learning import log_steps, read_steps, step_tags
from tasks.track.profiles import log_pictures, log_profiles, log_stalls
from tasks.track.ranking import graph_params, ranking_epoch_metrics, ranking_metrics
from tasks.track.registry import RegisteredModel, load_champion, register_model
from tasks.track.reports import log_config, log_decision, log_files, log_training_curve
from tasks.track.runs import Run, child_run, closing, finish, open_run, start_run, start_run_tree, system_metrics
from tasks.track.serving import Scorer
from tasks.track.store import artifact_root, deliver, tracking_uri, undelivered
from tasks.track.tree import RunTree, read_artifact, read_tree
from tasks.track.versions import (
    ModelFiles,
    Version,
    champion_of,
    download,
    roll_back,
    tag_version,
    version_by_number,
    version_of_run,
)

__all__ = [
    "SCHEMA_VERSION",
    "ModelFiles",
    "RegisteredModel",
    "Run",
    "RunKind",
    "RunTree",
    "Scorer",
    "TrackedRun",
    "Version",
    "artifact_link",
    "artifact_root",
    "champion_of",
    "child_run",
    "closing",
    "data_params",
    "deliver",
    "describe_model",
    "download",
    "energy_metrics",
    "energy_tags",
    "epoch_metrics",
    "find_run",
    "finish",
    "graph_params",
    "list_runs",
    "load_champion",
    "log_config",
    "log_decision",
    "log_files",
    "log_pictures",
    "log_profiles",
    "log_stalls",
    "log_steps",
    "log_texts",
    "log_training_curve",
    "model_params",
    "open_run",
    "placement_params",
    "quality_metrics",
    "ranking_epoch_metrics",
    "ranking_metrics",
    "read_artifact",
    "read_children",
    "read_runs",
    "read_steps",
    "read_tree",
    "register",
    "register_model",
    "request_params",
    "roll_back",
    "schedule_params",
    "start_run",
    "start_run_tree",
    "step_tags",
    "system_metrics",
    "tag_version",
    "tracking_uri",
    "training_metrics",
    "undelivered",
    "version_by_number",
    "version_of_run",
    "workload_params",
]


REGISTER_SECONDS = 1800  # after which a store that does not answer fails the step


@task(name="register", cache_policy=NO_CACHE, timeout_seconds=REGISTER_SECONDS, **retried())
def register(
    parent_run_id: str,
    dataset: Dataset,
    model_directory: Path,
    name: str,
    *,
    metrics: Mapping[str, float],
    tags: Mapping[str, str] | None = None,
) -> RegisteredModel:
    """Register the model as the new champion; a run that already registered gets its version back."""
    return register_model(parent_run_id, dataset, model_directory, name, metrics=metrics, tags=tags)
