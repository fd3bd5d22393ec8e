"""What searches are tried on: a small data set, and a run of MLflow below which the trials get theirs."""

from pathlib import Path

import pytest

from shunter.engine.data.dataset import Dataset
from shunter.requests import TrainRequest
from shunter.tracking.runs import start_run_tree
from tests.engine.synthetic import write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_dataset(tmp_path_factory.mktemp("data"), rows=1_000)


@pytest.fixture
def parent(tracking_root: Path, dataset: Dataset) -> str:
    return start_run_tree(TrainRequest(), dataset)
