"""Scores over HTTP are bit by bit those of `load_champion`, by every form of both protocols; what is wrong is told."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlflow.pyfunc.scoring_server.client import ScoringServerClient
from mlflow.utils.proto_json_utils import dump_input_data
from starlette.testclient import TestClient

from shunter.serving.app import Endpoints
from shunter.serving.batcher import Batcher
from shunter.serving.guard import Guard
from shunter.serving.metrics import Metrics
from shunter.serving.model_updater import ModelUpdater
from shunter.serving.request import BatchingRequest, ServingLimits
from shunter.tracking.registry.models import load_champion
from shunter.tracking.registry.named import export_model
from tests.serving.conftest import Serving

LIMITS = ServingLimits(max_request_rows=400, max_request_mib=0.25, request_seconds=60)
JSON = {"content-type": "application/json"}


@pytest.fixture
def client(home: Path) -> Iterator[TestClient]:
    metrics = Metrics()
    updater = ModelUpdater("shop@champion", metrics)
    batcher = Batcher(updater.current, BatchingRequest(), metrics)
    app = Guard(Endpoints(updater, batcher, metrics, LIMITS).app(), {"testserver"}, None)
    with TestClient(app) as client:
        yield client
    batcher.close()


def expected(rows: pd.DataFrame) -> list[float]:
    return np.asarray(load_champion("shop").predict(rows)).tolist()


def nulls(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.astype(object).where(rows.notna(), None)


def asked(client: TestClient, body: Any, headers: dict[str, str] = JSON) -> list[float]:
    content = body if isinstance(body, (bytes, str)) else json.dumps(body)
    answer = client.post("/invocations", content=content, headers=headers)
    assert answer.status_code == 200, answer.text
    return json.loads(answer.content)["predictions"]


def test_every_form_of_mlflows_protocol_gets_the_scores_of_the_champion(client: TestClient, rows: pd.DataFrame) -> None:
    scores = expected(rows)
    values = nulls(rows)
    records = values.to_dict("records")
    assert asked(client, {"dataframe_split": {"columns": list(rows), "data": values.to_numpy().tolist()}}) == scores
    assert asked(client, {"dataframe_records": records}) == scores
    assert asked(client, {"instances": records}) == scores
    assert asked(client, {"inputs": records}) == scores
    assert asked(client, {"inputs": values.to_dict("list")}) == scores
    assert asked(client, dump_input_data(rows)) == scores  # as MLflow's own clients write, with NaN
    assert asked(client, rows.to_csv(index=False), {"content-type": "text/csv; charset=utf-8"}) == scores
    assert asked(client, rows.to_parquet(), {"content-type": "application/vnd.apache.parquet"}) == scores
    assert asked(client, {"dataframe_records": records[:1]}) == expected(rows.head(1))
    assert asked(client, {"inputs": records[0]}) == expected(rows.head(1))
    assert asked(client, {"dataframe_split": {"columns": list(rows), "data": []}}) == []


def test_the_open_inference_protocol_gets_the_same(client: TestClient, rows: pd.DataFrame) -> None:
    described = client.get("/v2/models/shop").json()
    kinds = {one["name"]: one["datatype"] for one in described["inputs"]}
    assert kinds == {"price": "FP64", "age": "FP64", "user": "BYTES", "item": "BYTES", "genres": "BYTES"}
    kinds |= {"age": "INT32", "item": "INT64"}
    values = nulls(rows)
    inputs = [
        {"name": name, "shape": [len(rows), 1], "datatype": kind, "data": values[name].tolist()}
        for name, kind in kinds.items()
    ]
    answer = client.post("/v2/models/shop/infer", json={"id": "x", "inputs": inputs}).json()
    output = {"name": "probability", "shape": [len(rows)], "datatype": "FP64", "data": expected(rows)}
    assert answer == {"model_name": "shop", "model_version": "2", "id": "x", "outputs": [output]}
    inputs[-1] = {"name": "genres", "shape": [300, 2], "datatype": "BYTES", "data": [["war", "love"]] * 300}
    path = "/v2/models/shop/versions/2/infer"
    answer = client.post(path, json={"inputs": inputs, "outputs": [{"name": "probability"}]}).json()
    assert answer["outputs"][0]["data"] == expected(rows.assign(genres="war|love"))


def test_health_metadata_and_metrics(client: TestClient, rows: pd.DataFrame) -> None:
    for path in ("/ping", "/health"):
        assert client.get(path).content == b"\n"
    assert client.get("/version").text.startswith("3.")
    assert client.get("/v2").json()["name"] == "shunter"
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/shop/ready", "/v2/models/shop/versions/2/ready"):
        assert client.get(path).json()["ready"] is True
    asked(client, {"dataframe_records": nulls(rows).to_dict("records")[:7]})
    page = client.get("/metrics").text
    assert "shunter_rows_total 7.0" in page
    assert 'shunter_requests_total{endpoint="/invocations",status="200"} 1.0' in page
    assert 'shunter_model{name="shop",version="2"} 1.0' in page


PARQUET = {"content-type": "application/vnd.apache.parquet"}


def parquet(values: list[Any]) -> bytes:
    """A column whose values are alike takes next to nothing, whatever it comes to."""
    file = io.BytesIO()
    pq.write_table(pa.table({"genres": values}), file)
    return file.getvalue()


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else "war"


ROW = {"price": 1, "age": 2, "user": "007", "item": 3, "genres": "war"}


@pytest.mark.parametrize(
    ("body", "headers", "status", "told"),
    [
        ("{", JSON, 400, "The request body is not JSON"),
        (b"\xff", JSON, 400, "The request body is not JSON"),
        ("[" * 100_000, JSON, 400, "The request body is not JSON"),
        ("[1]", JSON, 400, "The request body is a JSON list: send one JSON object"),
        ({"rows": []}, JSON, 400, "The request body has none of the keys dataframe_split"),
        ({"inputs": [], "instances": []}, JSON, 400, "The request body has instances, inputs of the keys"),
        ({"dataframe_split": []}, JSON, 400, "`dataframe_split` holds a JSON list: give an object"),
        (
            {"dataframe_split": {"columns": ["a"], "data": [[1], [1, 2]]}},
            JSON,
            400,
            "Row 1 of `data` is not a list of 1",
        ),
        ({"dataframe_split": {"columns": ["a", "a"], "data": []}}, JSON, 400, "The column a occurs more than once"),
        (
            {"dataframe_split": {"columns": ["a"], "rows": []}},
            JSON,
            400,
            "`dataframe_split` has the unknown key 'rows'",
        ),
        ({"dataframe_records": [1]}, JSON, 400, "`dataframe_records` holds a row that is not a JSON object"),
        ({"inputs": {"price": [1], "age": [1, 2]}}, JSON, 400, "differ in length"),
        ({"inputs": {"price": [1], "age": 2}}, JSON, 400, "`age` holds a JSON number: give a list"),
        (
            {"inputs": [{"prize": 1, "age": 2}]},
            JSON,
            400,
            r"lacks the columns price, user, item, genres of shop/2. Columns",
        ),
        ({"inputs": [{**ROW, "price": {}}]}, JSON, 400, "The column price holds a JSON object"),
        (
            {"inputs": [{**ROW, "price": [1]}]},
            JSON,
            400,
            "The column price holds lists, but the model reads single values",
        ),
        ({"inputs": [{**ROW, "item": "\ud800"}]}, JSON, 400, "The request body is not JSON .*surrogates not allowed"),
        ({"inputs": [{**ROW, "genres": nested(900)}]}, JSON, 400, "The column genres holds lists of lists"),
        (
            {"inputs": [{f"a{place}": 1} for place in range(1_100)]},
            JSON,
            400,
            "rows have 1,100 different columns in all",
        ),
        (
            {"dataframe_split": {"columns": [*map(str, range(30_000)), "7"], "data": []}},
            JSON,
            400,
            "The column 7 occurs more than once",
        ),
        ({"inputs": [ROW] * 401}, JSON, 413, "has 401 rows, more than the permitted 400"),
        (" " * 300_000, JSON, 413, "has 300,000 bytes, more than the permitted 262,144"),
        ("{}", {}, 415, "The content type '' is not supported"),
        (
            "{}",
            {"content-type": "application/xml"},
            415,
            "The content type 'application/xml' is not supported: send application/json",
        ),
        ("{}", {"content-type": "application/json; charset=latin-1"}, 415, "leave it out, or send charset=utf-8"),
        ("{}", {**JSON, "content-encoding": "gzip"}, 415, "The request body is compressed"),
        ("", {"content-type": "text/csv"}, 400, "cannot be read as CSV"),
        ("a,b\n1,2,3\n", {"content-type": "text/csv"}, 400, "cannot be read as CSV"),
        ("x", PARQUET, 400, "cannot be read as Parquet"),
        (parquet(["x" * 10_000] * 1_700), PARQUET, 413, "has 1,700 rows"),
        (parquet(["x" * 100_000] * 200), PARQUET, 413, "more than 16,777,216 bytes"),
        (parquet([["x" * 1_000] * 100] * 200), PARQUET, 413, "more than 16,777,216 bytes"),
        (parquet([["x"] * 50_000] * 100), PARQUET, 413, "more than 16,777,216 bytes"),
    ],
)
def test_what_cannot_be_scored_is_told_in_one_sentence(
    client: TestClient, body: Any, headers: dict[str, str], status: int, told: str
) -> None:
    content = body if isinstance(body, (bytes, str)) else json.dumps(body)
    answer = client.post("/invocations", content=content, headers=headers)
    assert answer.status_code == status
    assert answer.json().keys() == {"error_code", "message", "code"}
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(answer.json()["message"])
    assert asked(client, {"inputs": [ROW]})  # it goes on


def one_input(**values: Any) -> dict[str, Any]:
    return {"inputs": [{"name": "price", "shape": [1], "datatype": "FP64", "data": [1.0], **values}]}


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 400, "`inputs` holds a JSON null: give a list"),
        (
            one_input(name="prize"),
            400,
            "The request has the unknown input 'prize': give age, genres, item, price, user",
        ),
        (one_input(datatype="STRING"), 400, "The input price has the datatype 'STRING': give BOOL"),
        (one_input(data=["x"]), 400, "The input price is declared as FP64, but holds a str"),
        (one_input(shape=[2]), 400, r"The input price has the shape \[2\] and 1 values: give"),
        (one_input(shape=[10**9, 0], data=[]), 413, "The request has 1,000,000,000 rows, more than the permitted 400"),
        (one_input(shape=["1"]), 400, "give .rows. or"),
        (one_input(), 400, "lacks the columns age, user, item, genres of shop/2. Columns"),
        (one_input(shape=[401], data=[1] * 401), 413, "has 401 rows"),
    ],
)
def test_wrong_inputs_are_told_as_the_protocol_tells(client: TestClient, body: Any, status: int, told: str) -> None:
    answer = client.post("/v2/models/shop/infer", json=body)
    assert answer.status_code == status
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(answer.json()["error"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
NAMES = st.sampled_from([*ROW, "a"])


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.dictionaries(NAMES, VALUES, max_size=3).map(lambda values: {**ROW, **values}), max_size=4)
    | st.dictionaries(NAMES, st.lists(VALUES, min_size=2, max_size=2)).map(
        lambda values: {**{name: [1, None] for name in ROW}, **values}
    )
    | VALUES,
    st.none() | st.dictionaries(st.just("top"), VALUES),
)
def test_no_values_whatever_make_it_fail(client: TestClient, inputs: Any, parameters: Any) -> None:
    answer = client.post("/invocations", content=json.dumps({"inputs": inputs, "params": parameters}), headers=JSON)
    assert answer.status_code in (200, 400)
    assert client.post("/v2/models/shop/infer", content=json.dumps({"inputs": inputs}), headers=JSON).status_code == 400


def test_other_addresses_models_and_hosts_are_refused(client: TestClient) -> None:
    assert "'shap'" in client.get("/v2/models/shap").json()["error"]
    assert "The server has no version '1' of shop" in client.get("/v2/models/shop/versions/1").json()["error"]
    for answer in (client.get("/nothing"), client.get("/invocations")):
        assert answer.status_code in {404, 405}
        assert "There is nothing at GET /" in answer.json()["message"]
    strange = client.get("/version", headers={"host": "evil.example:8080"})
    assert strange.status_code == 421
    assert "The request names the unknown host 'evil.example'" in strange.json()["message"]
    assert client.get("/ping", headers={"host": "10.0.0.7"}).status_code == 200  # as probes ask


def test_mlflows_own_client_works_as_it_is_and_exported_models_are_served(
    serving: Serving, rows: pd.DataFrame, tmp_path: Path
) -> None:
    export_model("shop/1", tmp_path / "shop")
    with serving(str(tmp_path / "shop"), token="a long random token") as server:
        assert httpx.get(f"http://127.0.0.1:{server.port}/ping").status_code == 200
        url = f"http://127.0.0.1:{server.port}/invocations"
        assert httpx.post(url, json={}).status_code == 401
        assert httpx.post(url, json={}, headers={"authorization": "Bearer wrong"}).status_code == 401
        right = httpx.post(url, json={"inputs": [ROW]}, auth=("anybody", "a long random token"))
        assert right.status_code == 200
    with serving() as server:
        client = ScoringServerClient("127.0.0.1", server.port)
        client.wait_server_ready()
        found = client.invoke(rows).get_predictions()
    assert np.asarray(found).ravel().tolist() == expected(rows)
