"""A registry with two versions of a model over numbers, ids and bags, whose champion is served."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from shunter.engine.checkpoint.storage import save_model
from shunter.ingestion.request import ingest_request
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.serving.request import ServeRequest
from shunter.serving.server import ScoreServer
from shunter.tracking.registry.models import register_model
from shunter.tracking.registry.versions import roll_back
from shunter.tracking.runs import start_run_tree

ROWS = 300
SCHEMA = {
    "label": "click",
    "numeric": ["price", "age"],
    "categorical": ["user", "item"],
    "multi_valued": [{"column": "genres", "separator": "|"}],
    "vocabulary": {"min_count": 1},
}
Serving = Callable[..., AbstractContextManager[ScoreServer]]


@pytest.fixture(scope="session")
def rows() -> pd.DataFrame:
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "click": random.integers(0, 2, ROWS),
            "price": np.where(random.random(ROWS) < 0.1, np.nan, random.gamma(2.0, 10.0, ROWS)),
            "age": random.integers(0, 90, ROWS),
            "user": [f"{number:03}" for number in random.integers(0, 20, ROWS)],  # "007" and "7" are two users
            "item": random.integers(0, 15, ROWS) + 2**60,
            "genres": [
                "|".join(random.choice(["war", "love", "crime"], random.integers(0, 3), False)) for _ in "r" * ROWS
            ],
        }
    )


@pytest.fixture(scope="session")
def kept_home(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    return home_of_two_versions(tmp_path_factory.mktemp("served"), rows, empty_database, "shop", embedding_dim=4)


def home_of_two_versions(
    folder: Path, rows: pd.DataFrame, empty_database: Path, name: str, *, embedding_dim: int
) -> Path:
    """A home in whose registry two versions of a model lie, the second the champion."""
    rows.to_parquet(folder / "log.parquet")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    with pytest.MonkeyPatch.context() as patch:
        (folder / "home" / "mlflow").mkdir(parents=True)
        shutil.copy(empty_database, folder / "home" / "mlflow" / "mlflow.db")
        patch.setenv("SHUNTER_HOME", str(folder / "home"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.delenv("SHUNTER_TRACKING_DIRECTORY", raising=False)
        request = TrainRequest(data=str(folder / "log.parquet"), schema_file=str(folder / "schema.json"))
        dataset, _ = ingest_request(request)
        for seed in (1, 2):
            spec = model_spec(embedding_dim=embedding_dim, bottom_widths=(8,), top_widths=(16, 8))
            save_model(build_model(spec, dataset.features, seed=seed).eval(), folder / f"model-{seed}")
            register_model(start_run_tree(request, dataset), dataset, folder / f"model-{seed}", name, metrics={})
    return folder / "home"


@pytest.fixture
def home(kept_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The home of the models, with version 2 the champion, before and after."""
    monkeypatch.setenv("SHUNTER_HOME", str(kept_home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("SHUNTER_TRACKING_DIRECTORY", raising=False)
    yield kept_home
    from shunter.tracking.registry.versions import champion_of

    champion = champion_of("shop")
    assert champion is not None
    if champion.version != 2:
        roll_back("shop", 2)


@pytest.fixture
def serving(home: Path) -> Serving:
    """Serves a model of the home, as `running` does."""
    return running


@contextmanager
def running(model: str = "shop", token: str | None = None, **options: Any) -> Iterator[ScoreServer]:
    """Serves a model on a port of its own, in a thread, for the length of a block."""
    request = ServeRequest(model=model, port=0, **options)
    server = ScoreServer(request, "127.0.0.1", {"127.0.0.1", "localhost"}, token)
    ready = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            server.run(ready.set)
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        if failed:
            raise failed[0]
        yield server
    finally:
        server.stop()
        thread.join()
