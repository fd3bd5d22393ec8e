"""The best items for a user over HTTP are those that `shunter predict --top` finds in the log and the request."""

import json
from pathlib import Path

import httpx
import pandas as pd
import polars as pl
import pytest

from shunter.engine.ranking import item_index
from shunter.errors import DataError, RequestError
from shunter.flows.command.top import best_items_of_file
from shunter.requests import IndexChoice
from shunter.serving.errors import RefusedError
from shunter.serving.model_updater import load
from shunter.serving.protocols.invocations import read_table
from shunter.serving.served import Answer
from shunter.serving.table import Table
from tests.flows.test_top import log  # noqa: F401 - a log, and a registered model "shop" that ranks
from tests.serving.conftest import running


def test_they_are_those_of_the_command(log: pd.DataFrame, tmp_path: Path) -> None:  # noqa: F811
    asked = pd.DataFrame({"user": ["003", "003", "never seen"], "item": [log["item"][0], None, None]}, dtype=object)
    whole = pd.concat([log, asked.assign(click=0)])
    whole.astype({"item": str}).replace({"item": {"None": None}}).to_parquet(tmp_path / "whole.parquet")
    best_items_of_file("shop", tmp_path / "whole.parquet", str(tmp_path / "best.parquet"), 4)
    expected = pl.read_parquet(tmp_path / "best.parquet").filter(pl.col("user").is_in(["003", "never seen"]))
    records = json.loads(str(asked.to_json(orient="records")))
    with running("shop", items=tmp_path / "log.parquet", follow_seconds=0) as server:
        url = f"http://127.0.0.1:{server.port}"
        answer = httpx.post(f"{url}/invocations", json={"dataframe_records": records, "params": {"top": 4}})
        inputs = [{"name": "user", "shape": [1], "datatype": "BYTES", "data": ["never seen"]}]
        body = {"inputs": inputs, "parameters": {"top": 4}}
        outputs = httpx.post(f"{url}/v2/models/shop/infer", json=body).json()["outputs"]
    found = pl.DataFrame(answer.json()["predictions"])
    assert found.drop("score").rows() == expected.drop("score").rows()
    assert found["score"].to_list() == pytest.approx(expected["score"].to_list(), rel=1e-5)
    last = expected.filter(pl.col("user") == "never seen")
    kinds = {"user": "BYTES", "rank": "INT64", "item": "BYTES", "score": "FP64"}
    assert {one["name"]: one["datatype"] for one in outputs} == kinds
    assert outputs[2]["data"] == last["item"].to_list()


def test_an_index_answers_where_it_is_asked_for_and_its_recall_is_told(
    log: pd.DataFrame,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 25 items, whose lists are of one or two, all are searched: the answers are the exact ones."""
    asked = {"dataframe_records": [{"user": "003"}, {"user": "never seen"}], "params": {"top": 2}}
    monkeypatch.setattr(item_index, "SEARCHED_SHARE", 50)
    with pytest.raises(RequestError, match="needs more items and users than the 25 items and 9 known users of the log"):
        load("shop", tmp_path / "log.parquet", index=IndexChoice.APPROXIMATE)
    with pytest.raises(RequestError, match="--index"):
        load("shop", index=IndexChoice.APPROXIMATE)
    monkeypatch.setattr(item_index, "SEARCHED_SHARE", 1)
    monkeypatch.setattr(item_index, "SPARE_ITEMS", 1)
    answers = {}
    for choice in (IndexChoice.EXACT, IndexChoice.APPROXIMATE):
        with running("shop", items=tmp_path / "log.parquet", follow_seconds=0, index=choice) as server:
            url = f"http://127.0.0.1:{server.port}"
            answers[choice] = httpx.post(f"{url}/invocations", json=asked).json()["predictions"]
            figures = httpx.get(f"{url}/metrics").text
            items = server.updater.current().items
            assert items is not None
            assert items.search_sentence.startswith(
                f"The best of 25 items {'are' if choice is IndexChoice.EXACT else 'come'}"
            )
            assert ('shunter_index_recall{items="20"} 1.0' in figures) == (choice is IndexChoice.APPROXIMATE)
    exact, found = (pl.DataFrame(answers[choice]) for choice in (IndexChoice.EXACT, IndexChoice.APPROXIMATE))
    assert found.drop("score").rows() == exact.drop("score").rows()
    assert found["score"].to_list() == pytest.approx(exact["score"].to_list(), rel=1e-4)


def test_a_request_without_a_log_ranks_its_own_items(log: pd.DataFrame, tmp_path: Path) -> None:  # noqa: F811
    model = load("shop")
    (found,) = model.score([Table(3, {"user": ["000", "000", "001"], "item": [2**60, 2**60 + 1, None]}, top=9)])
    assert isinstance(found, Answer)
    assert isinstance(found.scores, pl.DataFrame)
    assert sorted(found.scores["item"]) == [str(2**60), str(2**60 + 1)]
    assert found.scores["user"].to_list() == ["001", "001"]
    (lacking,) = model.score([Table(1, {"item": [1]}, top=3)])
    assert isinstance(lacking, DataError)


def test_a_wrong_wish_is_told(home: Path, tmp_path: Path) -> None:
    for top in (0, "3", 2.5, True):
        with pytest.raises(RefusedError, match=f"`top` is {top}: give the number of items, at least 1"):
            read_table(json.dumps({"inputs": {"user": "1"}, "params": {"top": top}}).encode(), "application/json", 9)
    with pytest.raises(RequestError, match="shop/2"):
        load("shop", tmp_path / "log.parquet")
    (refused,) = load("shop").score([Table(1, {"user": ["1"]}, top=3)])
    assert isinstance(refused, RefusedError)
