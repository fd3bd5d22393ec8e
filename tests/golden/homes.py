"""A home of its own for what is computed, in tests and in recording alike."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from mlflow import MlflowClient

from shunter.hardware.types import HardwareProfile
from shunter.settings import Settings
from tests.engine.profiling.short_profiles import keep_profiles, measure_shortly

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


@contextmanager
def reproducible() -> Iterator[None]:
    """Leave the block, in its present home, one placement for each batch size: one core and full precision.

    Otherwise measurements would decide on the number of threads and on the precision, and these on the bits.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        keep_profiles(_profiles())
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@cache
def _profiles() -> list[HardwareProfile]:
    return [
        profile.model_copy(update={"matmul_flops_per_second": {"fp32": profile.matmul_flops_per_second["fp32"]}})
        for profile in measure_shortly()
    ]


@cache
def _folder_of_empty_store() -> "tempfile.TemporaryDirectory[str]":
    """MLflow's tables, made once; the folder goes with the process."""
    folder = tempfile.TemporaryDirectory(prefix="shunter-store-")
    MlflowClient(f"sqlite:///{Path(folder.name) / DATABASE}")
    return folder
