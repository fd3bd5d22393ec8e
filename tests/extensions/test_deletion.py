"""Any folder of `extensions/`, and any application, can be deleted: the core stands, and refuses what it offered."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shunter.registry import APPLICATIONS
from shunter.settings import PROJECT_ROOT

EXTENSIONS = sorted(path.parent.name for path in (PROJECT_ROOT / "extensions").glob("*/__init__.py"))
DELETABLE = (*APPLICATIONS, *EXTENSIONS)
# Two of which neither uses the other are deleted together, which shows the same as one after the other.
PAIRS = (
    *(("operation", "nas"), ("retraining", "exports"), ("serving", "shampoo"), ("compression", "loggers")),
    *(("distributed", "learned_hashing"), ("fleet", "rewriting"), ("incremental_checkpoints", "meta_learning")),
    *(("lake", "towers"), ("stalls", "tiers")),
)
CHECKS = Path(__file__).with_name("house_without.py")
# The libraries are imported once; each line of input names a root and what it lacks, and a fork checks it.
FORKS = """
import os, runpy, sys, traceback
import mlflow.pyfunc, mlflow.tracking, optuna, pandas, polars, prefect, pyarrow.parquet, torch, typer.testing
import mlflow.store.db.utils, mlflow.store.tracking.sqlalchemy_store

assert not [name for name in sys.modules if name.split(".")[0] == "shunter"]
for line in sys.stdin:
    if os.fork() == 0:
        with open("/dev/null", "w") as nowhere, open(line.split()[0] + "/errors", "w") as errors:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(errors.fileno(), 2)
        sys.argv = [sys.argv[1], *line.split()]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    """A process that checks houses in forks of itself."""
    command = [sys.executable, "-P", "-c", FORKS, str(CHECKS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin
        process.stdin.close()


def test_everything_that_can_be_deleted_is_in_a_pair() -> None:
    assert sorted(one for pair in PAIRS for one in pair) == sorted(DELETABLE)


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [*PAIRS, DELETABLE], ids="+".join)
def test_the_core_stands_without_what_can_be_deleted(
    deleted: tuple[str, ...], tmp_path: Path, forks: subprocess.Popen[str]
) -> None:
    package = tmp_path / "shunter"
    shutil.copytree(PROJECT_ROOT / "shunter", package)
    for folder in (path.parent.name for path in PROJECT_ROOT.glob("*/__init__.py")):
        if folder not in {"shunter", "extensions", "benchmarks", "tests", *deleted}:
            (package / folder).symlink_to(PROJECT_ROOT / folder)
    (package / "extensions").mkdir()
    (package / "extensions" / "__init__.py").touch()
    for name in set(EXTENSIONS) - set(deleted):
        (package / "extensions" / name).symlink_to(PROJECT_ROOT / "extensions" / name)
    assert forks.stdin
    assert forks.stdout
    print(tmp_path, *deleted, file=forks.stdin, flush=True)
    assert forks.stdout.readline() == "0\n", (tmp_path / "errors").read_text()
