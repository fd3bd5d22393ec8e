"""Any folder of `extensions/`, and any application, can be deleted: the core stands, and refuses what it offered."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.registry import APPLICATIONS
from shunter.settings import PROJECT_ROOT

EXTENSIONS = sorted(path.parent.name for path in (PROJECT_ROOT / "extensions").glob("*/__init__.py"))
DELETABLE = (*APPLICATIONS, *EXTENSIONS)
CHECKS = Path(__file__).with_name("house_without.py")


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [*([one] for one in DELETABLE), [*DELETABLE]], ids="+".join)
def test_the_core_stands_without_what_can_be_deleted(deleted: list[str], tmp_path: Path) -> None:
    package = tmp_path / "shunter"
    shutil.copytree(PROJECT_ROOT / "shunter", package)
    for folder in (path.parent.name for path in PROJECT_ROOT.glob("*/__init__.py")):
        if folder not in {"shunter", "extensions", "benchmarks", "tests", *deleted}:
            (package / folder).symlink_to(PROJECT_ROOT / folder)
    (package / "extensions").mkdir()
    (package / "extensions" / "__init__.py").touch()
    for name in set(EXTENSIONS) - set(deleted):
        (package / "extensions" / name).symlink_to(PROJECT_ROOT / "extensions" / name)
    done = subprocess.run([sys.executable, CHECKS, tmp_path, *deleted], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
