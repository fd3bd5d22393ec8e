"""The examples run, one after another in one home, as a reader would start them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shunter.settings import PROJECT_ROOT

EXAMPLES = PROJECT_ROOT / "examples"
SECONDS = 900  # with a script that hangs
Run = Callable[..., str]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(furnish: Callable[[Path], Path], movielens_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home for all examples, which knows this machine and has MovieLens."""
    home = furnish(tmp_path_factory.mktemp("home"))
    (home / "downloads").mkdir()
    (home / "downloads" / movielens_wheel.name).symlink_to(movielens_wheel)
    return home


@pytest.fixture
def run(home: Path, prefect_server: str, tmp_path: Path) -> Run:
    """Runs Python with arguments in an empty folder and returns what it printed."""

    def run(*arguments: str | Path, **variables: str) -> str:
        environment = {**os.environ, "SHUNTER_HOME": str(home), "PREFECT_API_URL": prefect_server, **variables}
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    return run


@pytest.mark.long  # the other examples train on less data
def test_first_training(run: Run) -> None:
    run(EXAMPLES / "first_training.py")


def test_own_csv_and_serving(run: Run) -> None:
    run(EXAMPLES / "own_csv.py")
    scores = [float(line.split(": ")[1]) for line in run(EXAMPLES / "serving.py", "shop").splitlines()]
    assert len(scores) == 3
    assert all(0 < score < 1 for score in scores)


def test_plugin_loss(run: Run, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "plugin", tmp_path / "source")
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", tmp_path / "site")
    run(*install, tmp_path / "source")
    assert "focal" in run(EXAMPLES / "plugin_loss.py", PYTHONPATH=str(tmp_path / "site"))


@pytest.mark.long
def test_nightly_by_a_server_of_its_own(run: Run) -> None:
    assert len(run(EXAMPLES / "nightly.py", PREFECT_API_URL="").splitlines()) == 2


@pytest.mark.parametrize("name", ["search_report", "compare_runs"])
def test_notebooks(run: Run, name: str) -> None:
    cells = json.loads((EXAMPLES / f"{name}.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    run("-c", code, PYTHONPATH=str(EXAMPLES), MPLBACKEND="agg")
