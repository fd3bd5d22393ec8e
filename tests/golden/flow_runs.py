"""A whole training as `shunter train` does it, and the names under which MLflow has it."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from shunter.engine.data.dataset import Dataset
from shunter.engine.probes.measurement import Measurement
from shunter.flows.train import train
from shunter.hardware.types import Placement
from shunter.models.spec import ModelSpec
from shunter.requests import Limits, TrainRequest
from tests.golden.homes import at_home, reproducible

FILE = "mlflow_names.json"
REQUEST = TrainRequest(
    data="synthetic:3000", trials=3, max_epochs=2, ensemble_size=4, fixed_threads=True, batch_sizes="64"
)
# After it: a larger batch is expected to save most of the time, and misses a quality that the smaller one reaches.
EXPLORING = REQUEST.model_copy(
    update={
        **{"batch_sizes": "64,512", "explore": "free", "limits": Limits(min_auc=0.63)},
        **{"trials": 1, "ensemble_size": 1, "baselines": "none"},
    }
)
MOST_CHILDREN = 100
# What is there or not by the batch size that was fastest, by the setting that was best, and by who is in the ensemble.
UNSURE = (
    *("learning.steps", "model.not_promoted"),
    *("model.cosine_epochs", "model.embedding_initial_bound", "model.learning_rate_schedule"),
)
OF_MEMBERS = re.compile(r"model_card/architecture-\w+\.svg")


def run_flow(home: Path, request: TrainRequest = REQUEST) -> tuple[MlflowClient, str]:
    """Train; needs a server of Prefect.

    Returns:
        The store, and the run of the flow.
    """
    with at_home(home), reproducible(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("shunter.flows.train.measure", _measured)
        summary = train(request)
    return MlflowClient(summary.tracking_uri), summary.run_id


def _measured(dataset: Dataset, spec: ModelSpec, placement: Placement, steps: int) -> Measurement:
    """Stand in for a measurement: what a step takes decides whether a larger batch is worth an exploration."""
    seconds = 1e-3 + 2e-6 * placement.batch_size
    return Measurement(steps=steps, step_seconds=seconds, memory_bytes=10**9, mean_watts=3.0, watts_measured=False)


def children_of(client: MlflowClient, run_id: str) -> list[Run]:
    """The runs below a run, the oldest first."""
    experiment = client.get_run(run_id).info.experiment_id
    below = f"tags.mlflow.parentRunId = '{run_id}'"
    return list(client.search_runs([experiment], below, max_results=MOST_CHILDREN, order_by=["start_time ASC"]))


def names(client: MlflowClient, run_id: str) -> dict[str, Any]:
    """Names of params, metrics, tags and artifacts of the run of the flow, and together of each kind below it."""
    parent = client.get_run(run_id)
    kinds: dict[str, list[Run]] = {"train": [parent]}
    for child in children_of(client, run_id):
        kinds.setdefault(child.data.tags["run.kind"], []).append(child)
    return {
        "energy_source": parent.data.tags["energy.source"],
        "ensemble_kept": parent.data.tags["ensemble.kept"],
        "experiment": client.get_experiment(parent.info.experiment_id).name,
        "registered": parent.data.tags["model.registered"],
        "kinds": {kind: _names_of(client, runs) for kind, runs in sorted(kinds.items())},
    }


def _names_of(client: MlflowClient, runs: list[Run]) -> dict[str, list[str]]:
    return {
        "run_names": _normalised(run.info.run_name or "" for run in runs),
        "params": _normalised(name for run in runs for name in run.data.params),
        "metrics": _normalised(name for run in runs for name in run.data.metrics if not name.startswith("system/")),
        "tags": _normalised(name for run in runs for name in run.data.tags if not name.startswith("mlflow.")),
        "artifacts": _normalised(path for run in runs for path in _artifacts(client, run.info.run_id)),
    }


def _normalised(found: Iterable[str]) -> list[str]:
    """Each once, with one letter for all members and trials, without families, quality and date in a run's name."""
    plain = (re.sub(r"^[\d.]+ (AUC|NDCG@20) [\w+]+ on (.*) [\d-]+ [\d:]+$", r"\2", name) for name in found)
    return sorted({re.sub(r"\b(member|trial)-\d+", r"\1-N", name) for name in plain})


def _artifacts(client: MlflowClient, run_id: str, folder: str | None = None) -> Iterator[str]:
    for one in client.list_artifacts(run_id, folder):
        if one.is_dir:
            yield from _artifacts(client, run_id, one.path)
        else:
            yield one.path


def comparable(found: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What two trainings have in common: without energy where only one could measure it, and so on."""
    left_out = ["training.compilation", *UNSURE]
    if found["energy_source"] != other["energy_source"]:
        left_out += ["energy.", "joules"]
    kinds = {
        kind: {
            what: [name for name in values if not any(one in name for one in left_out) and not OF_MEMBERS.match(name)]
            for what, values in of.items()
        }
        for kind, of in found["kinds"].items()
        if kind != "ensemble" or found["ensemble_kept"] == other["ensemble_kept"]
    }
    return {"experiment": found["experiment"], "registered": found["registered"], "kinds": kinds}
