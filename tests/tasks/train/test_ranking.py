"""A graph model from raw rows to the registry: trained, tracked, tested once, and scoring raw rows again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from shunter.engine.config import Schedule
from shunter.engine.data.dataset import Dataset
from shunter.engine.execution import execution_of
from shunter.engine.job import TrainingJob
from shunter.engine.ranking.config import RankingHyperparameters
from shunter.engine.ranking.evaluation import evaluate_ranking
from shunter.engine.ranking.interactions import read_interactions
from shunter.engine.ranking.result import TrainedRanker
from shunter.engine.ranking.storage import load_ranker
from shunter.errors import CheckpointError, DataError
from shunter.hardware.types import Placement
from shunter.ingestion.request import ingest_request
from shunter.model_families import RANKING_MODELS
from shunter.models.graph import graph_spec
from shunter.planner.describe import describe
from shunter.reporting.card.ranking_baselines import evaluate_on_test
from shunter.requests import TrainRequest
from shunter.tasks.card.ranking import CARD, write_ranking_card
from shunter.tasks.train import train_model
from shunter.tracking.registry.models import load_champion, register_model
from shunter.tracking.runs import start_run_tree
from shunter.tracking.store import tracking_uri

PLACEMENT = Placement(accelerator="cpu", threads=1, precision="fp32", batch_size=64)
SCHEDULE = Schedule(max_epochs=8, patience=8)
SPEC = graph_spec(embedding_dim=8, layers=2)
LEARNED_WITH = RankingHyperparameters(learning_rate=0.1)


def clicks(rows: int = 1_500) -> pd.DataFrame:
    """Users like the items of their own group; `user loner` never likes any."""
    random = np.random.default_rng(0)
    user, item = random.integers(0, 30, rows), random.integers(0, 24, rows)
    likes = random.random(rows) < np.where(user % 3 == item % 3, 0.9, 0.05)
    return pd.DataFrame(
        {
            "like": (likes & (user > 0)).astype(int),
            "who": ["user loner" if one == 0 else f"user {one}" for one in user],
            "what": [f"item {one}" for one in item],
            "genre": [f"genre {one % 3}" for one in item],
        }
    )


@pytest.fixture
def request_of(tmp_path: Path):
    def make(**schema) -> TrainRequest:
        clicks().to_parquet(tmp_path / "clicks.parquet")
        columns = {"label": "like", "categorical": ["who", "what", "genre"], "user": "who", "item": "what"}
        (tmp_path / "schema.json").write_text(json.dumps({**columns, **schema}))
        return TrainRequest(
            data=str(tmp_path / "clicks.parquet"), schema_file=str(tmp_path / "schema.json"), model="lightgcn"
        )

    return make


@pytest.fixture
def dataset(request_of) -> Dataset:
    return ingest_request(request_of())[0]


def train(dataset: Dataset, folder: Path, parent: str | None = None, **others) -> TrainedRanker:
    job = TrainingJob(dataset, SPEC, LEARNED_WITH, execution_of(PLACEMENT), SCHEDULE)
    return train_model(job, PLACEMENT, folder, parent_run_id=parent, **others)


def test_from_raw_rows_to_a_champion_that_scores_them(dataset: Dataset, request_of, tmp_path: Path) -> None:
    parent = start_run_tree(request_of(), dataset)
    trained = train(dataset, tmp_path / "model", parent)
    register_model(parent, dataset, trained.directory, "graph", metrics={})
    champion = load_champion("graph")
    rows = clicks()
    scores = np.asarray(champion.predict(rows[["who", "what", "genre"]]))
    known = rows["who"] != "user loner"
    own = rows["who"].str[5:].where(known, "0").astype(int) % 3 == rows["genre"].str[-1].astype(int)
    assert scores[known & own].mean() > scores[known & ~own].mean() + 0.5
    strangers = pd.DataFrame(
        {"who": ["never seen", "user loner", "user 1"], "what": ["item 1", "item 1", "never seen"]}
    )
    scored = np.asarray(champion.predict(strangers.assign(genre="genre 1")))
    assert np.isfinite(scored).all()
    assert scored[0] == scored[1]  # both by the popularity of item 1
    of_one = np.asarray(champion.predict(pd.DataFrame({"who": "user 1", "what": rows["what"].unique(), "genre": ""})))
    assert scored[2] == pytest.approx(of_one.min())
    assert champion.predict(rows.head(0)[["who", "what", "genre"]]).shape == (0,)


def test_its_figures_are_in_mlflow_under_the_convention(dataset: Dataset, request_of, tmp_path: Path) -> None:
    parent = start_run_tree(request_of(), dataset)
    trained = train(dataset, tmp_path / "model", parent)
    trained, _ = write_ranking_card(parent, dataset, trained, reason="The first.")
    card = Path(download_artifacts(run_id=parent, artifact_path=CARD, tracking_uri=tracking_uri())).read_text()
    assert f"| NDCG@20 | {trained.test.ndcg20:.4f} (" in card
    assert trained.popularity is not None
    assert f"| NDCG@20 of the items by their popularity, the baseline | {trained.popularity.ndcg20:.4f} |" in card
    assert trained.popularity.users == trained.test.users
    assert trained.gain is not None
    assert 0 < trained.gain[0] < trained.test.ndcg20 - trained.popularity.ndcg20 < trained.gain[1]
    assert trained.popularity.ndcg20 < trained.test.ndcg20  # what a user likes follows from the genre alone
    assert "\nThe first.\n" in card
    found = "The best of 24 items are found by all scores (exact): an index has no lists of 100 to offer below 4,096."
    assert found in card
    assert MlflowClient(tracking_uri()).get_run(parent).data.tags["ranking.index"] == found
    assert f"| fingerprint | {dataset.fingerprint} |" in card
    assert f"| parameters | {trained.parameters:,} |" in card
    assert "genre of the item" in card
    run = MlflowClient(tracking_uri()).get_run(trained.run_id or "")
    assert run.data.metrics["quality.ndcg20"] == pytest.approx(trained.validation.ndcg20)
    assert run.data.metrics["quality.test.recall20"] == pytest.approx(trained.test.recall20)
    assert run.data.metrics["quality.test.users"] == trained.test.users
    assert run.data.metrics["training.best_epoch"] == trained.best_epoch
    assert run.data.metrics["throughput.samples_per_second"] > 0
    assert run.data.params["model.family"] == "lightgcn"
    assert run.data.params["model.layers"] == "2"
    assert run.data.tags["energy.source"] == trained.energy.method
    curve = MlflowClient(tracking_uri()).get_metric_history(trained.run_id or "", "quality.train.bpr_loss")
    assert [point.step for point in curve] == [report.epoch for report in trained.history]


def test_what_was_seen_in_training_and_validation_is_not_ranked_for_the_test(dataset: Dataset, tmp_path: Path) -> None:
    trained, _ = evaluate_on_test(dataset, train(dataset, tmp_path / "model"))
    seen = read_interactions(dataset, "train").union(read_interactions(dataset, "validation"))
    test = read_interactions(dataset, "test")
    assert trained.test == evaluate_ranking(load_ranker(tmp_path / "model").ranker, test, seen, name="test")
    only_train = evaluate_ranking(
        load_ranker(tmp_path / "model").ranker, test, read_interactions(dataset, "train"), name="test"
    )
    assert only_train != trained.test  # what was liked in validation would have been ranked


def test_a_finished_training_is_returned_and_another_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    trained = train(dataset, tmp_path / "model")
    assert train(dataset, tmp_path / "model") == trained
    with pytest.raises(CheckpointError, match="holds another finished training"):
        train_model(
            TrainingJob(dataset, SPEC, RankingHyperparameters(), execution_of(PLACEMENT), SCHEDULE),
            PLACEMENT,
            tmp_path / "model",
        )


def test_an_interrupted_training_goes_on_where_it_stopped(dataset: Dataset, tmp_path: Path) -> None:
    whole = train(dataset, tmp_path / "whole")
    calls: list[int] = []

    def interrupt() -> None:
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(dataset, tmp_path / "model", should_stop=interrupt)
    resumed = train(dataset, tmp_path / "model")
    assert [report.train_loss for report in resumed.history] == [report.train_loss for report in whole.history]


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=False))
def test_the_selector_is_told_what_a_step_asks_for(family: str, dataset: Dataset) -> None:
    workload = describe(dataset, graph_spec(family=family, layers=2))
    edges = len(read_interactions(dataset, "train"))
    assert workload.train_samples == edges
    assert list(workload.dense) == ["fp32"]
    passes_messages = family != "ultragcn"
    assert (workload.dense["fp32"].traffic_bytes_per_step > 2 * 2 * edges * 64 * 4) == passes_messages
    whole = [one for one in workload.matmuls if one.batch_axis == "none"]
    assert bool(whole) == (family not in ("lightgcn", "xsimgcl", "ultragcn", "sasrec"))
    of_samples = [one for one in workload.matmuls if one.batch_axis == "m"]
    assert len(of_samples) == (2 if family == "sasrec" else 1)  # the scores, and what each place of a sequence takes
    assert all(one.sizes(64) == one.sizes(512) for one in whole)


def test_a_split_by_time_without_known_users_is_said(request_of, tmp_path: Path) -> None:
    frame = clicks().assign(time=range(1_500))
    frame.loc[frame.index >= 1_200, "who"] = "newcomer"
    request = request_of(time="time")
    frame.to_parquet(tmp_path / "clicks.parquet")
    dataset, _ = ingest_request(request)
    with pytest.raises(DataError, match="leave out time in the schema"):
        train(dataset, tmp_path / "model")


@pytest.mark.parametrize("family", RANKING_MODELS.names_with(is_solved=True))
def test_what_is_solved_goes_from_raw_rows_to_a_champion_too(
    family: str, dataset: Dataset, request_of, tmp_path: Path
) -> None:
    parent = start_run_tree(request_of(), dataset)
    job = TrainingJob(dataset, graph_spec(family), LEARNED_WITH, execution_of(PLACEMENT), SCHEDULE)
    trained: TrainedRanker = train_model(job, PLACEMENT, tmp_path / "model", parent_run_id=parent)
    assert train_model(job, PLACEMENT, tmp_path / "model") == trained
    assert describe(dataset, job.spec).train_samples == len(read_interactions(dataset, "train"))
    run = MlflowClient(tracking_uri()).get_run(trained.run_id or "")
    assert "model.learning_rate" not in run.data.params
    register_model(parent, dataset, trained.directory, family, metrics={})
    rows = clicks().loc[lambda frame: frame["who"] != "user loner", ["who", "what", "genre"]]
    scores = np.asarray(load_champion(family).predict(rows))
    own = np.array([int(who[5:]) % 3 == int(genre[-1]) for who, genre in zip(rows["who"], rows["genre"], strict=True)])
    assert family == "popularity" or scores[own].mean() > scores[~own].mean()


@pytest.mark.parametrize("family", ["lightgcn", "ease"])
def test_what_is_learned_again_has_the_validation_part_among_its_edges(
    family: str, dataset: Dataset, tmp_path: Path
) -> None:
    job = TrainingJob(dataset, graph_spec(family, embedding_dim=8), LEARNED_WITH, execution_of(PLACEMENT), SCHEDULE)
    whole = replace(job, schedule=Schedule(max_epochs=2, patience=2), learn_validation=True)
    trained: TrainedRanker = train_model(whole, PLACEMENT, tmp_path / "whole")
    assert trained.best_epoch == len(trained.history) == (2 if family == "lightgcn" else 1)
    assert trained.validation.users == trained.test.users == 0
    trained, _ = evaluate_on_test(dataset, trained)
    ranker = load_ranker(tmp_path / "whole").ranker
    both = read_interactions(dataset, "train").union(read_interactions(dataset, "validation"))
    assert ranker.user_degrees.sum().item() == len(both) > len(read_interactions(dataset, "train"))
    assert trained.test == evaluate_ranking(ranker, read_interactions(dataset, "test"), both, name="test")
