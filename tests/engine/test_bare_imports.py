"""The engine and the models need torch, numpy and pandas, and nothing else of what the project installs."""

import subprocess
import sys
from pathlib import Path

from shunter.models.native.library import library
from shunter.settings import PROJECT_ROOT

# What prepares, sends or sums up trainings speaks of machines and results in pydantic's models.
BEYOND_THE_CORE = {
    *("executors", "profiling", "stalls", "ensemble", "passes", "trained_model"),
    *("result", "measurement", "execution", "specs", "overrides"),
}

PROGRAM = """
import importlib, sys
from pathlib import Path

for name in ("prefect", "mlflow", "optuna", "pydantic", "pydantic_settings", "torchrec", "fbgemm_gpu", "polars", "rich",
             "sklearn", "zeus", "psutil", "plotly", "typer", "safetensors"):
    sys.modules[name] = None  # to an import statement, that is a package which is not installed

from shunter.models.registry import model_spec
from shunter.engine.config import Execution, Hyperparameters, Schedule
from shunter.engine.probes.steps import time_steps
from shunter.engine.loop.trainer import train
from shunter.engine.job import TrainingJob
from shunter.models.spec import ModelSpec
from tests.engine.synthetic import write_dataset
dataset = write_dataset(Path(sys.argv[1]), rows=700)
execution = Execution(batch_size=64)
assert time_steps(dataset, model_spec(), Hyperparameters(), execution, steps=3).steps == 3
result = train(TrainingJob(dataset, model_spec(), Hyperparameters(), execution, Schedule(max_epochs=2)))
for name in sys.argv[2:]:
    importlib.import_module(name)
print(type(result.model.embeddings).__name__, len(result.history))
"""


def core_modules() -> list[str]:
    """Return the modules of the engine and the models that a bare GPU machine imports."""
    paths = [
        path.relative_to(PROJECT_ROOT).with_suffix("")
        for folder in ("engine", "models")
        for path in sorted((PROJECT_ROOT / folder).rglob("*.py"))
        if path.stem != "__init__"
    ]
    core = [path for path in paths if path.parts[0] == "models" or BEYOND_THE_CORE.isdisjoint(path.parts[1:])]
    return [".".join(("shunter", *path.parts)) for path in core]


def test_training_works_with_torch_and_numpy_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), *core_modules()]
    finished = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT_ROOT, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["NativeEmbeddings" if library() else "TorchEmbeddings", "2"]
