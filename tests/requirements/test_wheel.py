"""The wheel holds one package, installs into an environment outside of the checkout, and works there."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from requirements.install import options_of, pip_settings, variables_of
from shunter.settings import PROJECT_ROOT, _default_home
from tests.flows.python.shop import SCHEMA, shop_log

PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
]
SECONDS = 300
USER = {"SHUNTER_SERVER_IDLE_MINUTES": "0"}  # no server outlives the test
USE = """
import json, sys
import shunter
from shunter.settings import Settings
import pandas as pd
log = pd.DataFrame({"click": [0, 1] * 50, "item": list(range(10)) * 10})
print(json.dumps([shunter.__file__, str(Settings().home), str(Settings().tracking_root), shunter.check(log).rows]))
"""
TRAIN = """
import json, sys
import pandas as pd
import shunter

if __name__ == "__main__":  # steps start processes, which import this file
    effort = {"trials": 1, "max_epochs": 1, "baselines": "none", "ensemble_size": 1, "promote": "always"}
    training = shunter.train(pd.read_csv("log.csv"), json.loads(sys.argv[1]), model="dnn", register_as="shop", **effort)
    print(json.dumps(training.summary.rows))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources, without the kernels that a compiler would add."""
    folder = tmp_path_factory.mktemp("wheel")
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in names.splitlines():
        if not name.startswith(("tests/", "benchmarks/", "docs/")) and (PROJECT_ROOT / name).is_file():
            target = folder / "sources" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PROJECT_ROOT / name, target)
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    subprocess.run(
        [sys.executable, *build, str(folder / "sources")],
        env={**os.environ, "CC": "false", "CXX": "false"},
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    (found,) = folder.glob("*.whl")
    return found


Run = Callable[..., str]


def programs_of(folder: Path) -> Run:
    """Return what runs a program of the environment `env` of a folder, which also has the data of its user."""

    def run(program: str, *arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SHUNTER_", "PYTHON"))}
        done = subprocess.run(
            [folder / "env" / "bin" / program, *arguments],
            cwd=folder,
            env={**kept, **USER, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def outside(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout, whose fresh environment has the wheel and the libraries of this one."""
    folder = tmp_path_factory.mktemp("outside")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, wheel], check=True)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")  # its own .pth files are not read
    return folder


@pytest.fixture(scope="module")
def run(outside: Path) -> Run:
    """Runs a program of that environment."""
    return programs_of(outside)


def train_and_predict(folder: Path, run: Run) -> None:
    """Train on a frame, and score a file by the command."""
    log = shop_log(400)
    log.to_csv(folder / "log.csv", index=False)
    (folder / "train.py").write_text(TRAIN)
    rows = json.loads(run("python", "train.py", json.dumps(SCHEMA)).splitlines()[-1])
    assert sum(rows.values()) == len(log)
    header, *scores = run("shunter", "predict", "shop", "log.csv").splitlines()
    assert len(scores) == len(log), header
    assert all(0 < float(score) < 1 for score in scores)
    assert (folder / "data" / "shunter" / "mlflow" / "mlflow.db").is_file()


@pytest.mark.slow
def test_it_holds_one_package_with_its_types_and_files(wheel: Path) -> None:
    names = {*ZipFile(wheel).namelist()}
    assert {name.partition("/")[0] for name in names} == {"shunter", f"shunter-{PROJECT['version']}.dist-info"}
    assert "shunter/py.typed" in names
    sources = wheel.parent / "sources"
    folders = [path.parent.relative_to(sources) for path in sources.glob("*/__init__.py")]
    files = [
        path for one in folders for path in (sources / one).rglob("*") if path.suffix in {".yaml", ".j2", ".css", ".js"}
    ]
    inside = {path.relative_to(sources).as_posix().removeprefix("shunter/") for path in files}
    assert {f"shunter/{name}" for name in inside} <= names


@pytest.mark.slow
def test_it_works_outside_of_the_checkout_with_a_home_of_the_user(run: Run) -> None:
    file, home, tracking, rows = json.loads(run("python", "-c", USE))
    assert not Path(file).is_relative_to(PROJECT_ROOT)
    assert "site-packages" in file
    assert (Path(home).name, Path(home).parent.name) == ("shunter", "data")
    assert Path(tracking) == Path(home) / "mlflow"
    assert rows == 100
    assert run("shunter", "--version").split() == ["shunter", PROJECT["version"]]
    assert "ml-100k" in run("shunter", "datasets")


@pytest.mark.slow
def test_it_trains_on_a_frame_and_predicts_outside_of_the_checkout(run: Run, outside: Path) -> None:
    train_and_predict(outside, run)


@pytest.mark.slow
@pytest.mark.long  # installs some GB
@pytest.mark.parametrize("resolution", ["highest", "lowest-direct"])
def test_its_dependencies_resolve_without_a_lock(resolution: str, wheel: Path, tmp_path: Path) -> None:
    settings = pip_settings()
    uv = str(Path(sys.executable).with_name("uv"))
    environment = os.environ | variables_of(settings)
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, tmp_path / "env"], check=True, env=environment)
    install = [uv, "pip", "install", "--quiet", "--python", tmp_path / "env", "--resolution", resolution]
    subprocess.run([*install, *options_of(settings), f"{wheel}[cpu]"], check=True, env=environment)
    train_and_predict(tmp_path, programs_of(tmp_path))


def test_a_home_that_is_there_is_found_and_none_is_made_among_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert _default_home(tmp_path) == tmp_path / "data" / "shunter"
    (tmp_path / ".shunter").mkdir()
    assert _default_home(tmp_path) == tmp_path / ".shunter"
    assert _default_home(PROJECT_ROOT) == PROJECT_ROOT / ".shunter"


@pytest.mark.parametrize("line", REQUIREMENTS)
def test_what_is_installed_and_tested_is_within_the_bounds(line: str) -> None:
    wanted = Requirement(line)
    if wanted.name != "fbgemm-gpu":  # the other platform's
        assert version(wanted.name) in wanted.specifier
        assert any(one.operator in (">=", "==") for one in wanted.specifier)
