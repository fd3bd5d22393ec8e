"""The search over real trainings: ranked, tracked, resumable, and not stopped by a setting that fails."""

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

from shunter.engine.config import Hyperparameters
from shunter.engine.data.dataset import Dataset
from shunter.engine.stopping import StoppedError, StopReason
from shunter.engine.stopping_text import training_stop_text
from shunter.errors import RequestError, TrainingError
from shunter.model_families import AUTO
from shunter.models.names import auto_families
from shunter.models.spec import ModelSpec
from shunter.requests import TrainRequest
from shunter.search.result import TuneResult
from shunter.search.search import search
from shunter.search.space.settings import SearchSpace
from shunter.search.study.address import storage_address
from shunter.search.study.loop import Progress
from shunter.search.study.storage import open_study
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.search.spaces import PLACEMENT, SMALL, search_job


def trial_runs(parent: str) -> list[MlflowRun]:
    client = MlflowClient(tracking_uri())
    experiment = client.get_run(parent).info.experiment_id
    runs = client.search_runs([experiment], f"tags.mlflow.parentRunId = '{parent}'")
    return sorted(runs, key=lambda run: run.info.start_time)


def tried(result: TuneResult) -> list[tuple[ModelSpec, Hyperparameters, float]]:
    """The settings and their quality, without times, which are never the same."""
    return [(setting.spec, setting.hyperparameters, setting.validation_ne) for setting in result.settings]


def test_settings_are_ranked_and_the_default_comes_first(
    dataset: Dataset, parent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shunter.search.study.loop.EPOCH_SECONDS", 0.0)
    seen, epochs = list[Progress](), list[Progress]()
    request = TrainRequest(trials=5, max_epochs=3)
    result = search(search_job(dataset, request, tmp_path, parent), on_trial=seen.append, on_epoch=epochs.append)
    assert result.complete_trials + result.pruned_trials == len(result.settings) == 5
    assert result.failed_trials == result.resumed_trials == 0
    assert result.stop_reason is None
    reached = [setting.validation_ne for setting in result.settings]
    assert reached == sorted(reached)
    default = next(setting for setting in result.settings if setting.trial_number == 0)
    assert (default.spec, default.hyperparameters) == SMALL.build(SMALL.default())
    assert [progress.done for progress in seen] == [1, 2, 3, 4, 5]
    assert {progress.done for progress in epochs} == {0, 1, 2, 3, 4}, "while each of them trains"
    assert all(progress.running for progress in epochs)
    assert seen[-1].best == f"NE {result.best.validation_ne:.4f}"
    assert TuneResult.model_validate_json(result.model_dump_json()) == result


def test_what_ends_with_its_cosine_has_come_to_its_end_however_good_others_are(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    """Trials are compared after one, three and nine passes: after its only one, nothing is left to save."""
    once = {"learning_rate_schedule": "cosine", "cosine_epochs": 1}
    space = SMALL.model_copy(update={"fixed_learning": once})
    request = TrainRequest(trials=5, max_epochs=9)
    job = search_job(dataset, request, tmp_path, parent, space=space)
    result = search(job)
    assert (result.complete_trials, result.pruned_trials) == (5, 0)
    assert {run.data.metrics["training.best_epoch"] for run in trial_runs(parent)} == {1.0}


def test_same_seed_tries_the_same_settings(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(trials=2, max_epochs=1, seed=7)
    first, second = (search(search_job(dataset, request, tmp_path / name, parent)) for name in "ab")
    other = search(search_job(dataset, request.model_copy(update={"seed": 8}), tmp_path / "c", parent))
    assert tried(first) == tried(second)
    assert tried(first) != tried(other)


def test_trials_are_nested_runs_with_params_curve_and_energy_and_need_no_test_part(
    dataset: Dataset, parent: str, tmp_path: Path
) -> None:
    folder = tmp_path / "without test"
    shutil.copytree(dataset.directory, folder, ignore=shutil.ignore_patterns("test.*"))
    result = search(search_job(Dataset.load(folder), TrainRequest(trials=1, max_epochs=2), tmp_path, parent))
    [run] = trial_runs(parent)
    assert run.info.status == "FINISHED"
    assert run.data.tags["run.kind"] == "trial"
    assert run.data.tags["trial.state"] == "complete"
    assert run.data.tags["energy.source"] in {"measured", "estimated", "unavailable"}
    assert run.data.params["model.embedding_dim"] == "8"
    assert run.data.metrics["quality.ne"] == result.best.validation_ne
    assert run.data.metrics["throughput.samples_per_second"] > 0
    curve = MlflowClient(tracking_uri()).get_metric_history(run.info.run_id, "quality.train.logloss")
    assert [point.step for point in curve] == [1, 2]


def test_hyperband_stops_bad_settings_early(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    """Ten settings of one bracket's worth of epochs: with rungs at 1 and 3, some cannot pass the first."""
    result = search(search_job(dataset, TrainRequest(trials=10, max_epochs=3), tmp_path, parent))
    assert result.pruned_trials > 0
    assert sum(setting.is_pruned for setting in result.settings) == result.pruned_trials
    states = [run.data.tags["trial.state"] for run in trial_runs(parent)]
    assert states.count("pruned") == result.pruned_trials
    assert all(run.info.status == "FINISHED" for run in trial_runs(parent))


def test_a_training_is_compared_by_the_best_that_it_reached(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    """Past its best epoch it gets worse until patience ends, and keeps the weights of that epoch all the same."""
    overrides = {"dense_learning_rate": 0.05, "embedding_learning_rate": 0.5}  # learns by heart from the first epoch on
    request = TrainRequest(trials=1, max_epochs=4)
    space = SMALL.model_copy(update={"fixed_learning": overrides, "top_widths": (64,)})
    job = search_job(dataset, request, tmp_path, parent, space=space)
    result = search(job)
    (run,) = trial_runs(parent)
    reached = [
        metric.value for metric in MlflowClient(tracking_uri()).get_metric_history(run.info.run_id, "quality.ne")
    ]
    by_epoch = reached[:-1]  # the last is that of the result
    assert by_epoch[-1] > min(by_epoch), "the training does not overfit, so that it shows nothing"
    study = open_study(storage_address(tmp_path, None), space, cost=None)
    noted = list(study.trials[0].intermediate_values.values())
    assert noted == [min(by_epoch[: place + 1]) for place in range(len(by_epoch))]
    assert result.best.validation_ne == min(by_epoch)


def test_finished_trials_are_not_repeated(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    two = search(search_job(dataset, TrainRequest(trials=2, max_epochs=1), tmp_path, parent))
    three = search(search_job(dataset, TrainRequest(trials=3, max_epochs=1), tmp_path, parent))
    assert three.resumed_trials == 2
    assert len(trial_runs(parent)) == 3
    assert all(setting in three.settings for setting in two.settings)


def test_interrupted_search_ends_like_an_undisturbed_one(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    request = TrainRequest(trials=3, max_epochs=1)
    undisturbed = search(search_job(dataset, request, tmp_path / "a", parent))

    def interrupt_after_two(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(search_job(dataset, request, tmp_path / "b", parent), on_trial=interrupt_after_two)
    resumed = search(search_job(dataset, request, tmp_path / "b", parent))
    assert resumed.resumed_trials == 2
    assert tried(resumed) == tried(undisturbed)


def _search_and_die_in_the_second_trial(dataset: Dataset, directory: Path, parent: str) -> None:
    asked = 0

    def kill() -> None:
        nonlocal asked
        asked += 1
        if asked == 16:  # steps of the first trial are 11, and each trial is asked once more before it starts
            os.kill(os.getpid(), signal.SIGKILL)

    search(search_job(dataset, TrainRequest(trials=3, max_epochs=1), directory, parent), should_stop=kill)


def test_killed_trial_is_closed_and_tried_again(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=_search_and_die_in_the_second_trial, args=(dataset, tmp_path, parent)
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert [run.info.status for run in trial_runs(parent)] == ["FINISHED", "RUNNING"]
    start_run_tree(TrainRequest(), dataset, parent_run_id=parent)
    result = search(search_job(dataset, TrainRequest(trials=3, max_epochs=1), tmp_path, parent))
    assert result.resumed_trials == 1
    assert result.complete_trials == 3
    runs = trial_runs(parent)
    assert [run.info.status for run in runs] == ["FINISHED", "KILLED", "FINISHED", "FINISHED"]
    assert runs[1].data.params["model.dropout"] == runs[2].data.params["model.dropout"]


@pytest.mark.parametrize(("bad", "reason"), [({"dense_learning_rate": 1e38}, "loss"), ({"top_width": 2**40}, "memory")])
def test_failed_setting_is_noted_and_the_search_goes_on(
    dataset: Dataset, parent: str, tmp_path: Path, bad: dict[str, float], reason: str
) -> None:
    wild = SMALL.model_copy(update={"dense_learning_rates": (1e-3, 1e38), "top_widths": (16, 2**40)})
    study = open_study(storage_address(tmp_path, None), wild)
    study.enqueue_trial({**wild.default(), **bad})
    result = search(search_job(dataset, TrainRequest(trials=2, max_epochs=1), tmp_path, parent, space=wild))
    assert (result.complete_trials, result.failed_trials) == (1, 1)
    failed, good = trial_runs(parent)
    assert (good.info.status, failed.info.status) == ("FINISHED", "FAILED")
    assert failed.data.tags["trial.state"] == "failed"
    assert reason in failed.data.tags["run.reason"]


def test_all_settings_failing_is_one_sentence_with_the_reason(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    wild = SMALL.model_copy(update={"dense_learning_rates": (1e35, 1e38)})
    with pytest.raises(TrainingError, match="All 2 trials failed"):
        search(search_job(dataset, TrainRequest(trials=2, max_epochs=1), tmp_path, parent, space=wild))


def test_budget_ends_the_search_and_keeps_what_there_is(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    asked = 0

    def budget() -> StopReason | None:
        nonlocal asked
        asked += 1
        return ENOUGH if asked > 16 else None

    result = search(search_job(dataset, TrainRequest(trials=5, max_epochs=1), tmp_path, parent), should_stop=budget)
    assert result.stop_reason == ENOUGH
    assert result.complete_trials == 2
    tags = [run.data.tags for run in trial_runs(parent)]
    assert [(of.get("training.stop_kind"), of.get("training.stop_limit")) for of in tags] == [
        ("max_epochs", None),
        ("limit", "time"),
    ]
    assert [of["training.stopped_because"] for of in tags] == ["max_epochs", training_stop_text(ENOUGH)]


def test_budget_that_is_used_up_before_the_first_trial_is_said(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    with pytest.raises(StoppedError) as error:
        search(search_job(dataset, TrainRequest(trials=2), tmp_path, parent), should_stop=lambda: ENOUGH)
    assert error.value.reason == ENOUGH


def test_mistake_of_the_request_is_not_taken_for_a_bad_setting(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    too_large = PLACEMENT.model_copy(update={"batch_size": 100_000})
    with pytest.raises(RequestError, match="batch size"):
        search(search_job(dataset, TrainRequest(trials=2), tmp_path, parent, placement=too_large))


def test_tables_that_memory_cannot_hold_are_a_failed_trial(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    wide = SMALL.model_copy(update={"embedding_dims": (8, 2**30)})
    study = open_study(storage_address(tmp_path, None), wide)
    study.enqueue_trial({**wide.default(), "embedding_dim": 2**30})
    result = search(search_job(dataset, TrainRequest(trials=2, max_epochs=1), tmp_path, parent, space=wide))
    assert (result.complete_trials, result.failed_trials) == (1, 1)
    assert "embedding tables take" in trial_runs(parent)[0].data.tags["run.reason"]


def test_best_setting_beats_the_base_rate(parent: str, tmp_path: Path) -> None:
    """The planted signal is learnable, so a search that found nothing would be broken."""
    dataset = write_dataset(tmp_path / "data", rows=4_000)
    result = search(search_job(dataset, TrainRequest(trials=4, max_epochs=3), tmp_path / "run", parent, space=None))
    assert result.best.validation_ne < 0.9
    assert np.isfinite(result.best.validation_ne)


def test_auto_tries_every_family_and_ranks_them_together(dataset: Dataset, parent: str, tmp_path: Path) -> None:
    small = SearchSpace.for_dataset(dataset, AUTO).model_copy(
        update={"embedding_dims": (4,), "top_widths": (8, 16), "most_top_layers": 2, "bottom_widths": (8,)}
    )
    request = TrainRequest(model=AUTO, trials=len(auto_families()) + 1, max_epochs=1)
    result = search(search_job(dataset, request, tmp_path, parent, space=small))
    by_number = sorted(result.settings, key=lambda setting: setting.trial_number)
    assert [setting.spec.family for setting in by_number[: len(auto_families())]] == list(auto_families())
    reached = [setting.validation_ne for setting in result.settings]
    assert reached == sorted(reached)
    assert len({setting.spec.family for setting in result.settings[:3]}) > 1  # so that an ensemble of them is mixed
    runs = trial_runs(parent)
    assert [run.data.params["model.family"] for run in runs] == [setting.spec.family for setting in by_number]
    assert "model.cross_layers" in runs[auto_families().index("dcnv2")].data.params
    assert "model.cross_layers" not in runs[auto_families().index("dnn")].data.params
