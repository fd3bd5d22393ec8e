"""The flow that only tunes, on generated clicks with a real store: ranked settings, and nothing registered."""

import pytest

from flows.tuning import tune_only
from shunter.requests.training import TrainRequest
from shunter.settings import Settings

pytestmark = pytest.mark.slow


def test_settings_are_ranked_in_mlflow_and_no_model_is_trained_to_the_end(prefect_server: None) -> None:
    from mlflow import MlflowClient

    from tracking.store import tracking_uri

    result = tune_only(TrainRequest(data="synthetic:3000", trials=2, search_minutes=30, max_epochs=1))
    assert len(result.settings) == 2
    assert result.settings[0].validation_ne <= result.settings[1].validation_ne
    client = MlflowClient(tracking_uri())
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    kinds = [run.data.tags["run.kind"] for run in runs]
    assert sorted(kinds) == ["trial", "trial", "tune"]
    parent = next(run for run in runs if run.data.tags["run.kind"] == "tune")
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics["energy.seconds"] > 0
    assert "settings.json" in {
        artifact.path.rpartition("/")[2] for artifact in client.list_artifacts(parent.info.run_id, "config")
    }
    kept = {artifact.path for artifact in client.list_artifacts(parent.info.run_id, "search")}
    assert {"search/study.db", "search/front.json"} <= kept
    assert parent.data.metrics["search.complete_trials"] == 2
    assert parent.data.tags["search.method"] == "tpe"
    assert client.search_registered_models() == []
    assert [path for path in Settings().runs_directory.iterdir() if path.is_dir()] == []
