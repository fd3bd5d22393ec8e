"""The layout's own rules, where breaking one fails far away from its cause."""

import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import mlflow

from shunter.settings import PROJECT_ROOT


def test_folder_mlflow_holds_no_python_so_that_the_library_is_imported() -> None:
    assert list((PROJECT_ROOT / "mlflow").rglob("*.py")) == []
    assert not Path(str(mlflow.__file__)).is_relative_to(PROJECT_ROOT / "mlflow")
    assert mlflow.__version__


def test_no_flow_file_bears_the_name_of_a_library() -> None:
    """Prefect's loader puts a flow file's folder first on the path, so `flows/profile.py` would shadow the library."""
    ours = {path.parent.name for path in PROJECT_ROOT.glob("*/__init__.py")}
    taken = set(sys.stdlib_module_names) | (set(packages_distributions()) - ours)
    stems = {path.stem for path in (PROJECT_ROOT / "flows").glob("*.py")} - {"__init__"}
    assert stems & taken == set()
