"""What every test shares: a home of its own, and one Prefect server for the tests that run flows."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.settings import PROJECT_ROOT, Settings

SHARED_DATA = PROJECT_ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def shunter_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home inside the test's own folder, so that no test sees the user's cache, profiles or runs."""
    home = tmp_path / "home"
    monkeypatch.setenv("SHUNTER_HOME", str(home))
    monkeypatch.delenv("SHUNTER_TRACKING_DIRECTORY", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return home


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the research-only data sets; tests that need it are skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"the research data sets are not at {SHARED_DATA}")
    return SHARED_DATA


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A real Prefect server with a database of its own, started once for the tests that run flows."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
    patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    patch.setenv("DO_NOT_TRACK", "1")
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield
    patch.undo()


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
