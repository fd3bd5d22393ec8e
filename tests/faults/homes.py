"""A home with a file of each kind, written as the product writes it."""

import json
import shutil
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import torch

from shunter.checked_json import seal, write_checked
from shunter.engine.checkpoint.checked_files import write_json
from shunter.engine.checkpoint.storage import save_model, write_tensors
from shunter.engine.data.arrays import write_result
from shunter.engine.data.dataset import Dataset
from shunter.engine.profiling.profiles import ProfileKey, write_profiles
from shunter.flows.python.frames import store_frame
from shunter.hardware.devices import power_limit
from shunter.ingestion.cache import ingest_source
from shunter.ingestion.sources.guard import open_to_deployments
from shunter.ingestion.sources.open import open_source
from shunter.models.registry import build_model, model_spec
from shunter.retraining.figures import DayFigures
from shunter.settings import Settings
from shunter.tracking.outbox import Outbox
from shunter.tracking.registry.signing import sign_folder

SCHEMA = "label: click\nnumeric: [price]\ncategorical: [user]\n"
RUN = "0123456789abcdef"


def write_home(prefect: Path) -> None:
    """Fill the home of the settings.

    Args:
        prefect: An empty database of Prefect's.
    """
    settings = Settings()
    home = settings.home
    dataset = _ingested(home)
    write_profiles(settings.profile_directory / "machine.json", ProfileKey.of("machine"), [])
    write_checked(settings.traces_directory / "trace.json", json.dumps({"operators": []}))
    write_checked(settings.operators_directory / "machine.json", json.dumps({"matmul": 0.5}))
    settings.executed_plans.parent.mkdir(parents=True)
    settings.executed_plans.write_text("".join(f"{seal(json.dumps({'key': key}))}\n" for key in ("a", "longer")))
    store_frame(pl.DataFrame({"click": [0, 1]}))
    open_to_deployments([home / "data"])
    write_checked(settings.services_directory / "ports", json.dumps({"prefect": 4200, "mlflow": 5000}))
    write_checked(settings.locks / "cpu-0.json", json.dumps({"name": "a", "pid": 1}))
    power_limit._write(power_limit.default_record(), {"gpu": {"watts": 300.0, "pid": 1, "mark": "gone"}})
    figures = DayFigures(day=date(2026, 1, 2), rows=3, rejected=0, positives=1, fields={})
    write_json_in(settings.nights_directory / "shop" / "days" / "day.json", figures.model_dump_json())
    Outbox("http://store").append({"call": "log_batch", "run_id": "r"})
    _interrupted_run(settings.runs_directory / RUN, dataset)
    _registered_model(settings.tracking_root / "artifacts" / "models" / "m-1" / "artifacts", dataset)
    (home / "prefect").mkdir(exist_ok=True)
    shutil.copyfile(prefect, home / "prefect" / "prefect.db")


def write_json_in(path: Path, text: str) -> None:
    """Write a checked JSON file in a folder that may be missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, text)


def _ingested(home: Path) -> Dataset:
    rows = range(2_000)
    frame = pl.DataFrame(
        {
            "click": [int(row % 3 == 0) for row in rows],
            "price": [row / 4 for row in rows],
            "user": [f"u{row % 50}" for row in rows],
        }
    )
    home.mkdir(parents=True, exist_ok=True)
    (home / "data").mkdir()
    frame.write_parquet(home / "data" / "log.parquet")
    (home / "data" / "schema.yaml").write_text(SCHEMA)
    source = open_source(str(home / "data" / "log.parquet"), None, str(home / "data" / "schema.yaml"), home)
    return ingest_source(source, Settings().cache_directory, 0, 0.01)[0]


def _interrupted_run(folder: Path, dataset: Dataset) -> None:
    member = folder / "members" / "member-0"
    member.mkdir(parents=True)
    write_json(folder / "decision.json", json.dumps({"placement": "cpu"}))
    write_json(folder / "dataset", json.dumps({"folder": dataset.directory.name}))
    save_model(build_model(model_spec(embedding_dim=4), dataset.features, seed=0).eval(), member)
    write_json(member / "trained.json", json.dumps({"name": "member-0"}))
    write_result(member / "test-0.npy", np.arange(50, dtype=np.float32))
    (folder / "trial").mkdir()
    name = "state-000001.safetensors"
    state = {"name": name, "sha256": write_tensors(folder / "trial" / name, {"a": torch.arange(30)})}
    write_json(folder / "trial" / "generation-000001.json", json.dumps({"tensors": state, "best": None}))


def _registered_model(artifacts: Path, dataset: Dataset) -> None:
    data = artifacts / "data" / "recommender"
    (data / "model").mkdir(parents=True)
    save_model(build_model(model_spec(embedding_dim=4), dataset.features, seed=1).eval(), data / "model")
    shutil.copytree(dataset.directory / "encoder", data / "encoder")
    sign_folder(data)
