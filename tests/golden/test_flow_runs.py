"""A whole training leaves the same names in MLflow."""

from pathlib import Path

import pytest

from tests.golden import flow_runs
from tests.golden.recorded import read


@pytest.mark.slow
def test_a_training_writes_the_recorded_names_to_mlflow(tmp_path: Path, prefect_server: None) -> None:
    found, expected = flow_runs.names(*flow_runs.run_flow(tmp_path / "home")), read(flow_runs.FILE)
    assert flow_runs.comparable(found, expected) == flow_runs.comparable(expected, found)
