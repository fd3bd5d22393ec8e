"""The flow that only tunes, on generated clicks with a real store: ranked settings, and nothing registered."""

from pathlib import Path

import pytest

from shunter.engine.stopping import ShouldStop, StopKind, StopLimit
from shunter.flows.tuning import tune_only
from shunter.planner.history import read_history
from shunter.requests import Limits, TrainRequest
from shunter.search.job import SearchJob
from shunter.settings import Settings

pytestmark = pytest.mark.slow


def test_settings_are_ranked_in_mlflow_and_no_model_is_trained_to_the_end(
    furnished_home: Path, prefect_server: str
) -> None:
    from mlflow import MlflowClient

    from shunter.tracking.store import tracking_uri

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
    assert parent.data.metrics["search/complete_trials"] == 2
    assert parent.data.tags["search.method"] == "tpe"
    assert client.search_registered_models() == []
    assert [path for path in Settings().runs_directory.iterdir() if path.is_dir()] == []
    history = read_history()
    assert history.steps, "a search teaches what its steps take"
    (own,) = [run for run in history.runs if run.kind == "tune"]
    assert (own.outcome, own.run_id) == ("reached", parent.info.run_id)
    assert own.epochs == pytest.approx(2, abs=0.1)
    assert own.measured.seconds is not None
    assert [run.kind for run in history.runs].count("trial") == 2


def test_a_recipe_is_one_point_trained_as_it_says_and_chosen_by_what_it_says(
    furnished_home: Path, prefect_server: str
) -> None:
    recipe = {
        **{"embedding_dim": 8, "top_widths": [32, 32], "bottom_widths": [8], "dropout": 0.1, "batch_norm": True},
        **{"dense_learning_rate": 0.01, "embedding_learning_rate": 0.1, "learning_rate_schedule": "plateau"},
        **{"embedding_l2": 1e-4, "embedding_initial_bound": 0.05, "weight_decay": 1e-5},
        **{"numeric_embedding": "mlp", "numeric_bins": 4},
    }
    request = TrainRequest(data="synthetic:3000", model="dnn", trials=4, max_epochs=2, select_by="auc", set=recipe)
    result = tune_only(request)
    (only,) = result.settings  # the same point again would say the same
    assert (only.spec.top_widths, only.spec.batch_norm, only.spec.numeric_bins) == ((32, 32), True, 4)
    assert only.hyperparameters.learning_rate_schedule == "plateau"
    assert only.selected is not None
    assert result.best_quality == f"AUC {1 - only.selected:.4f}"
    assert result.stop_reason is not None
    assert result.stop_reason.kind is StopKind.EXHAUSTED


class Interrupted(KeyboardInterrupt):
    """Stands for Ctrl-C."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ShouldStop]:
    """The `should_stop` of each search, which is interrupted at once; by the clock each has run for an hour."""
    found: list[ShouldStop] = []

    def interrupted(job: SearchJob, *, should_stop: ShouldStop) -> None:
        assert job.minutes is not None
        job.minutes.clock._began -= 3601.0
        found.append(should_stop)
        raise Interrupted

    monkeypatch.setattr("shunter.flows.tuning.tune", interrupted)
    return found


def test_a_search_ends_before_a_unit_of_time_begins_that_the_cost_limit_does_not_cover(
    furnished_home: Path, prefect_server: str, asked: list[ShouldStop]
) -> None:
    request = TrainRequest(data="synthetic:3000", limits=Limits(max_cost=1.5), price_per_hour=1, billing="hour")
    with pytest.raises(Interrupted):
        tune_only(request)
    reason = asked[0]()
    assert reason is not None, "a second hour would be charged in full, 2 in all"
    assert (reason.kind, reason.limit) == (StopKind.LIMIT, StopLimit.COST)


def test_an_interrupted_search_goes_on_with_what_is_left_of_its_limits(
    furnished_home: Path, prefect_server: str, asked: list[ShouldStop]
) -> None:
    request = TrainRequest(data="synthetic:3000", limits=Limits(max_hours=1.5))
    for _ in range(2):
        with pytest.raises(Interrupted):
            tune_only(request)
    first, second = asked
    reason = second()
    assert reason is not None
    assert (reason.kind, reason.limit) == (StopKind.LIMIT, StopLimit.TIME)
    assert first is not second
