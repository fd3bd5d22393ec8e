"""The examples run, one after another in one home, as a reader would start them."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shunter
from shunter.requests import TrainRequest
from shunter.settings import PROJECT_ROOT

EXAMPLES = PROJECT_ROOT / "examples"
SOURCES = sorted((*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.ipynb")))
SECONDS = 900  # with a script that hangs
Run = Callable[..., str]


def code_of(example: Path) -> str:
    """Return the Python of a script or of a notebook."""
    if example.suffix == ".py":
        return example.read_text()
    cells = json.loads(example.read_text())["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def calls_of(code: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each function of `shunter` that is called, with its keywords."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("shunter."):
            yield ast.unparse(node.func).split(".")[1], {one.arg for one in node.keywords if one.arg}


@pytest.mark.parametrize("example", SOURCES, ids=lambda path: path.name)
def test_an_example_calls_functions_and_options_that_there_are(example: Path) -> None:
    for function, keywords in calls_of(code_of(example)):
        assert callable(getattr(shunter, function))
        if function in ("train", "tune"):
            assert keywords <= {*TrainRequest.options(), *TrainRequest.model_fields}, function


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


@pytest.mark.slow
@pytest.mark.long  # the other examples train on less data
def test_first_training(run: Run) -> None:
    run(EXAMPLES / "first_training.py")


@pytest.mark.long
def test_own_csv_and_serving(run: Run) -> None:
    run(EXAMPLES / "own_csv.py")
    scores = [float(line.split(": ")[1]) for line in run(EXAMPLES / "serving.py", "shop").splitlines()]
    assert len(scores) == 3
    assert all(0 < score < 1 for score in scores)


@pytest.mark.slow
@pytest.mark.long  # `tests/extensions/test_plugin.py` trains with the same package
def test_plugin_loss(run: Run, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "plugin", tmp_path / "source")
    install = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", tmp_path / "site")
    run(*install, tmp_path / "source")
    assert "focal" in run(EXAMPLES / "plugin_loss.py", PYTHONPATH=str(tmp_path / "site"))


@pytest.mark.slow
@pytest.mark.long
def test_nightly_by_a_server_of_its_own(run: Run) -> None:
    assert len(run(EXAMPLES / "nightly.py", PREFECT_API_URL="").splitlines()) == 2


@pytest.mark.slow
@pytest.mark.long  # `tests/flows/test_tuning.py` searches, and `tests/flows/test_api.py` reads the history
@pytest.mark.parametrize("name", ["search_report", "compare_runs"])
def test_notebooks(run: Run, name: str) -> None:
    run("-c", code_of(EXAMPLES / f"{name}.ipynb"), PYTHONPATH=str(EXAMPLES), MPLBACKEND="agg")
