"""A home of its own for what is computed, in tests and in recording alike."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from mlflow import MlflowClient

from shunter.settings import Settings

VARIABLES = ("SHUNTER_TRACKING_DIRECTORY", "MLFLOW_TRACKING_URI")
DATABASE = "mlflow.db"


@contextmanager
def at_home(home: Path) -> Iterator[Path]:
    """Let the block find data, profiles, runs and the tracking store below `home`, and nothing of the user's.

    There is an empty store from the beginning, for making its tables takes seconds.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(home))
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        for name in VARIABLES:
            patch.delenv(name, raising=False)
        root = Settings().tracking_root
        if not (root / DATABASE).exists():
            root.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(_folder_of_empty_store().name) / DATABASE, root / DATABASE)
        yield home


@cache
def _folder_of_empty_store() -> "tempfile.TemporaryDirectory[str]":
    """MLflow's tables, made once; the folder goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="shunter-store-")
    MlflowClient(f"sqlite:///{Path(folder.name) / DATABASE}")
    return folder
