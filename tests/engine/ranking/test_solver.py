"""What is solved instead of trained: judged pass by pass, kept at its best, stored and scored again."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from shunter.engine.config import Execution, Schedule
from shunter.engine.executors.in_process import InProcessExecutor
from shunter.engine.job import Hooks, TrainingJob
from shunter.engine.ranking import solver
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.evaluation import RankingMetrics, evaluate_ranking
from shunter.engine.ranking.solver import solve_ranking
from shunter.engine.ranking.storage import StoredRanker, load_ranker, save_ranker
from shunter.engine.ranking.trainer import RankingData
from shunter.engine.stopping import StopKind
from shunter.errors import CheckpointError, ModelTooLargeError
from shunter.hardware.types import Placement
from shunter.model_families import RANKING_MODELS
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import Ranker
from tests.engine.ranking.data import ranking_data, write_clicks
from tests.engine.reasons import ENOUGH

RATES, EXECUTION = RankingHyperparameters(), Execution(threads=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> RankingData:
    return ranking_data(tmp_path_factory.mktemp("clicks"))


def job(data: RankingData, family: str, schedule: Schedule = Schedule(max_epochs=4, patience=4)) -> TrainingJob:  # noqa: B008
    return TrainingJob(data, graph_spec(family, embedding_dim=8), RATES, EXECUTION, schedule)


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=True))
def test_it_ranks_the_validation_part_as_its_report_says(family: str, data: RankingData) -> None:
    placement = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
    result = InProcessExecutor(placement).run(job(data, family))
    assert isinstance(result.model, Ranker)
    assert result.validation == evaluate_ranking(result.model, data.validation, data.seen, name="validation")
    assert result.validation.ndcg20 == max(report.validation.ndcg20 for report in result.history)
    assert result.samples_seen == len(result.history) * data.graph.edges
    by_popularity = evaluate_ranking(result.model.by_popularity(), data.validation, data.seen, name="validation")
    assert result.validation.ndcg20 >= by_popularity.ndcg20 + (0.0 if family == "popularity" else 0.1)


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=True))
def test_stored_and_loaded_it_scores_bit_by_bit_the_same(family: str, data: RankingData, tmp_path: Path) -> None:
    result = solve_ranking(job(data, family))
    features = write_clicks(tmp_path / "clicks").features
    assert isinstance(result.model, Ranker)
    spec = graph_spec(family, embedding_dim=8)
    save_ranker(StoredRanker(ranker=result.model, spec=spec, features=features, user="user", item="item"), tmp_path)
    loaded = load_ranker(tmp_path)
    users = torch.arange(data.graph.users)
    assert torch.equal(loaded.ranker.all_scores(users), result.model.all_scores(users))
    assert loaded.spec == spec
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match="damaged"):
        load_ranker(tmp_path)


def test_only_an_iterative_model_makes_several_passes_and_it_stops_by_patience(data: RankingData) -> None:
    assert len(solve_ranking(job(data, "ease")).history) == 1
    long = replace(job(data, "ials"), schedule=Schedule(max_epochs=60, patience=2))
    result = solve_ranking(long)
    assert result.stop_reason.kind is StopKind.PATIENCE
    figures = [report.validation.ndcg20 for report in result.history]
    gained_at, gained = 0, 0.0
    for epoch, figure in enumerate(figures, 1):
        if figure > gained * (1 + solver.LEAST_GAIN):
            gained_at, gained = epoch, figure
    assert len(figures) == gained_at + 2 < 60
    assert result.best_epoch == 1 + figures.index(max(figures))


def test_a_gain_that_is_hardly_one_lets_patience_run_on(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = iter([0.1, 0.2, 0.2002, 0.2003, 0.3])
    evaluated = lambda *_: RankingMetrics(recall20=0.0, ndcg20=next(figures), users=1)  # noqa: E731
    monkeypatch.setattr(RankingData, "evaluate", evaluated)
    result = solve_ranking(job(data, "ials", Schedule(max_epochs=5, patience=2)))
    assert result.stop_reason.kind is StopKind.PATIENCE
    assert (len(result.history), result.best_epoch, result.validation.ndcg20) == (4, 4, 0.2003)


def test_a_budget_ends_it_after_a_pass(data: RankingData) -> None:
    result = solve_ranking(job(data, "ials"), Hooks(should_stop=lambda: ENOUGH))
    assert (len(result.history), result.stop_reason) == (1, ENOUGH)


def test_what_is_larger_than_memory_is_refused(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "available_memory_bytes", lambda device: 1_000)
    with pytest.raises(ModelTooLargeError):
        solve_ranking(job(data, "ease"))
