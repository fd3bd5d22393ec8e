"""The best items for each user of a file, against the scores of its pairs one by one."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from shunter.engine.ranking import item_index
from shunter.engine.ranking.interactions import read_graph
from shunter.engine.ranking.storage import StoredRanker, save_ranker
from shunter.errors import RequestError
from shunter.flows.command import top as top_module
from shunter.flows.command.predict import predict_file
from shunter.flows.command.top import best_items_of_file
from shunter.ingestion.request import ingest_request
from shunter.models.graph import graph_spec
from shunter.models.graph.ranker import VectorRanker
from shunter.requests import IndexChoice, TrainRequest
from shunter.tracking.registry.models import register_model
from shunter.tracking.runs import start_run_tree

ROWS = 300


@pytest.fixture
def log(shunter_home: Path, empty_database: Path, tmp_path: Path) -> pd.DataFrame:
    """A log, and a registered model "shop" whose vectors are random."""
    (shunter_home / "mlflow").mkdir(parents=True)
    shutil.copy(empty_database, shunter_home / "mlflow" / "mlflow.db")
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "click": random.integers(0, 2, ROWS),
            "user": [f"{number:03}" for number in random.integers(0, 9, ROWS)],
            "item": random.integers(0, 25, ROWS) + 2**60,
        }
    )
    frame.to_parquet(tmp_path / "log.parquet")
    schema = {"label": "click", "categorical": ["user", "item"], "user": "user", "item": "item"}
    (tmp_path / "schema.json").write_text(json.dumps({**schema, "vocabulary": {"min_count": 1}}))
    request = TrainRequest(data=str(tmp_path / "log.parquet"), schema_file=str(tmp_path / "schema.json"))
    dataset, _ = ingest_request(request)
    graph = read_graph(dataset)
    degrees = [torch.from_numpy(one) for one in (graph.user_degrees(), graph.item_degrees())]
    torch.manual_seed(0)
    ranker = VectorRanker(torch.randn(graph.users, 4), torch.randn(graph.items, 4), *degrees)
    stored = StoredRanker(
        ranker=ranker, spec=graph_spec("twotower", embedding_dim=4), features=dataset.features, user="user", item="item"
    )
    save_ranker(stored, tmp_path / "model")
    register_model(start_run_tree(request, dataset), dataset, tmp_path / "model", "shop", metrics={})
    return frame


def test_they_are_those_of_highest_score_among_what_the_user_has_not_seen(
    log: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_module, "BLOCK_ROWS", 64)
    monkeypatch.setattr("shunter.tracking.registry.best_items.USERS_AT_ONCE", 4)
    few = pd.concat([log.head(40), pd.DataFrame({"click": [0], "user": ["never seen"], "item": [7]})])
    few.to_parquet(tmp_path / "few.parquet")
    told = best_items_of_file("shop", tmp_path / "few.parquet", str(tmp_path / "best.parquet"), 5)
    found = pl.read_parquet(tmp_path / "best.parquet")
    users, items = list(dict.fromkeys(few["user"])), [item for item in dict.fromkeys(few["item"]) if item != 7]
    assert told.rows == len(users)
    pairs = pd.MultiIndex.from_product([users, items], names=["user", "item"]).to_frame(index=False)
    pairs.to_parquet(tmp_path / "pairs.parquet")
    predict_file("shop", tmp_path / "pairs.parquet", str(tmp_path / "scores.parquet"))
    scores = pl.read_parquet(tmp_path / "scores.parquet")["score"].to_list()
    pairs["score"] = scores
    expected = []
    for user in users:
        beside = set(few.loc[few["user"] == user, "item"].to_list())
        own = pairs.loc[(pairs["user"] == user) & ~pairs["item"].isin(list(beside))]
        best = sorted(zip(-own["score"], own.index, own["item"], strict=True))[:5]
        expected += [(user, rank + 1, str(item)) for rank, (_, _, item) in enumerate(best)]
    assert found.select("user", "rank", "item").rows() == expected
    score_of = {
        (user, str(item)): score for user, item, score in zip(pairs["user"], pairs["item"], scores, strict=True)
    }
    for user, item, score in found.select("user", "item", "score").rows():
        assert score == pytest.approx(score_of[user, item], rel=1e-5)


def test_who_has_seen_all_gets_nothing_and_a_file_without_rows_nobody(log: pd.DataFrame, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text(f"user,item\n000,{2**60}\n000,{2**60 + 1}\n001,{2**60}\n")
    best_items_of_file("shop", tmp_path / "one.csv", str(tmp_path / "best.csv"), 3)
    assert [line[:23] for line in (tmp_path / "best.csv").read_text().splitlines()[1:]] == [f"001,1,{2**60 + 1}"[:23]]
    (tmp_path / "none.csv").write_text("user,item\n")
    assert best_items_of_file("shop", tmp_path / "none.csv", str(tmp_path / "nobody.csv"), 3).rows == 0
    assert (tmp_path / "nobody.csv").read_text() == "user,rank,item,score\n"


def test_a_wrong_wish_is_told(log: pd.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--top"):
        best_items_of_file("shop", tmp_path / "log.parquet", str(tmp_path / "best.csv"), 0)
    with pytest.raises(RequestError, match=r"best\.txt"):
        best_items_of_file("shop", tmp_path / "log.parquet", str(tmp_path / "best.txt"), 3)


def test_an_index_is_taken_where_it_pays_and_the_command_says_how_the_items_were_found(
    log: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.parquet"
    for name, value in (("SEARCHED_SHARE", 1), ("SPARE_ITEMS", 1), ("LARGE_CATALOGUE", 25), ("PAYING_USERS", 9)):
        monkeypatch.setattr(item_index, name, value)
    exact = best_items_of_file("shop", path, str(tmp_path / "exact.parquet"), 2, index=IndexChoice.EXACT)
    assert exact.how == "The best of 25 items are found by all scores (exact)."
    found = best_items_of_file("shop", path, str(tmp_path / "found.parquet"), 2)
    assert "come from an index (approximate), built in" in found.how
    assert "a share of the exact best of 1.000 at 2 (measured on 5 users)" in found.how
    same = [pl.read_parquet(tmp_path / f"{name}.parquet").drop("score") for name in ("exact", "found")]
    assert same[0].equals(same[1])
    monkeypatch.setattr(item_index, "LEAST_RECALL", 1.1)
    given_up = best_items_of_file("shop", path, str(tmp_path / "given_up.parquet"), 2)
    assert given_up.how.startswith(
        "The best of 25 items are found by all scores (exact): The approximate index finds a share of 1.000 of"
    )
    with pytest.raises(RequestError, match=r"1\.000"):
        best_items_of_file("shop", path, str(tmp_path / "no.parquet"), 2, index=IndexChoice.APPROXIMATE)
