"""A ranking model as an object: its lists are those of the command; what its kind cannot do has a code."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score

from shunter.engine.checkpoint.storage import save_model
from shunter.engine.ranking.interactions import read_graph
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.errors import RequestError, UnsupportedError
from shunter.flows.command.top import best_items_of_file
from shunter.flows.python.frames import schema_path, store_frame
from shunter.flows.python.recommender import Recommender
from shunter.ingestion.request import ingest_request
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.models.registry import build_model, model_spec
from shunter.requests import TrainRequest
from shunter.tracking.registry.models import register_model
from shunter.tracking.reports import log_request
from shunter.tracking.runs import start_run_tree
from tests.flows.python.shop import SCHEMA, shop_log

ROWS = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    """A home with a registered model "shop" whose vectors are random, and the log that it knows."""
    folder = tmp_path_factory.mktemp("ranking")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHUNTER_HOME", str(folder))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        (folder / "mlflow").mkdir()
        shutil.copy(empty_database, folder / "mlflow" / "mlflow.db")
        shop_log(ROWS).to_parquet(folder / "log.parquet")
        (folder / "schema.json").write_text(json.dumps(SCHEMA))
        request = TrainRequest(data=str(folder / "log.parquet"), schema_file=str(folder / "schema.json"))
        dataset, _ = ingest_request(request)
        graph = read_graph(dataset)
        degrees = [torch.from_numpy(one) for one in (graph.user_degrees(), graph.item_degrees())]
        torch.manual_seed(0)
        ranker = VectorRanker(torch.randn(graph.users, 4), torch.randn(graph.items, 4), *degrees)
        spec = graph_spec("twotower", embedding_dim=4)
        stored = StoredRanker(ranker=ranker, spec=spec, features=dataset.features, user="user", item="item")
        save_ranker(stored, folder / "model")
        run_id = start_run_tree(request, dataset)
        log_request(run_id, request, "train")
        register_model(run_id, dataset, folder / "model", "shop", metrics={})
    return folder


@pytest.fixture
def model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Recommender:
    monkeypatch.setenv("SHUNTER_HOME", str(folder))
    return Recommender.load("shop@champion")


def test_best_items_are_those_of_the_command(model: Recommender, folder: Path, tmp_path: Path) -> None:
    best_items_of_file("shop", folder / "log.parquet", str(tmp_path / "best.parquet"), 3)
    wanted = pl.read_parquet(tmp_path / "best.parquet")
    log = pd.read_parquet(folder / "log.parquet")
    for found in (model.rank(k=3), model.rank(k=3, seen=log), model.rank(log["user"].unique(), 3)):
        assert found["user"].tolist() == wanted["user"].to_list()
        assert found["item"].astype(str).tolist() == wanted["item"].to_list()
        np.testing.assert_array_equal(found["score"], wanted["score"])
    assert pd.api.types.is_integer_dtype(model.rank(k=1)["item"])


def test_ranking_is_limited_to_some_users_and_items(model: Recommender) -> None:
    found = model.rank(["u1", "nobody"], 2, items=[3, 4, 5, 999])
    assert {*found["user"]} == {"u1", "nobody"}
    assert {*found["item"]} <= {3, 4, 5}
    nothing_seen = pd.DataFrame({"user": ["u2"], "item": [4]})
    assert model.rank("u1", 5, seen=nothing_seen)["item"].tolist() == [4]
    with pytest.raises(RequestError):
        model.rank(k=0)


def test_similar_items_have_the_nearest_vectors(model: Recommender) -> None:
    vectors = model.embed(range(20))
    assert vectors.shape == (20, 4)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = unit[7] @ unit.T
    found = model.similar(7, 3)
    best = [item for item in np.argsort(-scores) if item != 7][:3]
    assert found["similar"].tolist() == best
    np.testing.assert_allclose(found["score"], scores[best], rtol=1e-5)
    assert model.embed(["u1"], column="user").shape == (1, 4)


def test_new_interactions_are_ranked(model: Recommender) -> None:
    found = model.evaluate(shop_log(200, seed=1))
    assert 0 <= found.loc[0, "ndcg20"] <= 1
    assert found.loc[0, "users"] > 0


def test_what_its_kind_cannot_do_has_a_code(model: Recommender, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as refused:
        model.explain(shop_log(2))
    assert (refused.value.code, refused.value.method) == ("unsupported", "explain")
    with pytest.raises(UnsupportedError):
        model.embed([0.5], column="price")
    exported = Recommender.load(model.save(tmp_path / "exported"))  # it has no run, so nobody knows its log
    with pytest.raises(UnsupportedError):
        exported.rank(k=3)
    assert len(exported.rank(k=3, seen=folder / "log.parquet"))


def test_scores_are_those_of_pairs(model: Recommender) -> None:
    rows = shop_log(5)
    scores = model.predict(rows)
    vectors = model.embed(rows["user"], column="user") * model.embed(rows["item"])
    np.testing.assert_allclose(scores, vectors.sum(1), rtol=1e-5)


def test_several_labels_have_a_column_and_a_row_each(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHUNTER_HOME", str(folder))
    log = shop_log(ROWS).assign(buy=lambda rows: (rows["price"] > 0.5).astype(int))
    log.loc[:9, "buy"] = None  # not every row has the second label
    schema = {**{name: SCHEMA[name] for name in ("numeric", "categorical")}, "labels": ["click", "buy"]}
    request = TrainRequest(data=str(store_frame(log, "two")), schema_file=schema_path(schema))
    dataset, _ = ingest_request(request)
    spec = model_spec(embedding_dim=4, bottom_widths=(8,), top_widths=(8,))
    save_model(build_model(spec, dataset.features, seed=1).eval(), folder / "two")
    register_model(start_run_tree(request, dataset), dataset, folder / "two", "two", metrics={})
    model = Recommender.load("two")
    scores = model.predict(log)
    assert isinstance(scores, pd.DataFrame)
    assert scores.columns.tolist() == ["click", "buy"]
    found = model.evaluate(log, schema=schema)
    assert found["rows"].to_dict() == {"click": ROWS, "buy": ROWS - 10}
    has_both = log["buy"].notna()
    assert found.loc["buy", "auc"] == pytest.approx(
        roc_auc_score(log.loc[has_both, "buy"], scores.loc[has_both, "buy"])
    )
    assert model.explain(log.head(2)).shape == (2, 3)
    assert model.rank(log[["user"]].head(1), 2, items=log[["item", "price"]].head(5))["rank"].tolist() == [1, 2]
