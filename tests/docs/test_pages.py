"""Every command in `docs/` is run, page by page, as a reader would: in an empty folder, one after another.

The reader has run Shunter today, so the machine is known and MovieLens fetched, of which there are ratings enough to go
through it all; pages that start no server use one that runs already. The commands load their libraries once for all.

A block of `sh` is run; a block of another language whose first line is a comment with a file's name is that file.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
import yaml

from shunter.ingestion.sources.open import open_source
from shunter.operation.servers import WORK_POOL
from shunter.settings import PROJECT_ROOT
from tests.warm_commands import warm_commands

DOCS = PROJECT_ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")
RATINGS = 20_000  # of 100,000; of half as many no model is surely better than the base rate
SECONDS = 900  # with a command that hangs; nothing is said of how long one takes
WALKTHROUGHS = {str(page.relative_to(DOCS)): page for page in PAGES if "\n```sh\n" in page.read_text()}
# Pages that command Shunter, which takes minutes: `tests/faults/test_opened_databases.py` and tests of its own run each
# command, and `test_truth` reads its options, its request and the job files of the page.
LONG = {
    *("how-to/accelerators.md", "how-to/large-tables.md", "how-to/run-services.md", "how-to/search.md"),
    *("how-to/share-a-cluster.md", "tutorials/nightly.md", "tutorials/own-data.md", "tutorials/python.md"),
}


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return BLOCK.findall(page.read_text())


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows."""
    for language, text in blocks_of(page):
        name = FILE_NAME.match(text)
        if language != "sh" and name:
            (folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
            (folder / name[1]).write_text(text)


@pytest.fixture(scope="module")
def shunter_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder of a `shunter` that has its libraries loaded."""
    with warm_commands(tmp_path_factory.mktemp("warm")) as folder:
        yield folder


def environment_of(home: Path, *programs: Path) -> dict[str, str]:
    """As a reader's shell would be with the environment activated, and a home of its own."""
    paths = [*map(str, programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "MLFLOW_"))}
    return {**kept, "PATH": os.pathsep.join(paths), "SHUNTER_HOME": str(home), "COLUMNS": "120"}


def test_only_tutorials_and_guides_have_commands_to_run() -> None:
    assert {name.partition("/")[0] for name in WALKTHROUGHS} == {"tutorials", "how-to"}
    assert set(WALKTHROUGHS) > LONG


@pytest.fixture(scope="module")
def movielens(movielens_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that a first command on `ml-100k` makes, of fewer ratings."""
    downloads = tmp_path_factory.mktemp("downloads")
    (downloads / movielens_wheel.name).symlink_to(movielens_wheel)
    [table] = open_source("ml-100k", None, None, downloads).paths
    pl.read_parquet(table).head(RATINGS).write_parquet(table)
    return Path(table)


@pytest.fixture
def home(furnished_home: Path, movielens: Path) -> Path:
    """What a reader who has begun already has."""
    (furnished_home / "downloads").mkdir()
    shutil.copy(movielens, furnished_home / "downloads")
    return furnished_home


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.long] if name in LONG else [], id=name)
        for name, page in WALKTHROUGHS.items()
    ],
)
def test_every_command_of_a_page_runs(
    page: Path, tmp_path: Path, shunter_home: Path, request: pytest.FixtureRequest
) -> None:
    write_files(page, tmp_path)
    script = "\n".join(["set -eo pipefail", *(text for language, text in blocks_of(page) if language == "sh")])
    if "shunter " not in script:
        environment = environment_of(shunter_home)
    else:
        environment = environment_of(*map(request.getfixturevalue, ("home", "shunter_program")))
        if "shunter up" in script:
            script = f"trap 'shunter down >/dev/null 2>&1 || true' EXIT\n{script}"
        else:
            environment["PREFECT_API_URL"] = request.getfixturevalue("prefect_server")
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_the_templates_name_options_that_exist() -> None:
    """No container runs here: they are read, and what they start is asked for its help."""
    folder = PROJECT_ROOT / "docs" / "deploy"
    compose = yaml.safe_load((folder / "compose.yaml").read_text())
    deployment, *_ = yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == compose["services"]["worker"]["image"]
    command = json.loads(re.findall(r"^CMD (.*)$", (folder / "Dockerfile").read_text(), re.MULTILINE)[0])
    assert command[command.index("--pool") + 1] == WORK_POOL
    for service in ("prefect", "mlflow"):
        program, *arguments = compose["services"][service]["command"]
        options = [argument for argument in arguments if argument.startswith("--")]
        verbs = arguments[: arguments.index(options[0])]
        binary = str(Path(sys.executable).with_name(program))
        shown = subprocess.run([binary, *verbs, "--help"], capture_output=True, text=True, check=True).stdout
        assert all(option in shown for option in options), service
