"""Baselines: trained first and once, compared with the result row by row, and members like any other."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import shunter.tasks.baselines
from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.config import Execution
from shunter.engine.data.dataset import Dataset, SplitStatistics
from shunter.engine.stopping import StopReason
from shunter.hardware.types import Placement
from shunter.model_families import MODEL_FAMILIES, RANKING_MODELS
from shunter.models.registry import build_layers
from shunter.models.spec import Features
from shunter.reporting.card.baselines import baseline_metrics, compare_baselines, relative_saving
from shunter.reporting.card.figures import BaselineFigures
from shunter.requests import CheckpointRequest, TrainRequest, parse_baselines
from shunter.requests.effort import CLICK_BASELINES, RANKING_BASELINES
from shunter.tasks.baselines import baseline_checks, baseline_epochs, baseline_spec, candidates_of, train_baselines
from shunter.tasks.ensemble import combine_members
from shunter.tasks.run_state import RunState
from shunter.tasks.train import train_model
from shunter.tasks.training_plans import placement_of_one
from shunter.tracking.runs import start_run_tree
from tests.engine.reasons import ENOUGH
from tests.engine.synthetic import write_dataset
from tests.models.families.test_dlrm import features_of

BASELINE = BaselineFigures(
    name="lr",
    validation_auc=0.7,
    validation_ne=0.9,
    auc=0.7,
    logloss=0.6,
    ne=0.9,
    train_seconds=1.0,
    joules=None,
    saving=0.0,
    saving_low=0.0,
    saving_high=0.0,
)
PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=128)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_dataset(tmp_path / "data", rows=2_000)


def context_of(dataset: Dataset, folder: Path, *, answers: Sequence[StopReason | None] = (), **options: Any) -> Any:
    """What the step reads of a run; the budget gives the answers in turn, and then that there is time."""
    left: list[StopReason | None] = list(answers)
    return SimpleNamespace(
        request=TrainRequest(max_epochs=2, **options),
        dataset=dataset,
        decision=SimpleNamespace(placement=PLACEMENT),
        directory=folder,
        run_id=None,
        baseline_stop=SimpleNamespace(check=lambda: left.pop(0) if left else None),
        cluster=None,
        processes=1,
        checkpoints=CheckpointRequest(),
    )


@pytest.fixture(autouse=True)
def _without_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shunter.tasks.baselines, "train_member", train_model)


def test_each_is_trained_and_its_better_training_kept(dataset: Dataset, tmp_path: Path) -> None:
    found = train_baselines(context_of(dataset, tmp_path))
    assert [one.model.name for one in found] == ["lr", "fm"]
    for one in found:
        assert one.model.spec.family == one.model.name
        assert one.model.validation.ne < 1
        folders = list((tmp_path / "baselines").glob(f"{one.model.name}-rate-*"))
        assert len(folders) == 2
        assert one.train_seconds > one.model.train_seconds


def test_a_second_attempt_trains_nothing_again_and_finds_the_same(dataset: Dataset, tmp_path: Path) -> None:
    first = train_baselines(context_of(dataset, tmp_path))
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert train_baselines(context_of(dataset, tmp_path)) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")} == written


def test_the_rate_that_is_behind_is_given_up_and_the_other_learns_from_every_row(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_baselines(context_of(dataset, tmp_path / "whole", baselines="lr"))
    monkeypatch.setattr(shunter.tasks.baselines, "LEAST_SAMPLES", 500)
    monkeypatch.setattr(shunter.tasks.baselines, "LEARNING_RATES", (0.2, 1e-6))
    rows = dataset.splits["train"].rows
    assert baseline_checks(dataset) == (1 / 2,)
    folder = tmp_path / "raced"
    raced = train_baselines(context_of(dataset, folder, baselines="lr"))
    assert raced[0].model.samples_seen == 2 * rows
    assert raced[0].model.hyperparameters.embedding_learning_rate == 0.2
    assert raced[0].model.validation.ne <= whole[0].model.validation.ne
    slow = folder / "baselines" / "lr-rate-1e-06"
    assert 0.5 * rows <= read_json(slow / "trained.json")["samples_seen"] < rows
    shutil.rmtree(slow)  # as a kill leaves it: the other is done, and what it was like is known
    again = train_baselines(context_of(dataset, folder, baselines="lr"))
    assert again[0].model == raced[0].model
    assert read_json(slow / "trained.json")["samples_seen"] < rows


def test_those_not_asked_for_and_that_of_the_model_itself_are_left_out(dataset: Dataset, tmp_path: Path) -> None:
    assert train_baselines(context_of(dataset, tmp_path, baselines="none")) == []
    assert train_baselines(context_of(dataset, tmp_path, baselines="fm", model="fm")) == []
    assert not (tmp_path / "baselines").exists()


def test_what_a_limit_leaves_no_room_for_is_left_out(dataset: Dataset, tmp_path: Path) -> None:
    assert train_baselines(context_of(dataset, tmp_path, answers=[ENOUGH] * 9)) == []


def test_tables_that_one_process_cannot_hold_are_trained_in_several(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, spec = context_of(dataset, tmp_path), baseline_spec("fm", dataset.features)
    run.processes = 2
    assert placement_of_one(run, spec) == PLACEMENT
    monkeypatch.setattr("shunter.planner.candidates.embedding_memory.free_memory_bytes", lambda: 1_000)
    assert placement_of_one(run, spec).processes == 2
    run.processes = 1
    assert placement_of_one(run, spec) == PLACEMENT


def test_a_baseline_may_be_a_member_and_may_win(dataset: Dataset, tracking_root: Path, tmp_path: Path) -> None:
    run = context_of(dataset, tmp_path)
    found = train_baselines(run)
    alone = run.request.model_copy(update={"ensemble_size": 1})
    best = min(found, key=lambda one: one.model.validation.ne).model
    assert candidates_of([], found, run.request) == [one.model for one in found]
    assert candidates_of([], found, alone) == [best]
    parent = start_run_tree(TrainRequest(), dataset)
    result = combine_members(dataset, [best], PLACEMENT, tmp_path / "ensemble", parent_run_id=parent)
    figures = {one.name: one for one in compare_baselines(dataset, found, result, Execution(batch_size=128))}
    assert figures[best.name].is_result
    assert figures[best.name].saving == 0
    assert "is the result" in figures[best.name].summary
    assert figures[best.name].ne == pytest.approx(result.test.ne)
    metrics = baseline_metrics(list(figures.values()), result.test)
    assert metrics["baseline.base_rate.ne"] == 1
    assert metrics[f"baseline.{best.name}.test.ne"] == pytest.approx(result.test.ne)
    assert {f"baseline.{name}.train_seconds" for name in ("lr", "fm")} <= metrics.keys()


@pytest.mark.parametrize(("shift", "words"), [(0.2, "beats"), (-0.2, "is ahead of"), (0.0, "is level with")])
def test_the_verdict_follows_the_interval(shift: float, words: str) -> None:
    random = np.random.default_rng(1)
    theirs = random.gamma(2.0, 0.3, 2_000)
    saving, low, high = relative_saving(theirs, theirs - shift * theirs + random.normal(0, 0.2, 2_000), None, None, 0)
    assert saving == pytest.approx(shift, abs=0.03)
    assert low < saving < high
    figures = BASELINE.model_copy(update={"saving": saving, "saving_low": low, "saving_high": high})
    assert words in figures.summary


def test_rows_of_one_user_count_together_and_weights_are_heeded() -> None:
    random = np.random.default_rng(2)
    theirs, ours = np.repeat(random.gamma(2.0, 0.3, 100), 20), np.repeat(random.gamma(2.0, 0.28, 100), 20)
    by_row = relative_saving(theirs, ours, None, None, 0)
    by_user = relative_saving(theirs, ours, None, np.repeat(np.arange(100), 20), 0)
    assert by_row[0] == pytest.approx(by_user[0])
    assert by_user[2] - by_user[1] > 2 * (by_row[2] - by_row[1])
    half = np.repeat([1.0, 0.0], 1_000)
    assert relative_saving(theirs, ours, half, None, 0)[0] == pytest.approx(
        1 - ours[:1_000].sum() / theirs[:1_000].sum()
    )


@pytest.mark.parametrize("tasks_count", [0, 2, 5, 17])
@pytest.mark.parametrize("family", CLICK_BASELINES)
def test_rows_are_wide_enough_for_every_label(family: str, tasks_count: int) -> None:
    known = features_of(1, 2)
    features = Features(
        dense=known.dense, categorical=known.categorical, tasks=tuple(f"t{i}" for i in range(tasks_count))
    )
    spec = baseline_spec(family, features)
    assert spec.embedding_dim >= features.outputs
    build_layers(spec, features)  # refuses rows that are too narrow


def test_trainings_stay_short_whatever_the_log(dataset: Dataset) -> None:
    def of(rows: int) -> Dataset:
        splits = {**dataset.splits, "train": SplitStatistics(rows=rows, positives=1)}
        return replace(dataset, splits=splits)

    assert [baseline_epochs(of(rows), 9) for rows in (1_000, 1_000_000, 50_000_000)] == [9, 5, 1]


def test_the_option_names_families_and_tells_runs_apart(dataset: Dataset) -> None:
    assert set(CLICK_BASELINES) <= set(MODEL_FAMILIES.names)
    assert set(RANKING_BASELINES) <= set(RANKING_MODELS.names_with(is_solved=True))
    assert parse_baselines("fm, lr") == ("fm", "lr")
    assert TrainRequest(baselines="none").training.baselines == "none"
    for text in ("dlrm", "", "lr,none"):
        with pytest.raises(ValidationError, match="is no baseline: use lr, fm"):
            TrainRequest(baselines=text)
    requests = [TrainRequest(), *(TrainRequest(baselines=text) for text in ("none", "lr"))]
    assert len({RunState(request, dataset, "host").directory for request in requests}) == 3
