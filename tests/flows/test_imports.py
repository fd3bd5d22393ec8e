"""Which libraries each part of the product loads before it needs them: what a user waits for at every start."""

import subprocess
import sys
from importlib import import_module

import pytest
from prefect import Flow

from shunter.flows.command.start import TRAIN
from shunter.settings import PROJECT_ROOT
from tests.house.sources import House

# Loaded by what comes later than the module, or not at all; each of them takes a tenth of a second to two.
LATER = {
    "shunter.flows.cli": {
        "torch",
        "numpy",
        "pandas",
        "polars",
        "scipy",
        "prefect",
        "mlflow",
        "optuna",
        "sqlalchemy",
        "psutil",
    },
    "shunter.flows.api": {"torch", "pandas", "polars", "pyarrow", "prefect", "mlflow", "optuna"},
    "shunter.flows.train": {
        *("mlflow", "sqlalchemy", "alembic", "optuna", "sklearn", "matplotlib", "scipy.stats", "scipy.optimize"),
        *("torch._dynamo", "torch._inductor", "sympy", "fbgemm_gpu", "torchrec", "dgl", "ray", "plotly"),
    },
    "shunter.engine.executors.separate_process_worker": {
        *("pandas", "pyarrow", "polars", "scipy", "sklearn", "prefect", "mlflow", "optuna", "matplotlib", "rich"),
        *("torch._dynamo", "torchrec", "dgl", "ray"),
    },
    "shunter.extensions.distributed.executors.process_group_worker": {
        "pandas",
        "scipy",
        "prefect",
        "mlflow",
        "optuna",
        "dgl",
        "ray",
    },
    (
        "shunter.tracking.leftovers shunter.tasks.retention shunter.reporting.page.publish shunter.tracking.find "
        "shunter.tasks.rollback"
    ): {*("torch", "pandas", "polars", "scipy", "sklearn", "prefect", "mlflow", "optuna", "matplotlib", "sqlalchemy")},
    "shunter.ingestion.worker": {
        *("torch", "scipy", "sklearn", "prefect", "mlflow", "optuna", "matplotlib", "sqlalchemy", "dgl", "ray")
    },
}


@pytest.fixture(scope="module")
def house() -> House:
    """The product as its gauges read it: from the files, without loading them."""
    return House.read()


@pytest.mark.parametrize("modules", LATER)
def test_a_start_loads_nothing_that_is_needed_later(modules: str, house: House) -> None:
    script = (
        "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules, sep='\\n')"
    )
    names = modules.split()
    program = [sys.executable, "-c", script, *names]
    loaded = subprocess.run(program, capture_output=True, text=True, check=True, cwd=PROJECT_ROOT).stdout.split()
    assert set(names) <= set(loaded)
    assert not LATER[modules] & set(loaded)
    packages = {"shunter.extensions"}  # empty; a registry loads it to look for an extension
    expected = set().union(*map(house.loaded_by, names))
    assert expected | packages == house.product.keys() & set(loaded) | packages


@pytest.mark.slow
@pytest.mark.parametrize("flow", TRAIN)
def test_flows_that_load_libraries_early_are_there(flow: str) -> None:
    module, _, name = flow.partition(":")
    assert isinstance(getattr(import_module(module), name), Flow)
