"""The best items for a user over HTTP are those that `shunter predict --top` finds in the log and the request."""

import json
from pathlib import Path

import httpx
import pandas as pd
import polars as pl
import pytest

from flows.command.top import best_items_of_file
from serving.errors import RefusedError
from serving.keeper import load
from serving.protocols.invocations import read_table
from serving.table import Table
from shunter.errors import DataError, RequestError
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


def test_a_request_without_a_log_ranks_its_own_items(log: pd.DataFrame, tmp_path: Path) -> None:  # noqa: F811
    model = load("shop")
    (found,) = model.score([Table(3, {"user": ["000", "000", "001"], "item": [2**60, 2**60 + 1, None]}, top=9)])
    assert isinstance(found, pl.DataFrame)
    assert sorted(found["item"]) == [str(2**60), str(2**60 + 1)]
    assert found["user"].to_list() == ["001", "001"]
    (lacking,) = model.score([Table(1, {"item": [1]}, top=3)])
    assert isinstance(lacking, DataError)


def test_a_wrong_wish_is_told(home: Path, tmp_path: Path) -> None:
    for top in (0, "3", 2.5, True):
        with pytest.raises(RefusedError, match=f"`top` is {top}: give a whole number of items, at least 1"):
            read_table(json.dumps({"inputs": {"user": "1"}, "params": {"top": top}}).encode(), "application/json", 9)
    with pytest.raises(RequestError, match="has no effect on shop/2, which ranks no items: leave it out"):
        load("shop", tmp_path / "log.parquet")
    (refused,) = load("shop").score([Table(1, {"user": ["1"]}, top=3)])
    assert isinstance(refused, RefusedError)
