"""A tracking store of its own for each test that asks, without the seconds that creating its tables takes."""

import shutil
from pathlib import Path

import pytest

from shunter.settings import Settings


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}")
    return path


@pytest.fixture
def tracking_root(shunter_home: Path, empty_database: Path) -> Path:
    """Folder of a real store in the test's own home."""
    root = Settings().tracking_root
    root.mkdir(parents=True)
    shutil.copy(empty_database, root / "mlflow.db")
    return root
