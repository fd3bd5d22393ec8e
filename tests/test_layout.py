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


# What prepares, sends or sums up trainings speaks of machines and results in pydantic's models.
BEYOND_THE_CORE = (
    "executors",
    "profiling",
    "stalls",
    "ensemble",
    "passes",
    "trained_model",
    "result",
    "measurement",
    "execution",
    "specs",
    "overrides",
)


def _knows_more(path: Path) -> bool:
    return path.parts[0] == "engine" and not {*path.parts[1:-1], path.stem}.isdisjoint(BEYOND_THE_CORE)


def test_engine_and_models_import_with_torch_numpy_and_pandas_alone() -> None:
    """They run on a bare GPU machine; the libraries named here must not be needed to import them."""
    import subprocess

    modules = [
        ".".join(("shunter", *path.relative_to(PROJECT_ROOT).with_suffix("").parts))
        for folder in ("engine", "models")
        for path in sorted((PROJECT_ROOT / folder).rglob("*.py"))
        if path.stem != "__init__" and not _knows_more(path.relative_to(PROJECT_ROOT))
    ]
    script = f"""
import importlib, sys
class Refuse:
    refused = {{"torchrec", "fbgemm_gpu", "prefect", "mlflow", "optuna", "pydantic", "polars", "safetensors", "rich"}}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.refused:
            raise ImportError(f"{{name}} is not there on a bare machine")
sys.meta_path.insert(0, Refuse())
for module in {modules!r}:
    importlib.import_module(module)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=PROJECT_ROOT, check=False)
    assert done.returncode == 0, done.stderr
