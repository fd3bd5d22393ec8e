"""Baselines and settings of a graph model: tried, the best chosen by validation alone, learned again, gone on with."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from shunter.engine.checkpoint.checked_files import read_json
from shunter.engine.data.dataset import Dataset
from shunter.engine.ranking import solver
from shunter.engine.ranking.fusion import Fusion
from shunter.engine.ranking.interactions import read_interactions
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import load_ranker
from shunter.engine.stopping import StopKind, StopLimit, StopReason
from shunter.engine.trained_model import FILE
from shunter.hardware.types import Placement
from shunter.models.graph.fusion import FusedRanker
from shunter.reporting.card.ranking_baselines import (
    RankingEvaluator,
    compare_rankings,
    evaluate_on_test,
    ranking_baseline_metrics,
)
from shunter.requests import CheckpointRequest, TrainRequest
from shunter.search.minutes import Minutes
from shunter.settings import Settings
from shunter.tasks import fusion, rankers
from shunter.tasks.fusion import fuse
from shunter.tasks.rankers import Purpose, best_of, retrain_best, retrain_with_validation, train_rankers, try_settings
from shunter.tasks.train import train_model
from tests.engine.ranking.data import write_clicks
from tests.engine.reasons import ENOUGH, HandClock

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return write_clicks(tmp_path / "clicks")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is trained, without Prefect and MLflow."""
    names: list[str] = []

    def train(job: Any, placement: Placement, directory: Path, **options: Any) -> TrainedRanker:
        names.append(options["name"])
        kept = ("name", "should_stop", "watch")
        return train_model(job, placement, directory, **{name: options[name] for name in kept})

    monkeypatch.setattr(rankers, "train_member", train)
    monkeypatch.setattr(rankers, "expect", lambda *_: None)
    return names


EXPLORED = StopReason(StopKind.EXPLORATION, StopLimit.TIME, {"multiple": 2.0})


def run_of(
    dataset: Dataset,
    folder: Path,
    *,
    exhausted: StopReason | None = None,
    explored: StopReason | None = None,
    **options: Any,
) -> Any:
    return SimpleNamespace(
        cluster=None,
        request=TrainRequest(max_epochs=2, **{"model": "ials", **options}),
        dataset=dataset,
        profiles=[SimpleNamespace(accelerator=SimpleNamespace(name="cpu"))],
        decision=SimpleNamespace(placement=PLACEMENT, observations=()),
        directory=folder / "run",
        run_id=None,
        baseline_stop=SimpleNamespace(check=lambda: exhausted),
        should_stop=lambda: exhausted or explored,
        checkpoints=CheckpointRequest(),
        better=None,
        pairing=None,
    )


def test_each_baseline_is_the_best_of_its_settings_and_learned_again(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    found = train_rankers(run_of(dataset, tmp_path))
    assert [one.model.spec.family for one in found] == ["popularity", "itemknn", "ease"]  # the model's own is left out
    assert trained[-5:] == ["ease-0", "ease-1", "ease-2", "ease-3", "ease-whole"]
    ease = found[-1]
    assert ease.tried == 4
    both = read_interactions(dataset, "train").union(read_interactions(dataset, "validation"))
    assert load_ranker(ease.model.directory).ranker.user_degrees.sum().item() == len(both)
    assert ease.model.validation.users > 0  # of the setting as it was chosen
    assert found[0].model.validation.ndcg20 < ease.model.validation.ndcg20


def test_baselines_that_are_not_asked_for_are_left_out(dataset: Dataset, trained: list[str], tmp_path: Path) -> None:
    assert train_rankers(run_of(dataset, tmp_path, baselines="none")) == []
    (one,) = train_rankers(run_of(dataset, tmp_path, baselines="popularity"))
    assert one.model.spec.family == "popularity"


def test_a_baseline_that_does_not_fit_into_memory_is_left_out(
    dataset: Dataset, trained: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setattr(solver, "available_memory_bytes", lambda device: 14_000)
    assert train_rankers(run_of(dataset, tmp_path, baselines="ease")) == []
    assert "ease is left out" in caplog.text


def test_settings_are_tried_and_the_best_by_validation_is_kept(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    run = run_of(dataset, tmp_path, model="ease", trials=5)
    tried = try_settings(run)
    assert trained == [f"trial-{number}" for number in range(5)]
    assert len({one.spec for one in tried.trained}) == 5
    assert tried.best.validation.ndcg20 == max(one.validation.ndcg20 for one in tried.trained)
    assert best_of([tried.trained[0], *tried.trained]) is best_of(tried.trained)
    by_recall = try_settings(run_of(dataset, tmp_path / "other", model="ease", trials=5, select_by="recall@20"))
    assert by_recall.best.validation.recall20 == max(one.validation.recall20 for one in by_recall.trained)
    assert by_recall.best.schedule.select_by == "recall@20"
    again = try_settings(run)  # as after an interruption
    assert again.trained == tried.trained


def test_repeated_pairs_are_judged_where_that_is_asked_for(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    (dropped, _), (kept, found) = (
        evaluate_on_test(
            dataset, try_settings(run_of(dataset, tmp_path / repeats, model="ease", trials=1, repeats=repeats)).best
        )
        for repeats in ("drop", "keep")
    )
    for part in ("validation", "test"):
        new, every = getattr(dropped, part), getattr(kept, part)
        assert (new.positives, new.repeats) == (every.positives, every.repeats)
        assert new.pairs + new.repeats + new.left_out <= new.positives
        assert new.pairs < every.pairs
    assert found.figures.mean() == kept.test
    assert TrainedRanker.model_validate({**read_json(kept.directory / FILE), "directory": kept.directory}) == kept


def test_a_limit_that_is_used_up_leaves_the_first_setting_as_it_is(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    run = run_of(dataset, tmp_path, model="ease", exhausted=ENOUGH)
    tried = try_settings(run)
    assert trained == ["trial-0"]
    assert tried.stop_reason == ENOUGH
    assert retrain_with_validation(run, tried.best, Purpose("member", "ranker", run.should_stop)) is tried.best
    assert train_rankers(run) == []


def test_the_search_ends_where_learning_again_and_the_end_need_the_rest_of_the_minutes(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    run = run_of(dataset, tmp_path, model="ease", trials=5, search_minutes=1)
    minutes = Minutes(HandClock(before=50.0), 60.0, of_command=True)
    minutes.reserve_seconds(9.9999, "")
    assert try_settings(run, minutes).stop_reason == minutes.used_up
    assert trained == ["trial-0"]
    minutes.reserve_seconds(-1e6, "")  # as if there was all the time
    assert try_settings(run, minutes).stop_reason is None


def test_the_end_of_an_exploration_ends_no_baseline(dataset: Dataset, trained: list[str], tmp_path: Path) -> None:
    run = run_of(dataset, tmp_path, explored=EXPLORED, baselines="ease")
    assert [one.model.name for one in train_rankers(run)] == ["ease-whole"]
    assert try_settings(run).stop_reason == EXPLORED


def test_a_trained_model_goes_on_for_as_many_epochs_as_were_best(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    run = run_of(dataset, tmp_path, model="lightgcn", trials=1, set=["embedding_dim=8"])
    best = try_settings(run).best
    again = retrain_with_validation(run, best, Purpose("member", "ranker", run.should_stop))
    assert (len(again.history), again.validation) == (best.best_epoch, best.validation)
    assert again.directory.name == "ranker-whole"


def test_what_was_asked_for_is_learned_again_and_set_beside_a_baseline_that_is_ahead(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    run = run_of(dataset, tmp_path, model="lightgcn", trials=1, set=["embedding_dim=8"], baselines="ease")
    purpose = Purpose("member", "ranker", run.should_stop)
    asked = retrain_best(run, try_settings(run), purpose, is_asked=True)
    assert trained == ["trial-0", "ranker-whole"]
    (ease,) = train_rankers(run)
    others = [evaluate_on_test(dataset, one.model)[1].figures for one in (ease, asked)]
    rows = compare_rankings([ease, asked], others, ease.model, others[0])
    assert [(one.name, one.is_asked) for one in rows] == [("ease", False), ("lightgcn", True)]
    assert "the requested model lightgcn" in rows[1].summary


def test_models_that_rank_better_together_are_one_model_of_learned_again_members(
    dataset: Dataset, trained: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(dataset, tmp_path, baselines="ease,itemknn")
    contestants = train_rankers(run)
    validation = contestants[0].chosen.validation
    found = Fusion(("ease", "itemknn"), "z-scores", validation, gain=0.02, low=0.01, high=0.03)
    monkeypatch.setattr(fusion, "choose_fusion", lambda *_, **__: found)
    together = fuse(run, contestants)
    assert together is not None
    model, _ = together
    members = {one.model.spec.family: one for one in contestants}
    assert model.spec.to_dict() == {"family": "fusion", "members": "ease+itemknn", "by": "z-scores"}
    assert (model.name, model.validation) == ("fusion-whole", validation)
    assert model.train_seconds == pytest.approx(sum(one.train_seconds for one in contestants))
    users = torch.arange(1, 4)
    stored = load_ranker(model.directory).ranker
    expected = FusedRanker([load_ranker(members[name].model.directory).ranker for name in found.members], "z-scores")
    assert torch.equal(stored.all_scores(users), expected.all_scores(users))
    assert (model.test.users, model.popularity) == (0, None)
    assert fuse(run_of(dataset, tmp_path, ensemble_size=1), contestants) is None


def test_batches_are_as_many_times_larger_as_a_setting_asks_for(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    def steps(scale: int) -> int:
        options = ["embedding_dim=8", f"batch_scale={scale}"]
        run = run_of(dataset, tmp_path / str(scale), model="lightgcn", trials=1, set=options)
        return try_settings(run).best.history[0].step

    edges = len(read_interactions(dataset, "train"))
    assert [steps(1), steps(4)] == [math.ceil(edges / 64), math.ceil(edges / 256)]


def test_baselines_are_compared_user_by_user_on_the_same_test_part(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    baselines = train_rankers(run_of(dataset, tmp_path))
    evaluator = RankingEvaluator(dataset)
    evaluated = [evaluator.evaluate(one.model) for one in baselines]
    alone = [evaluate_on_test(dataset, one.model)[0].popularity for one in baselines]
    assert [model.popularity for model, _ in evaluated] == alone
    result, others = evaluated[-1][0], [one.figures for _, one in evaluated]
    compared = compare_rankings(baselines, others, result, others[-1])
    by_name = {one.name: one for one in compared}
    assert by_name["ease"].is_result
    assert by_name["ease"].gain == 0.0
    popularity = by_name["popularity"]
    assert popularity.gain == pytest.approx(result.test.ndcg20 - popularity.ndcg20)
    assert 0 < popularity.gain_low < popularity.gain < popularity.gain_high
    assert popularity.summary.startswith("The result beats the baseline popularity")
    metrics = ranking_baseline_metrics(compared)
    assert metrics["baseline.ease.test.ndcg20"] == result.test.ndcg20
    assert metrics["baseline.itemknn.train_seconds"] == baselines[1].train_seconds


def test_a_second_run_trains_no_baseline_and_says_since_when(
    dataset: Dataset, trained: list[str], tmp_path: Path
) -> None:
    first = train_rankers(run_of(dataset, tmp_path / "first"))
    count = len(trained)
    later = train_rankers(run_of(dataset, tmp_path / "second", exhausted=ENOUGH))  # without a second to spare
    assert len(trained) == count
    assert [one.trained_at is not None for one in (*first, *later)] == [False] * 3 + [True] * 3
    assert [one.chosen.validation for one in later] == [one.chosen.validation for one in first]
    for one, other in zip(later, first, strict=True):
        for name in ("model", "chosen"):
            stored, own = (load_ranker(getattr(each, name).directory).ranker.state_dict() for each in (one, other))
            assert all(torch.equal(stored[key], own[key]) for key in own)
    train_rankers(run_of(dataset, tmp_path / "seed", seed=1))
    train_rankers(run_of(dataset, tmp_path / "metric", select_by="recall@20"))
    assert len(trained) == 3 * count


def test_what_a_limit_has_ended_is_not_stored(dataset: Dataset, trained: list[str], tmp_path: Path) -> None:
    run = run_of(dataset, tmp_path, baselines="ease")
    answers = iter([None] * 2)
    run.baseline_stop.check = lambda: next(answers, ENOUGH)
    assert len(train_rankers(run)) == 1
    assert not Settings().baselines_directory.exists()


def test_a_repeated_run_chooses_as_the_first_did(dataset: Dataset, trained: list[str], tmp_path: Path) -> None:
    first = run_of(dataset, tmp_path / "first", baselines="ease")
    train_rankers(first)
    repeat = run_of(dataset, tmp_path / "repeat", baselines="ease")
    choice = Path("rankers", "ease.choice.json")
    (repeat.directory / "rankers").mkdir(parents=True)
    (repeat.directory / choice).write_bytes((first.directory / choice).read_bytes())
    count = len(trained)
    (again,) = train_rankers(repeat)
    assert (len(trained), again.trained_at) == (2 * count, None)
